"""The limit of every queue: what filling and draining a heap in C costs an entry, on this machine and now. Needs a C compiler, as the core
does."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path


def built(name: str, *flags: str) -> ctypes.CDLL:
    """This C file beside us, compiled for this machine."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "limit.so"
        source = Path(__file__).with_name(name)
        subprocess.run(["cc", "-O3", *flags, "-shared", "-fPIC", "-o", library, source], check=True)
        return ctypes.CDLL(str(library))


class Heap:
    """`micros`: processor time an entry, filled and drained with `count` of them."""

    def __init__(self, count: int) -> None:
        self._library = built("heap.c")
        self._count = count
        self._room = ctypes.create_string_buffer(16 * count)

    def micros(self) -> float:
        """One round."""
        began_s = time.thread_time()
        self._library.fill_and_drain(self._room, ctypes.c_size_t(self._count))
        return (time.thread_time() - began_s) * 1e6 / self._count
