"""A best-effort task runs in memory and on cores that others hold and do not use, until they use them or somebody comes to whom they are owed:
real processes, measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.cluster import Agent, Cluster, eventually, running

OWNER = """while [ ! -e $0 ]; do sleep 0.05; done; data=$(head -c 120000000 /dev/zero | tr '\\0' x); sleep 600"""
"""Idle until the file is there, then 120 MB. In a shell: who runs it may see no more of this machine than that."""


SPINNER = """while [ ! -e $0 ]; do sleep 0.05; done; while :; do :; done"""
"""Idle until the file is there, then all of a core."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="hs-", ignore_cleanup_errors=True) as name:
        with running(
            Path(name), agents=0, sets=["overcommit.memory=2", "overcommit.cpu=2", "agent.lease=6", "agent.heartbeat=1"]
        ) as found:
            found.directory.chmod(0o711)
            agent = Agent(
                found.directory, "n0", found.daemon, "cpu:4,memory:256Mi", ["--set", "agent.measure_every=0.1"]
            )
            agent.start()
            found.agents.append(agent)
            found.connected(1)
            yield found


def test_an_owner_that_starts_to_use_its_memory_gets_it_back(cluster: Cluster) -> None:
    sign = cluster.directory / "now"
    owner = cluster.submit("sh", "-c", OWNER, str(sign), resources={"cpu": 1, "memory": "200Mi"})
    cluster.until(owner, "running")
    guest = cluster.submit("sleep", "600", resources={"cpu": 1, "memory": "150Mi"}, guarantee="best_effort", grace=1)
    cluster.until(guest, "running")
    used = cluster.client.task(owner)["used"]["memory"]
    assert 0 < used < 106 << 20, "what is lent was measured"
    sign.touch()
    eventually(lambda: cluster.client.task(guest)["preemptions"] == 1, why="the guest had to go")
    attempt = cluster.client.task(guest)["attempts"][0]
    assert (attempt["outcome"], attempt["reason"]) == ("preempted", "reclaim")
    assert cluster.state(guest) == "queued"
    assert cluster.state(owner) == "running"
    assert cluster.client.node("n0")["overcommit"]["memory"]["best_effort"] == 0


def test_an_owner_that_starts_to_use_its_cores_gets_them_back(cluster: Cluster) -> None:
    sign = cluster.directory / "now"
    owner = cluster.submit("sh", "-c", SPINNER, str(sign), resources={"cpu": 2})
    cluster.until(owner, "running")
    guest = cluster.submit("sleep", "600", resources={"cpu": 3.75}, guarantee="best_effort", grace=1)
    cluster.until(guest, "running")
    assert cluster.client.task(owner)["used"]["cpu"] <= 0.25, "what is lent was measured"
    sign.touch()
    eventually(lambda: cluster.client.task(guest)["preemptions"] == 1, why="the guest had to go")
    assert cluster.client.task(guest)["attempts"][0]["reason"] == "reclaim" and cluster.state(owner) == "running"


def test_a_firm_gang_that_comes_takes_memory_back_for_all_of_it(cluster: Cluster) -> None:
    """100 of 256 MiB are held by a task that uses next to nothing, 150 by one that is promised nothing. Two members of 70 come."""
    owner = cluster.submit("sleep", "600", resources={"cpu": 0.5, "memory": "100Mi"})
    cluster.until(owner, "running")
    guest = cluster.submit("sleep", "600", resources={"cpu": 0.5, "memory": "150Mi"}, guarantee="best_effort", grace=1)
    cluster.until(guest, "running")
    eventually(lambda: cluster.client.task(owner)["used"]["memory"] < 50 << 20, why="the owner is measured")
    crew = {"resources": {"cpu": 0.5, "memory": "70Mi"}, "gang": {"id": "crew", "size": 2}}
    members = [cluster.submit("sleep", "600", **crew) for _ in range(2)]
    for member in members:
        cluster.until(member, "running")
    attempt = cluster.client.task(guest)["attempts"][0]
    assert (attempt["outcome"], attempt["reason"]) == ("preempted", "reclaim")
    assert cluster.state(guest) == "queued" and cluster.state(owner) == "running"
