"""The keeper of snapshots: when the next is due, how it gets its name, which two are kept.

Promise: a snapshot is named only after all its chunks and every frame in it are kept; the journal then still reaches back to
the generation before. Of a leader that was deposed nothing is named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from hetsched.config import Store as StoreConfig
from hetsched.store import snapshot
from hetsched.store.backend import Backend, Head, Manifest
from hetsched.store.base import Position


class SnapshotKeeper:
    """One epoch's. `good`: the snapshots known to be whole, newest first."""

    def __init__(self, backend: Backend, config: StoreConfig, ask: snapshot.Ask) -> None:
        self._backend = backend
        self._config = config
        self._ask = ask
        self._epoch = 0
        self._good: tuple[Manifest, ...] = ()
        self._one_at_a_time = asyncio.Lock()
        self._saved_ns = time.monotonic_ns()
        self._journal_bytes_then = 0
        self.saved_total = 0

    async def load(self, head: Head) -> tuple[Manifest | None, bytes | None]:
        """The newest whole snapshot, if any; clears away what an unfinished one has left."""
        manifest, state = await snapshot.load(self._backend, head, self._ask)
        await self._begin(head, head.snapshots[head.snapshots.index(manifest) :] if manifest else ())
        return manifest, state

    async def trust(self, head: Head) -> None:
        """As `load`, by who has followed the journal and needs no snapshot: those that the head names were whole when it did."""
        await self._begin(head, head.snapshots)

    async def _begin(self, head: Head, good: tuple[Manifest, ...]) -> None:
        self._epoch, self._good = head.epoch, good
        left = head.unfinished
        if left is not None and left.name not in {kept.name for kept in head.snapshots}:
            await self._ask(partial(self._backend.drop_chunks, left))

    def due(self, journal_bytes: int) -> bool:
        """`journal_bytes`: all read at the start and appended since."""
        news_bytes = self.since_bytes(journal_bytes)
        if self._one_at_a_time.locked() or news_bytes == 0:
            return False
        return news_bytes >= self._config.snapshot_bytes or self.since_ns() >= self._config.snapshot_every * 1e9

    def since_bytes(self, journal_bytes: int) -> int:
        return journal_bytes - self._journal_bytes_then

    def since_ns(self) -> int:
        return time.monotonic_ns() - self._saved_ns

    async def save(
        self, state: bytes, at: Position, journal_bytes: int, frames_kept: Callable[[], Awaitable[None]]
    ) -> None:
        """`frames_kept` returns when every frame up to `at` is confirmed."""
        async with self._one_at_a_time:
            manifest = await asyncio.to_thread(snapshot.describe, self._next_name(at), at, state)
            await snapshot.write(self._backend, manifest, state, self._ask)
            await frames_kept()
            await self._name(manifest)
            self._journal_bytes_then = journal_bytes

    def _next_name(self, at: Position) -> str:
        """Epoch and count make it unique: a deposed leader still writing must not touch ours."""
        return f"{self._epoch}.{self.saved_total}@{at.id}"

    async def _name(self, manifest: Manifest) -> None:
        keep = (manifest, *self._good[:1])
        trim = keep[1].position if len(keep) > 1 else None
        await self._ask(partial(self._backend.publish, self._epoch, keep, trim))
        gone, self._good = self._good[1:], keep
        self.saved_total += 1
        self._saved_ns = time.monotonic_ns()
        for old in gone:
            await self._ask(partial(self._backend.drop_chunks, old))
