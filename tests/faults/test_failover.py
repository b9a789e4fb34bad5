"""A leader that is killed, frozen, or asked to hand over, again and again under load: how long nobody leads, and what is lost (nothing).

One of each is part of every test run; `make faults` does it a hundred times and prints the table (`HETSCHED_RUNS` says otherwise).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched.client import Client
from tests.daemon.process import DaemonProcess
from tests.end_to_end.cluster import eventually
from tests.faults.several import Several, agent_of, several, table

RUNS = int(os.environ.get("HETSCHED_RUNS", "100"))


def kill(leader: DaemonProcess) -> None:
    leader.kill()


def freeze(leader: DaemonProcess) -> None:
    assert leader.process is not None
    leader.process.send_signal(signal.SIGSTOP)


def come_back(found: Several) -> None:
    """Whoever was killed or frozen follows the new leader."""
    for daemon in found.daemons:
        assert daemon.process is not None
        if daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGCONT)
        else:
            daemon.start()
    eventually(lambda: all(daemon.get("/v1/tasks?limit=1").status == 200 for daemon in found.daemons))
    eventually(lambda: found.client.cluster()["agents_connected"] == 1, why="the agent finds the new leader")


def changes(found: Several, act: Callable[[DaemonProcess], None], runs: int) -> list[float]:
    seen = []
    for _ in range(runs):
        seen.append(found.change(act))
        come_back(found)
    return seen


def test_a_leader_dies_and_neither_clients_nor_tasks_lose_anything(data_dir: Path) -> None:
    """At the default lease."""
    with several(data_dir) as found, agent_of(found):
        task = found.client.submit({"id": "outlives", "command": ["sleep", "60"], "resources": {"cpu": 1}})["id"]
        eventually(lambda: found.client.task(task)["state"] == "running")
        found.change(kill)
        eventually(lambda: found.client.cluster()["agents_connected"] == 1, why="the agent finds the new leader")
        assert found.settle() == [] and not found.clients.failed
        after = found.client.task(task)
        assert (after["state"], len(after["attempts"])) == ("running", 1), "adopted, not run again"
        found.client.cancel(task)
        eventually(lambda: found.client.task(task)["state"] == "cancelled")


def test_who_knows_only_a_standby_reads_events_and_logs(data_dir: Path) -> None:
    """They are the leader's; the standby says where that is."""
    with several(data_dir) as found, agent_of(found):
        found.ready()
        client = Client(found.standby.url, found.daemons[0].token, patience_s=10)
        client.submit({"id": "speaks", "command": ["echo", "hello"], "resources": {"cpu": 1}})
        client.wait(["speaks"])
        standby = found.standby
        assert standby.get("/v1/tasks/speaks/logs").status == standby.get("/v1/events?follow=false").status == 503
        told = Client(standby.url, found.daemons[0].token, patience_s=10)
        assert b"".join(told.logs("speaks")) == b"hello\n"
        events = [event["event"] for event in told.events(0, follow=False) if event.get("task") == "speaks"]
        assert events == ["queued", "placed", "running", "succeeded"]


def test_a_planned_hand_over_fails_no_request(data_dir: Path) -> None:
    with several(data_dir) as found:
        found.change(lambda leader: found.client.hand_over() and None)
        assert found.settle() == [] and not found.clients.failed


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("act", [kill, freeze])
def test_leaders_die_and_freeze_a_hundred_times(
    data_dir: Path, act: Callable[[DaemonProcess], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with several(data_dir) as found, agent_of(found):
        task = found.client.submit({"command": ["sleep", "3600"], "resources": {"cpu": 1}})["id"]
        eventually(lambda: found.client.task(task)["state"] == "running")
        seen = changes(found, act, RUNS)
        lost = found.settle()
        after = found.client.task(task)
        with capsys.disabled():
            print("\n" + table(f"{act.__name__} the leader", seen, found, lost))
        assert lost == [] and not found.clients.failed
        assert max(seen) <= 5.0
        assert (after["state"], len(after["attempts"])) == ("running", 1)
        found.client.cancel(task)
        eventually(lambda: found.client.task(task)["state"] == "cancelled")


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_leaders_hand_over_a_hundred_times(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with several(data_dir) as found:
        seen = []
        for _ in range(RUNS):
            seen.append(found.change(lambda leader: found.client.hand_over() and None))
            time.sleep(0.2)
        lost = found.settle()
        with capsys.disabled():
            print("\n" + table("hand-over", seen, found, lost))
        assert lost == [] and not found.clients.failed
        assert max(seen) <= 1.0
