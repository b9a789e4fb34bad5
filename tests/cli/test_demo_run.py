"""The demo itself, shortened: it must end by itself, hold its promises, and leave nothing behind."""

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


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hetsched", "demo", "--seconds", "10", *words]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def left_behind(tmp_path: Path) -> list[str]:
    """What still lies or runs there."""
    running = [p.name() for p in psutil.process_iter() if str(tmp_path) in " ".join(p.cmdline())]
    return [path.name for path in tmp_path.iterdir() if path.name.startswith("hetsched-demo")] + running


@pytest.mark.slow
def test_every_promise_is_held_and_nothing_is_left(tmp_path: Path) -> None:
    out, err = start(tmp_path, "--json").communicate(timeout=240)
    summary = json.loads(out[out.index("\n{") :])
    assert summary["ok"], (summary["broken"], err)
    assert (summary["lost"], summary["twice"]) == ([], [])
    assert min(sum(states.values()) for states in summary["qos"].values()) >= 2000
    assert left_behind(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_halfway_it_cleans_up_as_well(tmp_path: Path, number: int) -> None:
    demo = start(tmp_path, "--plain")
    assert demo.stdout is not None
    demo.stdout.readline()
    time.sleep(3)
    demo.send_signal(number)
    assert demo.wait(timeout=30) == 130
    assert left_behind(tmp_path) == []
