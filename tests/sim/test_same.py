"""Same file, same seed, same bytes; the summary agrees with the log."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.sim.worlds import Run, task, world

BUSY = world(
    {"at": 0, "submit": {"template": {**task("a"), "qos": "production", "resources": {"gpu": 0.5}}, "count": 4}},
    {"at": 1, "submit": task("b", resources={"gpu": 2})},
    {"at": 3, "fail": {"task": "b"}},
    {"at": 4, "node_down": "n"},
    {"at": 6, "node_up": "n"},
    seed=7,
)


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    first, second = Run(tmp_path, BUSY), Run(tmp_path, BUSY)
    assert first.bytes == second.bytes
    assert first.summary["events_sha256"] == second.summary["events_sha256"] == hashlib.sha256(first.bytes).hexdigest()


def test_so_do_two_processes_whatever_their_hash_seed(tmp_path: Path, root: Path) -> None:
    first = Run(tmp_path, BUSY)
    for hash_seed in ("1", "2"):
        log = tmp_path / f"{hash_seed}.jsonl"
        command = [sys.executable, "-m", "hetsched", "simulate", str(tmp_path / "scenario.yaml"), "--events", str(log)]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=root, env=env)
        assert log.read_bytes() == first.bytes


def test_another_seed_waits_otherwise_after_a_failure(tmp_path: Path) -> None:
    assert Run(tmp_path, BUSY).of("backoff")[0]["delay"] != Run(tmp_path, BUSY, seed=8).of("backoff")[0]["delay"]


def test_sequence_numbers_grow_by_one_and_time_never_goes_back(tmp_path: Path) -> None:
    events = Run(tmp_path, BUSY).events
    numbers = [event["seq"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(events)))
    assert [event["t"] for event in events] == sorted(event["t"] for event in events)


def test_the_summary_counts_what_the_log_says(tmp_path: Path) -> None:
    run = Run(tmp_path, BUSY)
    summary = run.summary
    assert summary["submitted"] == 5
    assert summary["succeeded"] == len(run.of("succeeded")) == 5
    assert summary["makespan"] == max(event["t"] for event in run.of("succeeded"))
    assert summary["completion"]["max"] == summary["makespan"]
    assert set(summary["wait"]) == {"mean", "p50", "p95", "p99", "max"}


def test_time_weighted_means_weigh_time(tmp_path: Path) -> None:
    """Half of the devices for half of the time is a quarter; a node that is away is no capacity."""
    body = task("a", resources={"gpu": 2}, duration=10)
    run = Run(tmp_path, world({"at": 0, "submit": body}, until=20))
    assert run.summary["allocated"]["gpu"] == {"mean": 0.25, "last": 0.0}
    away = Run(tmp_path, world({"at": 0, "submit": body}, {"at": 10, "node_down": "n"}, until=20))
    assert away.summary["allocated"]["gpu"]["mean"] == 0.5


def test_energy_is_idle_power_and_the_rest_by_use(tmp_path: Path) -> None:
    nodes = [{"name": "n", "cpu": 8, "devices": [{"kind": "gpu", "watts": 100}]}]
    idle = Run(tmp_path, world(nodes=nodes, until=10)).summary["energy_joules"]
    assert idle == 200  # a fifth of 100 W for 10 s
    body = task("a", resources={"gpu": 1}, duration=5)
    assert (
        Run(tmp_path, world({"at": 0, "submit": body}, nodes=nodes, until=10)).summary["energy_joules"] == 200 + 80 * 5
    )
