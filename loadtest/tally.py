"""The tally: what one machine's boards come to, small enough to send, and made to add up with those of other machines.

Promises: a task that was acknowledged and not seen placed counts in `scheduling` with the time it had waited when the run ended, so a
server that stalls cannot improve its figures by not answering; the figures of several tallies are those of one machine that had done it all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadtest.board import Board
from loadtest.histogram import Histogram, Packed, packed
from loadtest.mix import Mix

Figures = dict[str, Any]
Flags = NDArray[np.bool_]

MOST_SLICES = 120  # of a run, for its course over time


class Slice(msgspec.Struct, frozen=True):
    """The arrivals of a short time."""

    offered: int
    acknowledged: int
    placed: int
    answer: Packed
    scheduling: Packed


class Tally(msgspec.Struct, frozen=True):
    """`*_span_s`: from the beginning to the last of its kind, at least the duration. `unplaced`: of those acknowledged. `outcomes`: requests by
    status or failure. `waits`: by name; those of the classes are `class:NAME`."""

    duration_s: float
    acknowledged_span_s: float
    placed_span_s: float
    unplaced: int
    outcomes: dict[str, int]
    rejected: int
    waits: dict[str, Packed]
    slices: list[Slice]


def tally_of(
    boards: Sequence[Board],
    results: Sequence[Mapping[str, Any]],
    mix: Mix,
    *,
    start_ns: int,
    end_ns: int,
    now_ns: int,
) -> Tally:
    """Of all boards of this machine. `start_ns`…`end_ns`: when tasks arrived; `now_ns`: when one stopped looking."""
    rows = [np.flatnonzero(board.intended) for board in boards]

    def column(name: str) -> NDArray[np.int64]:
        return np.concatenate([np.asarray(getattr(board, name))[at] for board, at in zip(boards, rows, strict=True)])

    intended, acknowledged, sent, kind = (column(name) for name in ("intended", "acknowledged", "sent", "kind"))
    known = np.concatenate([board.placement_known_ns()[at] for board, at in zip(boards, rows, strict=True)])
    ended = column("ended")
    acked, placed = acknowledged > 0, known > 0
    waited_ns = np.where(placed, known, now_ns) - intended
    answered_ns = acknowledged - intended
    waits = {
        "lateness": packed((sent - intended)[sent > 0]),
        "answer": packed(answered_ns[acked]),
        "scheduling": packed(waited_ns[acked]),
        "tpu_queue_wait": packed(waited_ns[acked & np.isin(kind, mix.asking("tpu"))]),
        "end": packed((ended - intended)[ended > 0]),
    }
    for name, numbers in mix.names().items():
        waits[f"class:{name}"] = packed(waited_ns[acked & np.isin(kind, numbers)])
    duration_s = (end_ns - start_ns) / 1e9
    count = max(1, min(MOST_SLICES, math.ceil(duration_s)))
    of = np.clip((intended - start_ns) * count // max(end_ns - start_ns, 1), 0, count - 1)

    def slice_of(at: Flags) -> Slice:
        return Slice(
            int(at.sum()),
            int((at & acked).sum()),
            int((at & placed).sum()),
            packed(answered_ns[at & acked]),
            packed(waited_ns[at & acked]),
        )

    outcomes: Counter[str] = sum((Counter(result["outcomes"]) for result in results), Counter())
    return Tally(
        duration_s=duration_s,
        acknowledged_span_s=max(duration_s, (int(acknowledged.max(initial=0)) - start_ns) / 1e9),
        placed_span_s=max(duration_s, (int(known.max(initial=0)) - start_ns) / 1e9),
        unplaced=int((acked & ~placed).sum()),
        outcomes=dict(outcomes),
        rejected=sum(result["rejected"] for result in results),
        waits=waits,
        slices=[slice_of(of == number) for number in range(count)],
    )


def figures(tallies: Sequence[Tally]) -> Figures:
    """What the machines measured together, as in the JSON report."""
    outcomes: Counter[str] = sum((Counter(tally.outcomes) for tally in tallies), Counter())
    requests, failed = outcomes.total(), outcomes.total() - outcomes["202"]
    offered, acknowledged, placed = (
        sum(getattr(part, name) for tally in tallies for part in tally.slices)
        for name in ("offered", "acknowledged", "placed")
    )
    duration_s = max(tally.duration_s for tally in tallies)

    def wait(name: str) -> Figures:
        return Histogram.of(*(tally.waits[name] for tally in tallies)).summary_ms()

    classes = [name for name in tallies[0].waits if name.startswith("class:")]
    return {
        "offered": {"tasks": offered, "per_s": offered / duration_s},
        "achieved": {
            "acknowledged": acknowledged,
            "per_s": acknowledged / max(tally.acknowledged_span_s for tally in tallies),
            "placed": placed,
            "placed_per_s": placed / max(tally.placed_span_s for tally in tallies),
            "unplaced": sum(tally.unplaced for tally in tallies),
        },
        "errors": {
            "requests": requests,
            "failed": failed,
            "rate": failed / requests if requests else 0.0,
            "rejected_tasks": sum(tally.rejected for tally in tallies),
            "by_kind": {name: count for name, count in sorted(outcomes.items()) if name != "202"},
        },
        **{name: wait(name) for name in ("lateness", "answer", "scheduling", "tpu_queue_wait", "end")},
        "scheduling_by_class": {name.removeprefix("class:"): wait(name) for name in classes},
        "course": _course(tallies, duration_s),
    }


def _course(tallies: Sequence[Tally], duration_s: float) -> list[Figures]:
    """The run over time: one entry a slice, by when its tasks were meant to arrive."""
    parts = list(zip(*(tally.slices for tally in tallies), strict=True))
    length_s = duration_s / len(parts)
    return [
        {
            "at_s": number * length_s,
            "offered_per_s": sum(part.offered for part in at) / length_s,
            "acknowledged_per_s": sum(part.acknowledged for part in at) / length_s,
            "placed_per_s": sum(part.placed for part in at) / length_s,
            "answer": Histogram.of(*(part.answer for part in at)).summary_ms(),
            "scheduling": Histogram.of(*(part.scheduling for part in at)).summary_ms(),
        }
        for number, at in enumerate(parts)
    ]
