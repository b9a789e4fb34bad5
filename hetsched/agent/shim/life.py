"""What a shim writes into an attempt's `life`, read by an agent that was not told: a line each, whole or not there.

NAME PID START          the attempt's directory; its shim, by pid and start time
started PID AT          its first process, which leads its session; seconds of the wall clock
ended SUCCEEDED CODE SILENT AT REASON     1 or 0; -1 = no code; 1 = it left neither output nor files
"""

from __future__ import annotations

import os

import msgspec

_BYTES = 4096


class End(msgspec.Struct, frozen=True):
    """How it ended; `silent`: nothing that anybody could read is left of it."""

    succeeded: bool
    exit_code: int | None
    reason: str
    silent: bool


class Life(msgspec.Struct, frozen=True):
    """`shim`: (pid, start time); `task_pid` 0: not known to have begun."""

    shim: tuple[int, int]
    task_pid: int = 0
    started_at: float = 0.0
    end: End | None = None


def read_life(directory: int, name: str) -> Life:
    """From the open directory called `name`. Raises OSError, ValueError where it is spoilt."""
    handle = os.open("life", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        text = os.pread(handle, _BYTES, 0)
    finally:
        os.close(handle)
    first, *lines = text.decode().split("\n")[:-1]  # what has no end is not whole
    claimed, pid, start = first.split(" ")
    if claimed != name:
        raise ValueError(f"its life is that of {claimed}")
    life = Life((int(pid), int(start)))
    for line in lines:
        life = _with(life, line)
    return life


def _with(life: Life, line: str) -> Life:
    match line.split(" ", 5):
        case ["started", pid, at]:
            return msgspec.structs.replace(life, task_pid=int(pid), started_at=float(at))
        case ["ended", succeeded, code, silent, _, reason]:
            end = End(succeeded == "1", None if code == "-1" else int(code), reason, silent == "1")
            return msgspec.structs.replace(life, end=end)
    raise ValueError(f"its life has a line {line!r}")
