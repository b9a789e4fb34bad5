"""The board: what happened to each task and when, in columns that several processes share as memory-mapped files.

One row a task, in order of arrival; one set of columns a generator process. Each column has one writer: the generator writes
`intended`, `kind`, `sent`, `acknowledged` and `answered`, the observer `placed` and `ended`. Times are CLOCK_MONOTONIC nanoseconds, which
all processes of a machine share; 0 = it has not happened. Files and not named shared memory: they vanish with their directory.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEMORY = "/dev/shm"

COLUMNS: dict[str, Any] = {
    "intended": np.int64,  # the arrival, as drawn
    "kind": np.uint8,  # index of the class in the mix
    "sent": np.int64,  # the request left the generator
    "acknowledged": np.int64,  # its 202 was read
    "answered": np.int64,  # the 202 already carried the placement
    "placed": np.int64,  # the `placed` event was read
    "ended": np.int64,  # the event of its end was read, in mode `process`
}


def room_for_boards(rows: int) -> str | None:
    """A directory in memory with room for so many rows twice over, so that the boards do not keep the disk busy that the journal waits for;
    None: there is none."""
    needed = 2 * rows * sum(np.dtype(kind).itemsize for kind in COLUMNS.values())
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free > needed else None
    except OSError:
        return None


def capacity_for(*, rate_per_s: float, duration_s: float) -> int:
    """Rows that a Poisson process fits into but for one run in a billion: the mean and six deviations."""
    mean = rate_per_s * duration_s
    return int(mean + 6 * math.sqrt(mean) + 64)


class Board:
    """The columns of one generator process."""

    def __init__(self, directory: Path, generator: int, capacity: int) -> None:
        """Opens the columns, making those that do not exist yet."""
        self.capacity = capacity
        self.intended: NDArray[np.int64] = _column(directory, generator, "intended", capacity)
        self.kind: NDArray[np.uint8] = _column(directory, generator, "kind", capacity)
        self.sent: NDArray[np.int64] = _column(directory, generator, "sent", capacity)
        self.acknowledged: NDArray[np.int64] = _column(directory, generator, "acknowledged", capacity)
        self.answered: NDArray[np.int64] = _column(directory, generator, "answered", capacity)
        self.placed: NDArray[np.int64] = _column(directory, generator, "placed", capacity)
        self.ended: NDArray[np.int64] = _column(directory, generator, "ended", capacity)

    def placement_known_ns(self) -> NDArray[np.int64]:
        """When the placement became known outside: by the answer or by the event, whichever came first; 0 = not at all."""
        known: NDArray[np.int64] = np.array(self.placed)
        first = np.flatnonzero(self.answered)
        first = first[(known[first] == 0) | (self.answered[first] < known[first])]
        known[first] = self.answered[first]
        return known

    def is_settled(self, *, ends: bool) -> bool:
        """Of every task that was acknowledged it is known where it was placed, or, if that is asked, that it has ended."""
        waiting = np.flatnonzero(self.acknowledged)
        return bool((self.ended[waiting] if ends else self.placed[waiting] | self.answered[waiting]).all())


def _column(directory: Path, generator: int, name: str, capacity: int) -> NDArray[Any]:
    path = directory / f"{generator}.{name}"
    mode = "r+" if path.exists() else "w+"
    return np.memmap(path, dtype=COLUMNS[name], mode=mode, shape=(capacity,))  # type: ignore[call-overload, no-any-return]
