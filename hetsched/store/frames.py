"""Frames as they are read: from a snapshot (or from nothing) up to the frame that the head names.

Promise: what is given is an exact prefix of what was written, and its end is either the journal's end or an error that names the frame,
the byte and the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from hetsched.store.backend import Backend, Head
from hetsched.store.base import JournalCorrupt, Position
from hetsched.store.frame import follow
from hetsched.store.snapshot import Ask

READ_BYTES = 8 * 1024 * 1024  # aimed at in one read
FIRST_COUNT, MOST_COUNT = 16, 4096


class FramesAfter:
    """`base.Frames` after `base`. `head`: as it was when our epoch opened, so every frame is of an older one. `bytes`: read so far."""

    def __init__(self, backend: Backend, base: Position, head: Head, ask: Ask) -> None:
        self._backend = backend
        self._base = base
        self._head = head
        self._ask = ask
        self.at = base
        self.bytes = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._read()

    async def _read(self) -> AsyncIterator[bytes]:
        head, count = self._head, FIRST_COUNT
        self.at, self.bytes = self._base, 0
        while self.at.seq < head.seq:
            batch = await self._ask(partial(self._backend.read, self.at, count))
            if not batch:
                after = f"{self.at.epoch}-{self.at.seq + 1}"
                raise JournalCorrupt(head.position.id, 0, f"is missing: the journal ends at {self.at.id}", cut=after)
            for where, data in batch[: head.seq - self.at.seq]:
                position, payload = follow(self.at, where, data)
                if position.epoch >= head.epoch:
                    raise JournalCorrupt(
                        where, 8, f"is of epoch {position.epoch}; the head has only opened {head.epoch - 1}"
                    )
                self.at = position
                self.bytes += len(data)
                yield payload
            count = max(1, min(MOST_COUNT, READ_BYTES * len(batch) // (sum(len(data) for _, data in batch) + 1)))
        await self._check_end()

    async def _check_end(self) -> None:
        """The head names the last frame there is, and that is this one."""
        head, last = self._head, self.at
        if (last.seq, last.crc) != (head.seq, head.crc):
            after = f"{last.epoch}-{last.seq + 1}"
            raise JournalCorrupt(
                last.id, 0, f"is not the last frame that the head names ({head.position.id})", cut=after
            )
        beyond = await self._ask(partial(self._backend.read, last, MOST_COUNT))
        older = [(where, data) for where, data in beyond if int(where.partition("-")[0]) < head.epoch]
        if older:
            reason = f"lies beyond {head.position.id}, the last frame that the head names"
            raise JournalCorrupt(older[0][0], 0, reason, cut=_end_of_chain(last, older))


def _end_of_chain(last: Position, entries: list[tuple[str, bytes]]) -> str:
    """Id of the first of these that does not follow; one more than the last where all do."""
    for where, data in entries:
        try:
            last, _ = follow(last, where, data)
        except JournalCorrupt:
            return where
    return f"{last.epoch}-{last.seq + 1}"
