"""Looks at what running attempts use, every `agent.measure_every` seconds, and has told what changed enough (use.py).

cpu time and memory come from its shim's cgroup where it has one with that controller, else from /proc: all processes of its session, one
pass for all attempts. Nothing runs: nothing is looked at. Looking is done in a worker thread, for /proc may be long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from hetsched import wire
from hetsched.agent.attempts import Attempt, Attempts, Key, Phase
from hetsched.agent.discovery.host import load_average, memory_available_bytes
from hetsched.agent.shim import processes
from hetsched.agent.shim.lease import now_ns
from hetsched.agent.use import Look, Meters

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Total(msgspec.Struct, frozen=True):
    """cpu time since the attempt began, memory now."""

    cpu_ns: int
    memory_bytes: int


class Measuring:
    """`cgroup`: below which attempts have theirs. `readings`: the latest look at the devices."""

    def __init__(
        self,
        attempts: Attempts,
        cgroup: Path | None,
        readings: Callable[[], tuple[wire.DeviceReading, ...]],
        every_s: float,
    ) -> None:
        self._attempts = attempts
        self._cgroup = cgroup
        self._readings = readings
        self._every_s = every_s
        self._meters = Meters()
        self._before: dict[Key, tuple[int, int]] = {}  # cpu time at the last look, and when that was

    async def run(self, push: Callable[[wire.Report], None]) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(self._every_s)
            running = {
                row.key: row for row in self._attempts.rows() if row.phase is Phase.running and not row.held and row.pid
            }
            if not running:
                continue
            totals = await asyncio.to_thread(measure, {key: row.pid for key, row in running.items()}, self._cgroup)
            looks = self._looks(running, totals, now_ns())
            uses = self._meters.see(looks, {key: row.holds for key, row in running.items()})
            if uses:
                push(wire.Report((), True, load_average(), memory_available_bytes(), uses))

    def rejoined(self) -> None:
        """A daemon that knows nothing of what was told before."""
        self._meters.forget_told()

    def _looks(self, running: Mapping[Key, Attempt], totals: Mapping[Key, Total], at_ns: int) -> dict[Key, Look]:
        """Of those that were looked at before: cpu is what was used since."""
        before, self._before = self._before, {key: (total.cpu_ns, at_ns) for key, total in totals.items()}
        looks = {}
        for key, (cpu_ns, then_ns) in before.items():
            if key in totals and at_ns > then_ns:
                cpu_milli = max(0, totals[key].cpu_ns - cpu_ns) * 1000 // (at_ns - then_ns)
                looks[key] = Look(cpu_milli, totals[key].memory_bytes, self._utilization(running[key].holds.devices))
        return looks

    def _utilization(self, devices: tuple[str, ...]) -> int:
        """Mean over the attempt's devices in thousandths; of a shared one it is the whole device's."""
        busy = [
            reading.utilization_percent
            for reading in self._readings()
            if reading.device in devices and reading.utilization_percent is not None
        ]
        return round(10 * sum(busy) / len(busy)) if busy else -1


def measure(pids: Mapping[Key, int], cgroup: Path | None) -> dict[Key, Total]:
    """What each attempt has used and uses. `pids`: of its main process, which leads its session. Blocks."""
    by_session = processes.use_by_session(set(pids.values()))
    totals = {}
    for key, pid in pids.items():
        ticks, pages = by_session.get(pid, (0, 0))
        cpu_ns, memory_bytes = ticks * _TICK_NS, pages * _PAGE
        own = None if cgroup is None else group_of(pid, cgroup)
        if own is not None:
            cpu_ns = _field(own / "cpu.stat", "usage_usec", 1000, cpu_ns)
            memory_bytes = _field(own / "memory.current", "", 1, memory_bytes)
        totals[key] = Total(cpu_ns, memory_bytes)
    return totals


def group_of(pid: int, cgroup: Path) -> Path | None:
    """The cgroup below `cgroup` that a process lives in, or below; None if it is not there (any more)."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        before, found, below = line.partition(f"/{cgroup.name}/")
        if before.startswith("0::") and found:
            return cgroup / below.partition("/")[0]
    return None


def _field(path: Path, name: str, factor: int, otherwise: int) -> int:
    """The number behind `name` ("" = the only one) in a file of a cgroup."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return otherwise
    for line in words:
        if not name or line[0] == name:
            return int(line[-1]) * factor
    return otherwise
