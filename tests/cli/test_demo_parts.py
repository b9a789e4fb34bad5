"""The judges of the demo must see what is wrong: a task twice at once, a ledger that does not add up, a task that was lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from hetsched.client import Client
from hetsched.demo import proof, worker
from hetsched.demo.ledger import Ledger
from hetsched.demo.workload import QOS, Workload
from hetsched.model import Task, parse_submission


def start(directory: Path, task: str, attempt: int, seconds: float, *manner: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-IS", worker.__file__, str(directory), str(seconds), *manner]
    return subprocess.Popen(
        command, env={"HETSCHED_TASK": task, "HETSCHED_ATTEMPT": str(attempt)}, stdout=subprocess.PIPE
    )


def lines_until(directory: Path, count: int) -> list[proof.Line]:
    while len(found := proof.read(directory / "lines")) < count:
        time.sleep(0.01)
    return found


def test_one_life_after_another_is_fine(tmp_path: Path) -> None:
    assert start(tmp_path, "t", 1, 0, "fail-first").wait() == 1
    assert start(tmp_path, "t", 2, 0, "fail-first").wait() == 0
    lines = proof.read(tmp_path / "lines")
    assert [(line.word, line.attempt) for line in lines] == [("start", 1), ("end", 1), ("start", 2), ("end", 2)]
    assert proof.twice(lines) == []
    assert proof.unfinished(lines, ["t"]) == []


def test_two_at_once_are_found_whatever_attempt_they_claim(tmp_path: Path) -> None:
    first = start(tmp_path, "t", 1, 30)
    lines_until(tmp_path, 1)
    second = start(tmp_path, "t", 2, 30)
    lines = lines_until(tmp_path, 3)
    assert proof.twice(lines) == ["t"]
    for process in (first, second):
        process.terminate()
        process.wait()
    assert [line.word for line in proof.read(tmp_path / "lines")][-2:] == ["stopped", "stopped"]


def test_a_killed_one_leaves_the_lock_free_and_no_end(tmp_path: Path) -> None:
    first = start(tmp_path, "t", 1, 30)
    lines = lines_until(tmp_path, 1)
    first.kill()
    first.wait()
    assert proof.unfinished(lines, ["t", "never-began"]) == ["never-began", "t"]
    assert start(tmp_path, "t", 2, 0).wait() == 0
    assert proof.twice(proof.read(tmp_path / "lines")) == []


def test_the_same_attempt_twice_is_found(tmp_path: Path) -> None:
    for _ in range(2):
        start(tmp_path, "t", 1, 0).wait()
    assert proof.twice(proof.read(tmp_path / "lines")) == ["t"]


class StubClient:
    def __init__(self, used: int, held: int, live: list[dict[str, Any]]) -> None:
        holders = [{"task": "t", "attempt": 1, "share": held}] if held else []
        self._devices = [{"node": "n", "id": "gpu-0", "share_used": used, "tasks": holders}]
        self._live = live

    def devices(self) -> Any:
        return {"devices": self._devices}

    def tasks(self, **filters: str) -> list[dict[str, Any]]:
        return self._live


def live(share: int) -> list[dict[str, Any]]:
    return [{"id": "t", "attempt": 1, "placement": {"node": "n", "devices": [{"id": "gpu-0", "share": share}]}}]


@pytest.mark.parametrize(
    ("stub", "faults"),
    [
        (StubClient(500, 500, live(500)), 0),
        (StubClient(0, 0, []), 0),
        (StubClient(500, 250, live(250)), 3),  # seen at both looks, and by the comparison
        (StubClient(1500, 1500, live(1500)), 2),
        (StubClient(500, 500, []), 1),
    ],
)
def test_the_ledger_must_add_up(stub: StubClient, faults: int) -> None:
    ledger = Ledger(cast(Client, stub))
    ledger.check()
    assert (len(ledger.faults), ledger.compared) == (faults, 1)


def test_the_workload_is_legal_and_of_every_kind(tmp_path: Path) -> None:
    work = Workload(tmp_path)
    bodies = (
        work.stream(400) + work.processes(300) + work.chain() + work.troubled() + work.fillers(3, 1) + [work.urgent(0)]
    )
    forms: list[Any] = [bodies, work.array(10), work.gang()]
    tasks = [item for form in forms for item in parse_submission(form).items]
    assert all(isinstance(task, Task) for task in tasks), [t for t in tasks if not isinstance(t, Task)][:1]
    assert len({task.id for task in tasks}) == len(tasks)
    for qos in QOS:
        assert sum(body.get("qos") == qos for body in bodies) > 100


def test_the_worker_needs_no_package(tmp_path: Path) -> None:
    env = {"HETSCHED_TASK": "t", "HETSCHED_ATTEMPT": "1", "PATH": os.defpath}
    command = [sys.executable, "-IS", worker.__file__, str(tmp_path), "0"]
    assert subprocess.run(command, env=env, cwd="/", check=True, capture_output=True).stdout == b"t attempt 1 on None\n"
