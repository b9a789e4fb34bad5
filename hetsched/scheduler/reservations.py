"""What the one reservation of EASY backfill means for a waiting task: it is its own, or it is what holds the task back.

The core finds it (`_core/reserve.pxi`) while it decides; here it is only told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hetsched._core import NONE, QUEUED, TaskRow
from hetsched.scheduler.reasons import Waiting
from hetsched.scheduler.world import World


def starts_in_s(world: World, task: int, row: TaskRow) -> float | None:
    """Seconds until the reserved start of the task or its gang; None if the reservation is not theirs."""
    found = world.core.reservation()
    if found is None or not _is_theirs(world, found[0], task, row):
        return None
    return max(0.0, (found[1] - world.now_ns) / 1e9)


def reasons(world: World, task: int, row: TaskRow, run_s: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(code, sentence, numbers); `run_s`: expected run time of the task, 0 = unknown. It holds back only who is in line."""
    found = world.core.reservation()
    if found is None:
        return
    head, start_ns, seats = found
    nodes = sorted({world.books.cluster.by_slot[node].name for _, node in seats})
    start_s = round(max(0.0, (start_ns - world.now_ns) / 1e9), 3)
    numbers = {"nodes": nodes, "start_seconds": start_s}
    if _is_theirs(world, head, task, row):
        sentence = (
            f"first of those that wait: has a reservation on {', '.join(nodes)} in {start_s:g} s, by expected run times"
        )
        yield Waiting.RESERVED, sentence, numbers
    elif row.state == QUEUED and 0 < world.core.verdict(row.shape)["fits"] <= len(nodes):
        ident = world.books.id_of(head)
        runs = f"is expected to run {run_s:g} s" if run_s else "says nothing of its run time"
        sentence = f"fits on {', '.join(nodes)}, reserved for {ident} in {start_s:g} s; it {runs} and would delay that"
        yield Waiting.BEHIND_RESERVATION, sentence, {**numbers, "reserved_for": ident, "expected_seconds": run_s}


def _is_theirs(world: World, head: int, task: int, row: TaskRow) -> bool:
    return head == task or (row.gang != NONE and world.core.task(head).gang == row.gang)
