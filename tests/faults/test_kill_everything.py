"""kill -9 of daemon, journal server and agent at random moments, freezes, cut wires, a disk that fails, while thousands of tasks run.

The promises: every acknowledged task ends exactly once; no two attempts of one task are alive at the same time; the device ledger is the sum
of the live attempts at every look. A short storm is part of every test run; `make faults` runs the long one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hetsched.client import ENDED
from tests.end_to_end.cluster import eventually, running
from tests.faults.storm import Size, Storm, lives
from tests.faults.weather import FAULTS, LEASE_S, Disk

THREE = ("kill_daemon", "kill_server", "kill_agent")
SHORT = Size(processes=60, leases=240, faults=dict.fromkeys(THREE, 2), spread_s=12)
LONG = Size(processes=500, leases=4500, faults=dict.fromkeys(THREE, 20), spread_s=240)
OTHERS = tuple(fault for fault in FAULTS if fault not in THREE)
FAKE = "gpu:A100:8,cpu:16,memory:64Gi"
SETS = [f"agent.lease={LEASE_S:g}", "agent.heartbeat=1", "health.auto_cordon=false", "health.quarantine=false"]


def weather(data_dir: Path, size: Size) -> None:
    """A storm of that size, and the verdict on it. The seed is `HETSCHED_SEED`, else a new one, and printed."""
    seed = int(os.environ.get("HETSCHED_SEED", "0")) or int.from_bytes(os.urandom(3))
    print(f"HETSCHED_SEED={seed}")
    disk = Disk(data_dir)
    with running(data_dir, agents=3, fake=FAKE, sets=SETS, wired=True, env=disk.env) as cluster:
        work = data_dir / "work"
        work.mkdir(mode=0o777)
        work.chmod(0o777)  # tasks of an agent that is root run as nobody
        data_dir.chmod(0o711)
        storm = Storm(cluster, disk, work, size, seed)
        try:
            storm.rage()
            tasks = storm.settle(within_s=120 + size.processes * 0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{storm.complaints}\n{cluster.logs()}") from None
        _judge(storm, tasks, work / "record")
        eventually(lambda: not any(device["share_used"] for device in cluster.client.devices()["devices"]))
        print(
            f"{len(tasks)} tasks, {storm.looks} looks, {storm.still_looks} of them at rest; ended by itself {storm.weather.restarts}"
        )
        print("\n".join(f"| `{fault}` | {count} |" for fault, count in sorted(storm.struck.items())))


def _judge(storm: Storm, tasks: dict[str, dict[str, object]], record: Path) -> None:
    assert storm.still_looks, "not one look at a cluster at rest"
    assert not storm.complaints, "\n".join(storm.complaints[:20])
    assert len(storm.acknowledged) == storm.size.processes + storm.size.leases
    assert storm.acknowledged == set(tasks), "exactly what was acknowledged is there"
    unended = {name: task["state"] for name, task in tasks.items() if task["state"] not in ENDED}
    assert not unended
    failed = {
        name: storm.cluster.client.task(name)["attempts"]
        for name, task in tasks.items()
        if task["state"] != "succeeded"
    }
    assert not failed, "kills are nobody's failure"
    written = lives(record)
    assert {name for name in tasks if name.startswith("p")} == set(written)
    for name, life in written.items():
        attempts = storm.cluster.client.task(name)["attempts"]
        assert not life["overlap"], f"two lives of {name}: {life}, {attempts}"
        assert len(life["start"]) == len(set(life["start"])), f"an attempt of {name} began twice: {life}"
        assert attempts[-1]["attempt"] in life["end"], (
            f"{name} succeeded without having come to its end: {life}, {attempts}"
        )


needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock(1) of util-linux")


@needs_flock
@pytest.mark.timeout(300)
def test_a_short_storm_loses_nothing_and_runs_nothing_twice(data_dir: Path) -> None:
    weather(data_dir, SHORT)


@needs_flock
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", OTHERS)
def test_each_other_fault_loses_nothing_and_runs_nothing_twice(data_dir: Path, fault: str) -> None:
    """`HETSCHED_STRIKES` of each (10)."""
    strikes = int(os.environ.get("HETSCHED_STRIKES", "10"))
    weather(data_dir, Size(processes=10 * strikes, leases=20 * strikes, faults={fault: strikes}, spread_s=5 * strikes))


@needs_flock
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_all_faults_together_lose_nothing_and_run_nothing_twice(data_dir: Path) -> None:
    weather(data_dir, Size(processes=200, leases=1000, faults=dict.fromkeys(FAULTS, 3), spread_s=200))


@needs_flock
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_a_long_storm_loses_nothing_and_runs_nothing_twice(data_dir: Path) -> None:
    weather(data_dir, LONG)
