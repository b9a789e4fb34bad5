"""Two cells on a real cluster: daemons and the cluster's primaries are killed while tasks cross; nothing is lost, in two cells or run twice."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cells import Cells

RUNS = int(os.environ.get("HETSCHED_RUNS", "10"))
FAKES = {"a": "cpu:6,memory:16Gi", "b": "gpu:A100:4,cpu:6,memory:16Gi"}


def mixed(number: int) -> dict[str, Any]:
    """Most fit anywhere; some only where there are devices."""
    return {"resources": {"gpu": 0.5, "cpu": 0.5} if number % 3 == 0 else {"cpu": 1}}


def kill_all_around(data_dir: Path, runs: int) -> tuple[int, Counter[tuple[str, str]]]:
    """Each run kills a daemon of each cell and a primary of the cluster; (tasks, where they went)."""
    found = Cells(data_dir, FAKES)
    try:
        found.start()
        found.submit_always(mixed, pause_s=0.1)
        for _ in range(runs):
            for cell in found.cells.values():
                cell.strike()
            name = random.choice(list(FAKES))
            dead = found.servers.primary_of(name)
            dead.kill()
            found.servers.until_replaced(dead, name)
            dead.start()
            found.servers.settled()
        found.rest()
        assert not found.failed
        return len(found.acknowledged), found.audit()
    finally:
        found.close()


def test_tasks_cross_while_daemons_and_a_primary_are_killed(data_dir: Path) -> None:
    tasks, ways = kill_all_around(data_dir, runs=1)
    assert tasks > 20 and ways["a", "b"] > 5, ways


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_kill_after_kill_and_each_task_is_in_one_cell(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks, ways = kill_all_around(data_dir, RUNS)
    crossed = sum(count for (home, cell), count in ways.items() if home != cell)
    with capsys.disabled():
        print(
            f"\ntwo cells, {2 * RUNS} daemons and {RUNS} primaries killed: {tasks} tasks acknowledged, {crossed} of them "
            "went to the other cell; 0 lost, 0 in two cells, 0 run twice"
        )
