"""What the control groups above this process leave it: cpu time and memory, in version 1, version 2 and hybrid trees.

A limit on any ancestor binds, so every level up to the root is read and the tightest one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from hetsched.agent.discovery.sysfs import read_int, read_text

# Version 1 prints "no limit" as the largest page-aligned int64; nothing near it is a limit (kernel, mm/page_counter.c).
_UNLIMITED_BYTES = 1 << 60


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """None = not limited. `memory_free_bytes`: what is left below the tightest limit, counting page cache as free."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None


def read_limits(root: Path, pid: str = "self") -> Limits:
    """The limits on process `pid`, seen through `root` (`/`, or a recording)."""
    cpu: list[int] = []
    memory: list[tuple[int, int]] = []
    for folder in _folders(root, pid):
        if (milli := _cpu_milli(folder)) is not None:
            cpu.append(milli)
        if (bound := _memory(folder)) is not None:
            memory.append(bound)
    return Limits(
        cpu_milli=min(cpu, default=None),
        memory_bytes=min((limit for limit, _ in memory), default=None),
        memory_free_bytes=min((max(0, limit - used) for limit, used in memory), default=None),
    )


def _folders(root: Path, pid: str) -> Iterator[Path]:
    """Every control group folder from the process's own up to the root, of each hierarchy that can limit cpu or memory."""
    mount = root / "sys/fs/cgroup"
    for line in (read_text(root / "proc" / pid / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            bases = [mount, mount / "unified"]
        else:
            bases = [mount / name for name in controllers.split(",") if name in ("cpu", "memory")]
            bases += [mount / controllers] if "," in controllers and bases else []
        inside = PurePosixPath(path.lstrip("/") or ".")
        for base in bases:
            for part in (inside, *inside.parents):
                # A process in a cgroup namespace sees "/../…": such a path leads out of what it may read, and is not limited there.
                if ".." not in part.parts:
                    yield base / part


def _cpu_milli(folder: Path) -> int | None:
    quota: int | None
    text = read_text(folder / "cpu.max")
    if text is not None:
        words = text.split()
        if not words or not words[0].isdigit():
            return None
        quota, period = int(words[0]), int(words[1]) if len(words) > 1 and words[1].isdigit() else 100_000
    else:
        quota, period = read_int(folder / "cpu.cfs_quota_us"), read_int(folder / "cpu.cfs_period_us") or 0
    if quota is None or quota <= 0 or period <= 0:
        return None
    return max(1, quota * 1000 // period)


def _memory(folder: Path) -> tuple[int, int] | None:
    """(limit, used) in bytes; page cache that the kernel would give back is not used."""
    for limit_name, used_name, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        text = read_text(folder / limit_name)
        if text is not None and text.isdigit() and int(text) < _UNLIMITED_BYTES:
            used = read_int(folder / used_name) or 0
            return int(text), max(0, used - _stat(folder / "memory.stat", cache_key))
    return None


def _stat(path: Path, key: str) -> int:
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0
