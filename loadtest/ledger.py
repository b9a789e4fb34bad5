"""What the simulated nodes hold, in columns: which attempts were begun, which run, how much of each device is given away.

Promises: nothing is done in Python for a task of many; an attempt that is begun although it, or a later one of its task, was begun before, is
counted, and so is every device of which more than the whole is given away. That is what makes a fleet a judge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetsched import wire
from hetsched.model.ids import Ids
from loadtest.rows import rows_in

WHOLE = 1000  # thousandths of a device
ROW_BITS = 40

Numbers = NDArray[np.int64]


class Names:
    """Every task as a number: generator and row where its id says so, else one that is given away when it is met first."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._others: dict[str, int] = {}

    def keys(self, ids: Ids) -> Numbers:
        """One each, in order; equal for equal ids."""
        keys = np.full(len(ids), -1, np.int64)
        for generator, at, rows in rows_in(ids, self._run):
            keys[at] = rows | generator + 1 << ROW_BITS
        if (others := np.flatnonzero(keys < 0)).size:
            names = list(ids.each())
            for other in others.tolist():
                keys[other] = self._others.setdefault(names[other], len(self._others))
        return keys


class Begun:
    """Of each task the highest attempt that was begun anywhere in the fleet."""

    def __init__(self) -> None:
        self._highest: dict[int, NDArray[np.uint16]] = {}

    def begin(self, keys: Numbers, attempts: NDArray[np.uint16]) -> NDArray[np.bool_]:
        """True for those that may not begin: the attempt, or a later one, was begun before, here or earlier in the list."""
        again = np.zeros(len(keys), bool)
        groups = keys >> ROW_BITS
        for group in [int(groups[0])] if (groups == groups[0]).all() else np.unique(groups).tolist():
            at = np.flatnonzero(groups == group)
            rows = keys[at] & (1 << ROW_BITS) - 1
            highest = self._room(group, int(rows.max()) + 1)
            again[at] = highest[rows] >= attempts[at]
            _, first = np.unique(rows, return_index=True)
            if first.size != rows.size:
                twice = np.ones(rows.size, bool)
                twice[first] = False
                again[at[twice]] = True
            highest[rows] = np.maximum(highest[rows], attempts[at])
        return again

    def _room(self, group: int, rows: int) -> NDArray[np.uint16]:
        column = self._highest.get(group)
        if column is None or len(column) < rows:
            grown = np.zeros(max(1024, rows + rows // 2), np.uint16)
            if column is not None:
                grown[: len(column)] = column
            column = self._highest[group] = grown
        return column


class Batch:
    """Attempts that were ordered together and take equally long. `devices`, `shares`: what they hold, of the attempt `owners[i]` each."""

    def __init__(
        self,
        ids: Ids,
        keys: Numbers,
        attempts: NDArray[np.uint16],
        devices: NDArray[np.uint8],
        shares: NDArray[np.uint16],
        owners: Numbers,
    ) -> None:
        self.ids, self.keys, self.attempts = ids, keys, attempts
        self.devices, self.shares, self.owners = devices, shares, owners

    def __len__(self) -> int:
        return len(self.keys)

    def part(self, at: Numbers) -> Batch:
        """Those of it (indexes, ascending)."""
        if len(at) == len(self):
            return self
        held = np.isin(self.owners, at)
        owners = np.searchsorted(at, self.owners[held])
        return Batch(
            part_of(self.ids, at), self.keys[at], self.attempts[at], self.devices[held], self.shares[held], owners
        )

    def without(self, key: int, attempt: int) -> tuple[Batch, Batch] | None:
        """(all others, the one) if it is among them."""
        found = np.flatnonzero((self.keys == key) & (self.attempts == attempt))
        if not found.size:
            return None
        rest = np.delete(np.arange(len(self)), found)
        return self.part(rest), self.part(found)


def part_of(ids: Ids, at: Numbers) -> Ids:
    """Those of them, at least one."""
    which = np.frombuffer(ids.which, np.uint16)[at].tobytes() if ids.which else b""
    return Ids(ids.heads, which, np.frombuffer(ids.numbers, np.uint32)[at].tobytes())


def joined(batches: Sequence[Batch]) -> tuple[Ids, bytes]:
    """Ids and attempts of all, in order."""
    if len(batches) == 1:
        return batches[0].ids, batches[0].attempts.tobytes()
    heads: dict[bytes, int] = {}
    which, numbers = [], []
    for batch in batches:
        own = [heads.setdefault(head, len(heads)) for head in batch.ids.heads.split(b"\n")]
        count = len(batch)
        named = np.frombuffer(batch.ids.which, np.uint16) if batch.ids.which else np.zeros(count, np.uint16)
        which.append(np.array(own, np.uint16)[named])
        numbers.append(batch.ids.numbers)
    column = np.concatenate(which).tobytes() if len(heads) > 1 else b""
    attempts = np.concatenate([batch.attempts for batch in batches]).tobytes()
    return Ids(b"\n".join(heads), column, b"".join(numbers)), attempts


def batch_of(starts: wire.Starts, names: Names) -> tuple[Batch, NDArray[np.uint16]]:
    """All that it orders, and which of its likes each is."""
    likes = np.frombuffer(starts.which, np.uint16)
    devices, shares, owners = _held(starts.devices, likes)
    attempts = np.frombuffer(starts.attempts, np.uint16)
    return Batch(starts.tasks, names.keys(starts.tasks), attempts, devices, shares, owners), likes


def batch_of_one(start: wire.Start, devices: Sequence[str], names: Names) -> Batch:
    """The same of an order that is about one. `devices`: the node's, by index."""
    ids = Ids.of([start.task])
    return Batch(
        ids,
        names.keys(ids),
        np.array([start.attempt], np.uint16),
        np.array([devices.index(device) for device, _ in start.devices], np.uint8),
        np.array([share for _, share in start.devices], np.uint16),
        np.zeros(len(start.devices), np.int64),
    )


def _held(packed: bytes, likes: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], NDArray[np.uint16], Numbers]:
    """(device, share, owner) of every piece. Tasks of one like hold equally many devices, so the bytes of each need not be walked."""
    data = np.frombuffer(packed, np.uint8)
    if len(data) == len(likes):  # nobody holds any
        return data[:0], np.zeros(0, np.uint16), np.zeros(0, np.int64)
    counts = np.zeros(int(likes.max()) + 1, np.int64)
    known = np.zeros(len(counts), bool)
    at = 0
    for like in likes.tolist():
        if not known[like]:
            counts[like], known[like] = data[at], True
            if known.all():
                break
        at += 1 + 3 * int(counts[like])
    each = counts[likes]
    begins = np.concatenate([[0], np.cumsum(1 + 3 * each)[:-1]])
    assert (data[begins] == each).all(), "tasks of one kind hold different numbers of devices"
    owners = np.repeat(np.arange(len(likes)), each)
    nth = np.arange(len(owners)) - np.repeat(np.cumsum(each) - each, each)
    piece = begins[owners] + 1 + 3 * nth
    shares = data[piece + 1].astype(np.uint16) | data[piece + 2].astype(np.uint16) << 8
    return data[piece], shares.astype(np.uint16), owners.astype(np.int64)


class Shares:
    """Thousandths of each device of one node that are given away."""

    def __init__(self, devices: int) -> None:
        self._used = np.zeros(max(devices, 1), np.int64)

    def take(self, batch: Batch) -> int:
        """How many devices are given away more than once over by it."""
        if not batch.devices.size:
            return 0
        np.add.at(self._used, batch.devices, batch.shares)
        return int((self._used[np.unique(batch.devices)] > WHOLE).sum())

    def give(self, batch: Batch) -> None:
        """It is over."""
        if batch.devices.size:
            np.subtract.at(self._used, batch.devices, batch.shares)
