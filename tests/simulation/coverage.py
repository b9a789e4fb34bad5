"""Which fault met tasks in which state: a plan that never hits a state proves nothing about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.simulation.laws import LIVE, TERMINAL

STATES = ("held", "queued", "backoff", *LIVE, *TERMINAL)
Met = Counter[tuple[str, str]]


def table(met: Met, faults: Iterable[str]) -> str:
    """Rows are faults, columns states, cells how often one met the other (as Markdown)."""
    lines = ["| fault | " + " | ".join(STATES) + " |", "|---" * (len(STATES) + 1) + "|"]
    lines += [f"| {fault} | " + " | ".join(str(met[fault, state]) for state in STATES) + " |" for fault in faults]
    return "\n".join(lines)


def missing(met: Met, faults: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs that never occurred."""
    return [(fault, state) for fault in faults for state in STATES if not met[fault, state]]
