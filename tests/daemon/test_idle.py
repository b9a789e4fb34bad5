"""An idle daemon sleeps: nothing polls. Bounded here; the figure for the notes is measured over a minute."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess

WATCHED_S = 3.0


def cpu_s(pid: int) -> float:
    """User and system time of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_an_idle_daemon_costs_less_than_a_hundredth_of_a_core(data_dir: Path) -> None:
    import asyncio

    with DaemonProcess(data_dir, store="embedded:") as daemon:
        async with TestAgent(daemon, {"name": "n1", "cpu": 8, "memory": "1Gi"}):
            daemon.submit([{"resources": {"gpu": 1}}] * 100)
            await asyncio.sleep(1.0)
            before, began = cpu_s(daemon.pid), time.monotonic()
            await asyncio.sleep(WATCHED_S)
            share = (cpu_s(daemon.pid) - before) / (time.monotonic() - began)
    assert share < 0.01, f"{share:.2%} of a core"
