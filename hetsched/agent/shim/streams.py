"""A task's output as it is kept: of each stream only the last `log_bytes` stay.

The shim makes the older part into a hole in the file (c/place.c), so offsets keep their meaning, and a reader can tell "no longer kept"
from "not there".
"""

from __future__ import annotations

import os

NAMES = ("stdout", "stderr")


def first_kept(handle: int, offset: int) -> int:
    """The first byte from `offset` on that is kept; the file's size if there is none."""
    try:
        return os.lseek(handle, offset, os.SEEK_DATA)
    except OSError:
        return os.fstat(handle).st_size
