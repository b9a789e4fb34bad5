"""When the state is copied into the store, so that a start reads little: as the store says it is due, and at SIGTERM.

Promise: the copy is taken between two turns, so it holds exactly the frames appended so far; encoding is the scheduler's, writing and
trimming the store's, and turns go on meanwhile. One at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from hetsched.errors import StoreLost

log = logging.getLogger("hetsched.snapshots")


class SnapshotStore(Protocol):
    """What is needed of the store."""

    @property
    def snapshot_due(self) -> bool: ...

    @property
    def position(self) -> Any: ...

    def save_snapshot(self, state: bytes, at: Any = None) -> Awaitable[None]: ...


class Snapshots:
    """`state()` copies the scheduler."""

    def __init__(self, store: SnapshotStore, state: Callable[[], bytes]) -> None:
        self._store = store
        self._state = state
        self._saving: asyncio.Task[None] | None = None

    def after_step(self) -> None:
        """Called between turns, right after the turn's frame was handed to the store."""
        if self._saving is None and self._store.snapshot_due:
            self._saving = self._save()

    async def last(self) -> None:
        """One more at the end, after the last turn; a store that is lost meanwhile only makes the next start read more."""
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        await self._save()

    def _save(self) -> asyncio.Task[None]:
        saving = asyncio.create_task(self._write(self._state(), self._store.position), name="snapshot")
        saving.add_done_callback(self._saved)
        return saving

    async def _write(self, state: bytes, at: Any) -> None:
        try:
            await self._store.save_snapshot(state, at)
        except StoreLost as error:
            log.warning("snapshot not kept: %s", error)
        else:
            log.info("snapshot of %d bytes kept", len(state))

    def _saved(self, task: asyncio.Task[None]) -> None:
        self._saving = None
