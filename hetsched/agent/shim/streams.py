"""Keeps a task's output from filling the disk: of each stream only the last `log_bytes` stay.

The older part becomes a hole in the file, so offsets keep their meaning, the task writes on undisturbed, and a reader can tell
"no longer kept" from "not there". A file system that cannot punch holes keeps everything.
"""

from __future__ import annotations

import ctypes
import os
import stat

NAMES = ("stdout", "stderr")
_KEEP_SIZE = 1
_PUNCH_HOLE = 2
_LEEWAY_BYTES = 1 << 20  # not for every line

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def trim(directory: int, keep_bytes: int) -> None:
    """Frees what is over, in all streams of an attempt."""
    for name in NAMES:
        try:
            handle = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except OSError:
            continue  # not begun yet, or made into something else by the task's user
        try:
            _trim(handle, keep_bytes)
        finally:
            os.close(handle)


def first_kept(handle: int, offset: int) -> int:
    """The first byte from `offset` on that is kept; the file's size if there is none."""
    try:
        return os.lseek(handle, offset, os.SEEK_DATA)
    except OSError:
        return os.fstat(handle).st_size


def _trim(handle: int, keep_bytes: int) -> None:
    status = os.fstat(handle)
    over = status.st_size - keep_bytes
    if not stat.S_ISREG(status.st_mode) or over <= 0 or status.st_blocks * 512 <= keep_bytes + _LEEWAY_BYTES:
        return
    _libc.fallocate(handle, _PUNCH_HOLE | _KEEP_SIZE, 0, over)
