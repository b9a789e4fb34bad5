"""The machine itself: cpus that may be used, memory that may be used, and how they lie.

What counts is what a task started from here could really get: online cpus inside the affinity mask, cut by a cgroup quota; memory
without what belongs to GPUs, cut by a cgroup limit. Everything is read below a root folder, so a recording is as good as a machine.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Set
from pathlib import Path

import msgspec

from hetsched.agent.discovery.cgroup import Limits, read_limits
from hetsched.agent.discovery.numa import Numa, read_numa
from hetsched.agent.discovery.sysfs import meminfo, read_cpus, read_text


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine offers. `boot_id` changes at every boot ("" = unknown); `cpus` are kernel numbers."""

    cpu_milli: int
    cpus: frozenset[int]
    memory_bytes: int
    numa: Numa
    boot_id: str = ""
    arch: str = ""
    cpu_model: str = ""

    def numa_of(self, number: int | None) -> int | None:
        """A device's NUMA node as far as it is believable: known here, and from a firmware that does not contradict itself."""
        if number is None or not self.numa.believable:
            return None
        return number if any(node.number == number for node in self.numa.nodes) else None


def discover_host(root: Path = Path("/"), affinity: Set[int] | None = None) -> Host:
    """Reads the machine below `root`. `affinity`: cpus this process may run on; None = asks the kernel when `root` is `/`, else all."""
    if affinity is None and root == Path("/"):
        affinity = os.sched_getaffinity(0)
    online = _online(root)
    numa = read_numa(root, online)
    limits = read_limits(root)
    cpus = online if affinity is None else online & affinity
    return Host(
        cpu_milli=_cpu_milli(cpus, limits),
        cpus=cpus,
        memory_bytes=_memory_bytes(root, numa, limits),
        numa=numa,
        boot_id=read_text(root / "proc/sys/kernel/random/boot_id") or "",
        arch=platform.machine() if root == Path("/") else "",
        cpu_model=_cpu_model(root),
    )


def memory_available_bytes(root: Path = Path("/")) -> int:
    """What could be allocated now without swapping; never more than the cgroup leaves. 0 when the kernel does not tell."""
    values = meminfo(root / "proc/meminfo")
    # Kernels before 3.14 have no MemAvailable: free plus page cache is the estimate that they themselves used to recommend.
    available = values.get("MemAvailable", values.get("MemFree", 0) + values.get("Cached", 0))
    free = read_limits(root).memory_free_bytes
    return available if free is None else min(available, free)


def load_average(root: Path = Path("/")) -> float:
    """Runnable tasks, averaged over a minute; 0.0 when the kernel does not tell."""
    try:
        return float((read_text(root / "proc/loadavg") or "0").split()[0])
    except (ValueError, IndexError):
        return 0.0


def _online(root: Path) -> frozenset[int]:
    """Online cpus; from /proc/stat where sysfs has no list (old kernels, small containers); at least one."""
    listed = read_cpus(root / "sys/devices/system/cpu/online")
    if listed:
        return listed
    lines = (read_text(root / "proc/stat") or "").splitlines()
    counted = frozenset(int(w[3:]) for line in lines if (w := line.split(" ")[0]).startswith("cpu") and w[3:].isdigit())
    return counted or frozenset({0})


def _cpu_milli(cpus: frozenset[int], limits: Limits) -> int:
    whole = len(cpus) * 1000
    return whole if limits.cpu_milli is None else min(whole, limits.cpu_milli)


def _memory_bytes(root: Path, numa: Numa, limits: Limits) -> int:
    total = meminfo(root / "proc/meminfo").get("MemTotal", 0)
    total -= sum(node.memory_bytes for node in numa.nodes if node.device_memory)
    total = max(total, 0)
    return total if limits.memory_bytes is None else min(total, limits.memory_bytes)


def _cpu_model(root: Path) -> str:
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu"):
            return value.strip()
    return ""
