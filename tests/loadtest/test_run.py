"""A short run against a daemon of its own: the figures add up, and a stalled server cannot hide."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.cluster import eventually


def load(*options: str) -> list[str]:
    return [sys.executable, "-m", "loadtest", "--store", "memory:", "--nodes", "5", "--json", *options]


@pytest.mark.parametrize("mode", ["single", "bulk", "array", "packed"])
def test_the_figures_of_a_run_add_up(root: Path, tmp_path: Path, mode: str) -> None:
    targets = tmp_path / "targets.toml"
    targets.write_text('[targets]\n"errors.rate" = "== 0"\n"achieved.unplaced" = "== 0"\n')
    command = load("--rps", "50", "--duration", "2", "--mode", mode, "--tick", "0.1", "--targets", str(targets))
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    offered = report["offered"]["tasks"]
    assert 50 < offered < 170
    assert report["achieved"]["acknowledged"] == report["achieved"]["placed"] == offered
    assert (
        report["scheduling"]["count"]
        == sum(each["count"] for each in report["scheduling_by_class"].values())
        == offered
    )
    # the answer and the event of the placement come by two lines, the one or the other first
    assert report["lateness"]["p50_ms"] <= min(report["answer"]["p50_ms"], report["scheduling"]["p50_ms"])
    assert report["fleet"]["started"] >= offered
    assert (report["fleet"]["started_twice"], report["fleet"]["overcommitted"]) == (0, 0)
    assert [target["reached"] for target in report["targets"]] == [True, True]
    spent = report["cpu_us_per_task"]
    assert spent.pop("journal") == 0 and min(spent.values()) > 0
    assert spent.keys() == {"daemon", "fleet", "generators", "observer"}
    assert min(report["daemon"]["memory"].values()) > 10e6


def test_processes_run_on_an_agent_of_this_machine_and_their_ends_are_timed(root: Path) -> None:
    command = load("--rps", "20", "--duration", "2", "--mode", "process", "--tick", "0.5")
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["end"]["count"] == report["achieved"]["acknowledged"] == report["offered"]["tasks"] > 10
    assert report["end"]["p50_ms"] > report["scheduling"]["p50_ms"]
    assert "fleet" not in report


def test_a_server_that_stalls_is_caught(root: Path, tmp_path: Path) -> None:
    """Stopped for a second and a half with arrivals going on: the mean of all must tell, not one slow request of many."""
    targets = tmp_path / "targets.toml"
    targets.write_text('[targets]\n"scheduling.p99_ms" = "< 1000"\n')
    command = load("--rps", "40", "--duration", "3", "--mix", "cpu", "--targets", str(targets), "--connections", "2")
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE)
    daemon = eventually(lambda: _daemon_of(process.pid))
    eventually(
        lambda: _connected(process.pid) >= 3,
        why="fleet, observer and generator are at the door; arrivals begin in a second",
    )
    time.sleep(1.5)
    os.kill(daemon, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(daemon, signal.SIGCONT)
    out, _ = process.communicate(timeout=100)
    report = json.loads(out)
    assert process.returncode == 1, "the target is missed"
    assert report["scheduling"]["p99_ms"] > 1000
    assert report["scheduling"]["mean_ms"] > 150, "every arrival of the pause counts"


def test_nobody_there_is_said_so(root: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "--url", "http://127.0.0.1:9", "--token", "t", "--agent-token", "t"]
    done = subprocess.run(
        [*command, "--nodes", "0", "--duration", "1"], cwd=root, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 5
    assert done.stderr.startswith("hetsched load: ")


def _daemon_of(pid: int) -> int | None:
    for child in psutil.Process(pid).children():
        if "serve" in child.cmdline():
            return child.pid
    return None


def _connected(pid: int) -> int:
    """Worker processes that have a connection."""
    workers = [child for child in psutil.Process(pid).children() if "spawn_main" in " ".join(child.cmdline())]
    return sum(bool(worker.net_connections(kind="tcp")) for worker in workers)
