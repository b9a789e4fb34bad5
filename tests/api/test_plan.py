"""The dry run and the advice of explain, over HTTP: what they say comes true, and they change nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.agent import TestAgent
from tests.daemon.process import Answer, DaemonProcess

NODE = {"name": "n1", "cpu": 8, "memory": "16Gi", "devices": [{"kind": "gpu", "model": "A100", "count": 4}]}
ONE = {"resources": {"gpu": 1}, "qos": "critical"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("plan"), limits__plan_tasks=20) as process:
        yield process


def state_of(daemon: DaemonProcess) -> tuple[Any, ...]:
    """All that a client can see, and the number of the last event."""
    cluster = {name: value for name, value in daemon.get("/v1/cluster").json.items() if name != "agents_connected"}
    events = daemon.get("/v1/events?since=0&follow=false").body
    return cluster, daemon.get("/v1/tasks?limit=1000").json, daemon.get("/v1/queues").json, events


async def test_a_plan_comes_true_and_changes_nothing(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, NODE):
        before = state_of(daemon)
        planned = daemon.post("/v1/plan", ONE)
        assert planned.status == 200, planned
        told = planned.json["tasks"][0]
        assert (told["starts"], told["id"], told["known"]) == ("now", None, False)
        assert state_of(daemon) == before
        placed = daemon.submit(ONE).json
        assert placed["placement"]["node"] == told["placement"]["node"] == "n1"
        assert placed["placement"]["devices"] == told["placement"]["devices"]
        daemon.call("DELETE", f"/v1/tasks/{placed['id']}")


async def test_explain_has_remedies_whose_calls_help(daemon: DaemonProcess) -> None:
    async with TestAgent(daemon, NODE):
        daemon.submit({"id": "r", "resources": {"gpu": 3}, "duration": 500, "qos": "critical"})
        daemon.submit({"id": "w", "resources": {"gpu": 2}, "labels": {"a": "b"}})
        told = daemon.get("/v1/tasks/w/explain").json
        assert told["reason"] == "no_capacity" and 400 < told["eta"]["p50"] <= 500.1
        assert told["eta_seconds"] == told["eta"]["p50"]
        smaller = next(one for one in told["remedies"] if one["code"] == "devices")
        assert smaller["detail"] == "ask 1 gpu instead of 2: starts now on n1"
        answers = [daemon.call(call["method"], call["path"], call["body"]) for call in smaller["calls"]]
        new = answers[0].json["id"]
        found = daemon.until_state(new, "placed", "running")
        assert found["placement"]["node"] == "n1" and found["labels"] == {"a": "b"}
        assert daemon.task("w")["state"] == "cancelled"
        assert "remedies" not in daemon.get("/v1/tasks/r/explain").json
        daemon.post("/v1/tasks/cancel", {"ids": ["r", new]})


def test_a_task_of_this_very_moment_is_explained(daemon: DaemonProcess) -> None:
    for at in range(5):
        daemon.submit({"id": f"at-once-{at}", "resources": {"npu": 1}})
        told = daemon.get(f"/v1/tasks/at-once-{at}/explain").json
        assert told["eta_reason"] == "no node could ever take it"
        assert told["constraint"]["name"] == "resources.npu"


def test_a_plan_is_bounded(daemon: DaemonProcess) -> None:
    assert len(daemon.post("/v1/plan", [ONE] * 20).json["tasks"]) == 20
    problem = daemon.post("/v1/plan", {"template": ONE, "count": 21}).problem()
    assert problem["status"] == 413 and "limits.plan_tasks" in problem["detail"]


def test_a_plan_is_refused_as_a_submission_would_be(daemon: DaemonProcess) -> None:
    def both(body: Any) -> tuple[Answer, Answer]:
        return daemon.post("/v1/plan", body), daemon.submit(body)

    for body in (
        {"resources": {"cpu": -1}},
        {"resources": {"cpu": 1}, "after": ["nobody"]},
        [{"resources": {"cpu": -1}}],
    ):
        planned, submitted = both(body)
        assert planned.problem() == submitted.problem()
    some = daemon.post(
        "/v1/plan", [{"resources": {"cpu": -1}}, ONE, {"resources": {"cpu": 1}, "after": ["nobody"]}]
    ).json
    assert [task["index"] for task in some["tasks"]] == [1]
    assert [item["index"] for item in some["rejected"]] == [0, 2]


def test_a_helper_that_is_killed_is_started_again(daemon: DaemonProcess) -> None:
    assert daemon.post("/v1/plan", ONE).status == 200
    for pid in helpers(daemon):
        os.kill(pid, signal.SIGKILL)
    answers = [daemon.post("/v1/plan", ONE).status for _ in range(2)]
    assert answers[-1] == 200
    assert daemon.get("/healthz").status == 200


def test_the_helper_ends_with_the_daemon(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        assert daemon.post("/v1/plan", ONE).status == 200
        (pid,) = helpers(daemon)
        daemon.kill(signal.SIGKILL)
        subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=10, check=True)


def helpers(daemon: DaemonProcess) -> list[int]:
    """Processes that rehearse for this daemon."""
    found = []
    for pid in (Path("/proc") / str(daemon.pid) / "task" / str(daemon.pid) / "children").read_text().split():
        if b"hetsched.daemon.rehearsing" in (Path("/proc") / pid / "cmdline").read_bytes():
            found.append(int(pid))
    return found


def test_many_plans_at_once_are_all_answered_or_told_to_come_back(daemon: DaemonProcess) -> None:
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: daemon.post("/v1/plan", ONE), range(40)))
    assert {answer.status for answer in answers} <= {200, 429}
    assert sum(answer.status == 200 for answer in answers) >= 16
    assert all("retry-after" in answer.headers for answer in answers if answer.status == 429)
