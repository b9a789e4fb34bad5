"""Which row of which board a task is: the ids of a run say it, so nobody has to remember them.

A task is called `RUN.G.ROW`; in an array job `RUN.G.FIRST-I`, which is row FIRST + I, of generator G.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsched.model.ids import NO_NUMBER, Ids

Rows = NDArray[np.int64]


def identity(run: str, generator: int, row: int) -> bytes:
    """Id of the task in this row; `row_of` is its inverse."""
    return b"%b.%d.%d" % (run.encode(), generator, row)


def row_of(task: str, run: str) -> tuple[int, int] | None:
    """(generator, row) of one of this run's tasks."""
    if not task.startswith(run):
        return None
    _, generator, row = task.rsplit(".", 2)
    first, _, offset = row.partition("-")
    return int(generator), int(first) + int(offset or 0)


def rows_in(ids: Ids, run: str) -> Iterator[tuple[int, NDArray[np.int64] | slice, Rows]]:
    """Those of this run's tasks, parted by generator: (generator, where they are among the ids, their rows)."""
    numbers = np.frombuffer(ids.numbers, np.uint32).astype(np.int64)
    heads = [_head(head, run) for head in ids.heads.split(b"\n")]
    if not ids.which and heads[0] is not None and NO_NUMBER not in numbers:
        generator, first = heads[0]
        yield generator, slice(None), numbers + first
        return
    which = np.frombuffer(ids.which, np.uint16) if ids.which else np.zeros(len(numbers), np.uint16)
    generators = np.array([-1 if head is None else head[0] for head in heads])[which]
    firsts = np.array([0 if head is None else head[1] for head in heads])[which]
    generators[numbers == NO_NUMBER] = -1
    for generator in set(generators.tolist()) - {-1}:
        at = np.flatnonzero(generators == generator)
        yield generator, at, numbers[at] + firsts[at]


@lru_cache(4096)
def _head(head: bytes, run: str) -> tuple[int, int] | None:
    """(generator, row of the number 0) of ids that begin like this."""
    if not head.startswith(run.encode()):
        return None
    parts = head.decode().rsplit(".", 2)
    if len(parts) != 3 or not parts[1].isdecimal():
        return None
    first, dash, rest = parts[2].partition("-")
    if dash:
        return (int(parts[1]), int(first)) if first.isdecimal() and not rest else None
    return (int(parts[1]), 0) if not first else None
