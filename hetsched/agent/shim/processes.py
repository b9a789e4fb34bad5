"""Processes as the kernel shows them: who descends from whom, who is who, and how to end them all.

A pid alone names nobody (it is used again), so a process is named by pid and start time.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

# CONFIG_PROC_CHILDREN: a handful of reads for a tree instead of one for every process of the machine.
_KERNEL_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int | bytes) -> None:
    value = ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    if _libc.prctl(ctypes.c_int(option), value, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """Every descendant that loses its parent becomes our child: "no child left" then means that the whole tree is dead."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL to this process when `parent` dies, or has died already. Undone by a change of user: call it after that."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def set_name(name: str) -> None:
    """What `ps` and `top` show, 15 bytes of it."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the process's start; None if there is no such process. A zombie counts as gone."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Whether the process of that pid and start time still runs."""
    return start_time(pid) == started


def descendants(pid: int) -> list[int]:
    """Children, grandchildren and so on, zombies too, as far as they can be seen in one look."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = list(_children(waiting.pop()))
        found += children
        waiting += children
    return found


def with_environment(entry: bytes) -> list[int]:
    """Every process that was started with `entry` ("NAME=value") in its environment, as far as we may look."""
    found = []
    for pid in _everyone():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if entry in file.read().split(b"\0") and start_time(pid) is not None:
                    found.append(pid)
        except OSError:
            continue  # gone meanwhile, or another user's
    return found


def in_session(session: int) -> list[int]:
    """Every process of a session (as `setsid` makes one)."""
    wanted = str(session).encode()
    stats = ((pid, _stat(pid)) for pid in _everyone())
    return [pid for pid, fields in stats if fields and fields[3] == wanted and fields[0] not in (b"Z", b"X")]


def use_by_session(sessions: set[int]) -> dict[int, tuple[int, int]]:
    """Session → (clock ticks used by its processes and those they have buried, pages of memory they have now)."""
    found: dict[int, tuple[int, int]] = {}
    for pid in _everyone():
        fields = _stat(pid)
        if fields and (session := int(fields[3])) in sessions:
            ticks, pages = found.get(session, (0, 0))
            found[session] = ticks + sum(map(int, fields[11:15])), pages + max(0, int(fields[21]))
    return found


def send(pid: int, number: int) -> None:
    """A signal to one process; nothing if it is gone or not ours to touch (a set-user-id program)."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def boot_id() -> str:
    """Changes with every boot."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third (state) on; the second may hold anything, so the last bracket counts. None: no
    such process, or none of ours. Any other trouble (no more descriptors) is raised: it must never pass for a death."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _children(pid: int) -> Iterator[int]:
    if not _KERNEL_LISTS_CHILDREN:
        yield from _children_by_parent(pid)
        return
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                yield from map(int, file.read().split())
    except OSError:
        return  # the process or the thread ended meanwhile; who is missed now is found on the next look


def _children_by_parent(parent: int) -> Iterator[int]:
    wanted = str(parent).encode()
    for pid in _everyone():
        fields = _stat(pid)
        if fields and fields[1] == wanted:
            yield pid


def _everyone() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())
