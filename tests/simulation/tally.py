"""Hours that add up: a line of JSON for each world that was run, by whichever process, and what they come to together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.simulation.coverage import Met, missing, table
from tests.simulation.pace import Pace
from tests.simulation.run import Verdict


def line(verdict: Verdict, pace: Pace, faulty_h: float, cpu_s: float) -> str:
    """`faulty_h`: hours of faults that the plan was for."""
    told = {
        "pace": pace.name,
        "seed": verdict.seed,
        "hours": round(verdict.hours, 3),
        "faulty": round(min(verdict.hours, faulty_h), 3),
        "cpu_s": round(cpu_s, 2),
        "tasks": verdict.tasks,
        "turns": verdict.turns,
        "said": verdict.sentence,
        "struck": verdict.struck,
        "met": {" ".join(pair): count for pair, count in verdict.met.items() if count},
    }
    return json.dumps(told) + "\n"


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(row) for path in paths for row in path.read_text().splitlines()]


def summary(rows: list[dict[str, Any]], faults: Iterable[str]) -> str:
    """Hours by pace, what was broken, faults by kind, and which of them met tasks in which state (as Markdown)."""
    struck, met = Counter[str](), Met()
    for row in rows:
        struck.update(row["struck"])
        for pair, count in row["met"].items():
            fault, state = pair.split()
            met[fault, state] += count
    broken = [f"{row['pace']} {row['seed']}: {row['said']}" for row in rows if row["said"]]
    lines = [
        _hours(pace, [row for row in rows if row["pace"] == pace]) for pace in sorted({row["pace"] for row in rows})
    ]
    lines.append(_hours("together", rows))
    lines += broken
    lines.append(
        f"{sum(struck.values())} faults: " + ", ".join(f"{name} {times}" for name, times in sorted(struck.items()))
    )
    lines.append("\nfaults that met a task in that state:\n" + table(met, faults))
    holes = missing(met, faults)
    some = ", ".join(f"{fault} {state}" for fault, state in holes[:20])
    lines.append(f"\nnever met: {len(holes)} pairs" + (f", among them {some}" if some else ""))
    return "\n".join(lines)


def _hours(name: str, rows: list[dict[str, Any]]) -> str:
    hours, faulty, cpu_s = (sum(row[word] for row in rows) for word in ("hours", "faulty", "cpu_s"))
    broken = sum(bool(row["said"]) for row in rows)
    return (
        f"{name}: {len(rows)} worlds, {hours:.1f} simulated hours, {faulty:.1f} of them under faults, {broken} broken, "
        f"{sum(row['tasks'] for row in rows)} tasks, {sum(row['turns'] for row in rows)} turns, {cpu_s:.0f} CPU seconds, "
        f"{hours / max(cpu_s, 0.01):.2f} hours a CPU second"
    )
