"""kill -9 of daemon, journal server and agent at random moments, freezes, cut wires, a disk that fails, while thousands of tasks run.

The promises: every acknowledged task ends exactly once; no two attempts of one task are alive at the same time; the device ledger is the sum
of the live attempts at every look. A short storm is part of every test run; `make faults` runs the long ones, by the hundred (`matrix.py`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.faults.storm import Size
from tests.faults.trial import of, trial
from tests.faults.weather import FAULTS

THREE = ("kill_daemon", "kill_server", "kill_agent")
SHORT = Size(processes=60, leases=240, faults=dict.fromkeys(THREE, 2), spread_s=12)
LONG = Size(processes=500, leases=4500, faults=dict.fromkeys(THREE, 20), spread_s=240)
APART = ("fill_memory",)
"""They need a store of their own, so they are not among all together."""
OTHERS = tuple(fault for fault in FAULTS if fault not in THREE)
TOGETHER = tuple(fault for fault in FAULTS if fault not in APART)


def weather(data_dir: Path, size: Size) -> None:
    """A storm of that size, and nothing to complain of."""
    verdict = trial(data_dir, size)
    print(verdict)
    assert verdict.clean, str(verdict)


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
    """`HETSCHED_STRIKES` of each (4)."""
    strikes = int(os.environ.get("HETSCHED_STRIKES", "4"))
    weather(data_dir, of({fault: strikes}, (10, 20), pause_s=3.0))


@needs_flock
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_all_faults_together_lose_nothing_and_run_nothing_twice(data_dir: Path) -> None:
    weather(data_dir, Size(processes=200, leases=1000, faults=dict.fromkeys(TOGETHER, 3), spread_s=200))


@needs_flock
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_a_long_storm_loses_nothing_and_runs_nothing_twice(data_dir: Path) -> None:
    weather(data_dir, LONG)
