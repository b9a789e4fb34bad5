"""Python and what is built for it, the disk, the clocks, the limits of a process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hetsched import __version__
from hetsched.agent.spawner import PROGRAM
from hetsched.doctor.check import Check, fail, ok, warn

PYTHONS = ((3, 11), (3, 13))

SYNCS, SYNC_BYTES = 64, 4096
SLOW_SYNC_S = 0.05
"""Of the slowest in a hundred. Every answer to a submission waits for one, and a commit above a second is worth an alarm."""

MIN_FREE_BYTES = 512 * 1024 * 1024
LITTLE_FREE_BYTES = 2 * 1024**3
"""Below the first the daemon takes no work in; the second is what a journal and two snapshots of some size need."""

IN_MEMORY = ("tmpfs", "ramfs")
ON_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")

WATCH_S, STEP_S = 0.2, 0.01
UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
TIMEX_BYTES = 256  # more than struct timex has anywhere
NOT_BEFORE_S = 1_735_689_600  # 2025: an older present is no present

FEW_FILES, FEW_PROCESSES = 65_536, 4_096


def python() -> Check:
    """The interpreter, and whether it is one that we are built for."""
    version = sys.version_info[:2]
    found = f"hetsched {__version__} on Python {sys.version.split()[0]}"
    if PYTHONS[0] <= version <= PYTHONS[1]:
        return ok("python", found)
    return fail("python", found, "use Python 3.11 to 3.13: PYTHON=/path/to/python3.12 make setup")


def core() -> Check:
    """The compiled core."""
    try:
        from hetsched import _core
    except ImportError as error:
        return fail("core", f"it cannot be loaded: {error}", "build it: make setup, or pip install .")
    place = Path(_core.__file__ or "?").name
    if _core.CHECKED_BUILD:
        return warn("core", f"{place}, a checked build: slow", "build the release one: make setup")
    return ok("core", place)


def spawner() -> Check:
    """The program that starts tasks."""
    if os.access(PROGRAM, os.X_OK):
        return ok("spawner", PROGRAM.name)
    return fail("spawner", f"there is no program {PROGRAM}", "build it: make setup, or pip install .")


# ---------------------------------------------------------------------- the disk


def directory(data_dir: Path) -> Iterator[Check]:
    """Whether the data directory can be used, how much room there is, and how long a sync takes."""
    there = _nearest(data_dir)
    where = str(data_dir) if there == data_dir else f"{data_dir} (not made yet; looked at {there})"
    if not os.access(there, os.W_OK | os.X_OK):
        yield fail("data directory", f"{where} cannot be written", "name another with --data, or change its owner")
        return
    yield _kind(there, where)
    yield _room(there)
    yield _syncs(there)


def _nearest(path: Path) -> Path:
    path = path.absolute()
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _kind(path: Path, where: str) -> Check:
    kind = _file_system(path)
    if kind in IN_MEMORY:
        return warn(
            "data directory",
            f"{where} is in memory ({kind})",
            "name one on a disk with --data: a power loss takes this one along",
        )
    if kind in ON_NETWORK:
        return warn(
            "data directory", f"{where} is on a network ({kind})", "name one on a disk of this machine with --data"
        )
    return ok("data directory", f"{where} ({kind})")


def _file_system(path: Path) -> str:
    """Type of the mount that holds it."""
    path, best, kind = path.resolve(), "", "?"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            mount = before.split()[4]
            if path.is_relative_to(mount) and len(mount) >= len(best):
                best, kind = mount, after.split()[0]
    return kind


def _room(path: Path) -> Check:
    space = os.statvfs(path)
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    found = f"{free / 1024**3:.1f} of {total / 1024**3:.1f} GiB free"
    if free < min(MIN_FREE_BYTES, total // 10):
        return fail("disk space", found, "make room: below this the daemon takes no tasks in")
    if free < LITTLE_FREE_BYTES:
        return warn("disk space", found, "make room: a journal may need some GiB between two snapshots")
    return ok("disk space", found)


def _syncs(path: Path) -> Check:
    """How long an append would wait for the disk."""
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            times = sorted(_sync_s(file.fileno()) for _ in range(SYNCS))
    except OSError as error:
        return fail("fsync", f"{path} cannot be written: {error.strerror}", "make room, or name another with --data")
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    found = f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms"
    if p99 > SLOW_SYNC_S:
        return warn(
            "fsync", found, "a disk of its own or with a write cache that keeps its word; every 202 waits for one sync"
        )
    return ok("fsync", found)


def _sync_s(fd: int) -> float:
    os.write(fd, bytes(SYNC_BYTES))
    began_s = time.perf_counter()
    os.fdatasync(fd)
    return time.perf_counter() - began_s


# ---------------------------------------------------------------------- clocks and limits


def clocks() -> Iterator[Check]:
    """Whether the wall clock goes as the monotonic one does, and whether somebody keeps it right."""
    wall_s, steady_s = time.time(), time.monotonic()
    time.sleep(WATCH_S)
    step_s = (time.time() - wall_s) - (time.monotonic() - steady_s)
    if wall_s < NOT_BEFORE_S:
        yield fail(
            "clock",
            f"it is {time.strftime('%Y-%m-%d %H:%M', time.gmtime(wall_s))} UTC here",
            "set it: timedatectl set-ntp true",
        )
    elif abs(step_s) > STEP_S:
        fix = "let it be slewed, not stepped (chrony: makestep only at the start); leases do not depend on it, deadlines do"
        yield warn("clock", f"it stepped by {step_s * 1e3:+.1f} ms within {WATCH_S:g} s", fix)
    else:
        yield ok("clock", f"wall and monotonic agree within {abs(step_s) * 1e3:.2f} ms over {WATCH_S:g} s")
    yield _synchronised()


def _synchronised() -> Check:
    libc = ctypes.CDLL(None, use_errno=True)
    state = libc.adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))  # modes 0: only asks
    if state < 0:
        return warn("time synchronisation", "the kernel does not tell", "see `timedatectl` or `chronyc tracking`")
    if state == UNSYNCHRONISED:
        return warn(
            "time synchronisation", "nobody keeps this clock right", "timedatectl set-ntp true, or run chrony or ntpd"
        )
    return ok("time synchronisation", "the kernel says that the clock is kept right")


def limits() -> Iterator[Check]:
    """Open files and processes."""
    for name, which, few, setting in (
        ("open files", resource.RLIMIT_NOFILE, FEW_FILES, "LimitNOFILE"),
        ("processes", resource.RLIMIT_NPROC, FEW_PROCESSES, "LimitNPROC"),
    ):
        _, hard = resource.getrlimit(which)
        most = "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard}"
        if hard != resource.RLIM_INFINITY and hard < few:
            yield warn(name, most, f"{setting}={few} in the unit, or a hard limit of {few} in limits.conf")
        else:
            yield ok(name, most)
