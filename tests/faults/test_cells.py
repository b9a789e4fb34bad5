"""Two cells, and four, on a real cluster: daemons and primaries are killed while tasks cross; nothing is lost, in two cells or run twice.
And one of four cells dies: the others do not notice.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.cluster import eventually
from tests.faults.cells import Cells
from tests.faults.neighbours import ALIVE, DEAD, watch

RUNS = int(os.environ.get("HETSCHED_RUNS", "10"))
TWO = {"a": "cpu:6,memory:16Gi", "b": "gpu:A100:4,cpu:6,memory:16Gi"}
FOUR = {
    "a": "cpu:4,memory:16Gi",
    "b": "gpu:A100:4,cpu:4,memory:16Gi",
    "c": "cpu:4,memory:16Gi",
    "d": "gpu:L4:4,cpu:4,memory:16Gi",
}
UNMOVED = 1.25
"""At most so many times as long, at the 99th percentile, while a neighbour is dead."""


def mixed(number: int) -> dict[str, Any]:
    """Most fit anywhere; some only where there are devices."""
    return {"resources": {"gpu": 0.5, "cpu": 0.5} if number % 3 == 0 else {"cpu": 1}}


def must_cross(cells: Cells) -> int:
    """How many of `mixed` cell a, which has no devices, was asked for devices for."""
    taken = list(cells.acknowledged.items())
    return sum(home == "a" and "gpu" in mixed(int(task.rpartition("-")[2]))["resources"] for task, home in taken)


def some_for_the_dead(number: int) -> dict[str, Any]:
    """Short leases; one in five for devices that only cell b has."""
    return {"resources": {"gpu": 0.25} if number % 5 == 0 else {"cpu": 0.5}, "duration": 0.05}


def kill_all_around(data_dir: Path, runs: int, fakes: dict[str, str]) -> tuple[int, Counter[tuple[str, str]]]:
    """Each run kills a daemon of each cell and a primary of the cluster; (tasks, where they went)."""
    found = Cells(data_dir, fakes)
    try:
        found.start()
        found.submit_always(mixed, pause_s=0.1)
        for _ in range(runs):
            for cell in found.cells.values():
                cell.strike()
            name = random.choice(list(fakes))
            dead = found.servers.primary_of(name)
            dead.kill()
            found.servers.until_replaced(dead, name)
            dead.start()
            found.servers.settled()
        eventually(lambda: must_cross(found) > 5, within_s=60, why="tasks are taken where they cannot run")
        found.rest()
        assert not found.failed
        return len(found.acknowledged), found.audit()
    finally:
        found.close()


def test_tasks_cross_while_daemons_and_a_primary_are_killed(data_dir: Path) -> None:
    tasks, ways = kill_all_around(data_dir, 1, TWO)
    assert tasks > 20 and ways["a", "b"] > 5, ways


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fakes", [TWO, FOUR], ids=["two", "four"])
def test_kill_after_kill_and_each_task_is_in_one_cell(
    data_dir: Path, fakes: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, ways = kill_all_around(data_dir, RUNS, fakes)
    crossed = {(home, cell): count for (home, cell), count in ways.items() if home != cell}
    with capsys.disabled():
        print(
            f"\n{len(fakes)} cells, {len(fakes) * RUNS} daemons and {RUNS} primaries killed: {tasks} tasks acknowledged, "
            f"{sum(crossed.values())} of them went to another cell ({len(crossed)} ways); 0 lost, 0 in two cells, 0 run twice"
        )


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_cell_dies_and_the_others_do_not_notice(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`HETSCHED_RUNS` deaths of ten seconds each, each compared with the ten seconds before it."""
    cells = Cells(data_dir, FOUR | {"c": FOUR["a"], "d": FOUR["a"]})
    try:
        cells.start()
        seen = watch(cells, "b", some_for_the_dead, rounds=RUNS, phase_s=10.0, rate=20.0)
        assert not seen.failed
        eventually(lambda: cells.succeeded() == seen.requests, within_s=120, why="all that was acknowledged succeeds")
    finally:
        cells.close()
    with capsys.disabled():
        print(
            f"\nfour cells, one of them killed {RUNS} times; {seen.requests} requests to the others, 20/s each, none failed:"
        )
        for name in (ALIVE, DEAD):
            p50_ms, p99_ms = (seen.pooled_ms(name, percent) for percent in (50, 99))
            print(
                f"  {name:5}: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms, {seen.cpu_us(name):.0f} µs of their daemons a request"
            )
        print(f"  round by round dead / alive: p50 {seen.ratio(50):.2f}, p99 {seen.ratio(99):.2f} (medians)")
    assert seen.ratio(99) <= UNMOVED
