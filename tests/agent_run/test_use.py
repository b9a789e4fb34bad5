"""What attempts use: measured cheaply, told rarely, a rise at once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hetsched.agent import measuring
from hetsched.agent.attempts import Holds, Key
from hetsched.agent.measuring import measure
from hetsched.agent.use import LOOKS, Look, Meter, Meters

T1 = Key("t", 1)
HOLDS = Holds(cpu_milli=16_000, memory_bytes=1600, devices=("gpu-0",))


def told(meter: Meter, *cpu: int, memory: int = 100, busy: int = -1) -> list[int]:
    """Millicores told by a row of looks."""
    uses = [meter.see(Look(cpu_milli, memory, busy)) for cpu_milli in cpu]
    return [use.cpu_milli for use in uses if use is not None]


def test_nothing_is_told_before_it_was_looked_at_often_enough() -> None:
    assert told(Meter(T1, HOLDS), *[2000] * (LOOKS - 1)) == []


def test_a_steady_use_is_told_once_rounded_up() -> None:
    assert told(Meter(T1, HOLDS), *[2100, 2900] * 20) == [3000]


def test_a_rise_is_told_at_once_and_a_fall_when_it_has_lasted() -> None:
    meter = Meter(T1, HOLDS)
    told(meter, *[1000] * LOOKS)
    assert told(meter, 9000) == [9000]
    assert told(meter, *[1000] * (LOOKS - 1)) == []
    assert told(meter, 1000) == [1000]


def test_what_comes_and_goes_is_not_lent() -> None:
    meter = Meter(T1, HOLDS)
    assert told(meter, *[8000, 0, 0, 0] * 20) == [8000]


def test_never_more_than_what_is_held() -> None:
    assert told(Meter(T1, HOLDS), *[40_000] * LOOKS) == [16_000]


def test_busy_devices_are_told_as_a_mean_that_has_moved_by_an_eighth() -> None:
    meter = Meter(T1, HOLDS)
    uses = [meter.see(Look(0, 0, busy)) for busy in [500] * LOOKS + [560, 500] * 5 + [900] * LOOKS]
    assert [use.utilization_milli for use in uses if use is not None] == [500, 625, 750, 875]


def test_another_daemon_is_told_all_anew_and_who_has_ended_is_forgotten() -> None:
    meters = Meters()
    for _ in range(LOOKS):
        meters.see({T1: Look(1000, 100)}, {T1: HOLDS})
    assert meters.see({T1: Look(1000, 100)}, {T1: HOLDS}) == ()
    meters.forget_told()
    (use,) = meters.see({T1: Look(1000, 100)}, {T1: HOLDS})
    assert (use.cpu_milli, use.memory_bytes) == (1000, 100)
    meters.see({}, {})
    assert meters.see({T1: Look(1000, 100)}, {T1: HOLDS}) == ()


def test_a_session_is_measured_with_all_its_processes() -> None:
    burn = "import time; data = bytearray(30 << 20); end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\ntime.sleep(30)"
    shell = subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{burn}' & wait"], start_new_session=True)
    try:
        deadline = time.monotonic() + 20
        while (total := measure({T1: shell.pid}, None)[T1]).cpu_ns < 150_000_000 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert total.cpu_ns >= 150_000_000
        assert total.memory_bytes >= 30 << 20
    finally:
        subprocess.run(["kill", "-9", "--", f"-{shell.pid}"], check=False)
        shell.wait()


def test_a_cgroup_is_believed_where_it_has_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "100-5"
    own.mkdir()
    monkeypatch.setattr(measuring, "group_of", lambda pid, cgroup: cgroup / "100-5")
    (own / "cpu.stat").write_text("usage_usec 1500\nuser_usec 1000\n")
    assert measure({T1: 0}, tmp_path)[T1].cpu_ns == 1_500_000
    (own / "memory.current").write_text("4096\n")
    assert measure({T1: 0}, tmp_path)[T1].memory_bytes == 4096
