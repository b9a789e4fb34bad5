"""A store that is only looked at: no epoch is opened, nobody is fenced, nothing is written.

Promises: every frame and every chunk that is there is judged, also behind a bad one; what is whole is told from what a start would need
of it. The same checks as at a start, so that both name the same frame. For `hetsched journal` and `hetsched replay`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

import msgspec

from hetsched.errors import NotFound
from hetsched.store import snapshot
from hetsched.store.backend import Backend, Head, Manifest
from hetsched.store.base import START, JournalCorrupt, Position
from hetsched.store.frame import decode, follow
from hetsched.store.identity import DirectoryLock
from hetsched.store.patience import patiently

PATIENCE_S = 30.0
AT_ONCE = 256


class Entry(NamedTuple):
    """One entry of the stream. `position` and `payload` None: it cannot be read. `fault`: what is wrong with it or with its place."""

    id: str
    data: bytes
    position: Position | None
    payload: bytes | None
    fault: JournalCorrupt | None


class Kept(msgspec.Struct, frozen=True):
    """A snapshot that the head names. `state` None: it cannot be read, and `fault` says why."""

    manifest: Manifest
    state: bytes | None
    fault: JournalCorrupt | None


class Archive:
    """`lock`: of the data directory, where the server is our own; held until `close`."""

    def __init__(self, backend: Backend, lock: DirectoryLock | None = None) -> None:
        self.backend = backend
        self._lock = lock

    async def __aenter__(self) -> Archive:
        try:
            await self.backend.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.backend.close()
        if self._lock is not None:
            self._lock.release()

    # ------------------------------------------------------------------ looking

    async def head(self) -> Head:
        """Raises NotFound where there is no journal, HeadDamaged where it cannot be read."""
        head: Head | None = await self.ask(self.backend.head)
        if head is None:
            raise NotFound("the store is empty: there is no journal in it")
        return head

    async def snapshots(self, head: Head) -> list[Kept]:
        """All that the head names, newest first."""
        kept = []
        for manifest in head.snapshots:
            try:
                kept.append(Kept(manifest, await snapshot.read(self.backend, manifest, self.ask), None))
            except JournalCorrupt as fault:
                kept.append(Kept(manifest, None, fault))
        return kept

    async def entries(self, head: Head, after: Position | None = None) -> AsyncIterator[Entry]:
        """Every entry after a position (None: from the first that there is), each held against the last one before it that can be read."""
        before = after
        at = after or START
        while batch := await self._read(at):
            for where, data, fault in batch:
                entry = judge(head, before, where, data) if fault is None else Entry(where, data, None, None, fault)
                before = entry.position or before
                yield entry
            epoch, _, seq = batch[-1][0].partition("-")
            at = Position(int(epoch), int(seq))

    async def _read(self, after: Position) -> list[tuple[str, bytes, JournalCorrupt | None]]:
        try:
            batch: list[tuple[str, bytes]] = await self.ask(partial(self.backend.read, after, AT_ONCE))
        except JournalCorrupt as fault:
            return [(fault.where, b"", fault)]
        return [(where, data, None) for where, data in batch]

    async def ask(self, question: Any) -> Any:
        """`snapshot.Ask`."""
        return await patiently(question, PATIENCE_S)


def judge(head: Head, before: Position | None, where: str, data: bytes) -> Entry:
    """`before`: the last one that could be read; None: this is the first that is kept."""
    try:
        position, previous_crc, payload = decode(data, where)
    except JournalCorrupt as fault:
        return Entry(where, data, None, None, fault)
    try:
        if before is None:
            before = Position(position.epoch, position.seq - 1, previous_crc) if position.seq > 1 else START
        follow(before, where, data)
        if position.seq > head.seq:
            raise JournalCorrupt(where, 0, f"lies beyond {head.position.id}, the last frame that the head names")
        if position.seq == head.seq and position.crc != head.crc:
            raise JournalCorrupt(where, 0, f"is not the last frame that the head names ({head.position.id})")
    except JournalCorrupt as fault:
        return Entry(where, data, position, payload, fault)
    return Entry(where, data, position, payload, None)
