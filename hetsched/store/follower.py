"""The journal as a standby reads it: the newest whole snapshot, then frames as they come, each proven to follow the one before.

Promise: nothing is written and nobody fenced. What it gave out is what a restart would have read; a journal trimmed past its place is said
by `Outrun`, and reading begins anew with a snapshot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hetsched.store import snapshot
from hetsched.store.backend import Backend
from hetsched.store.base import START, JournalCorrupt, Position
from hetsched.store.frame import follow

FRAMES_AT_ONCE = 64


class Outrun(Exception):
    """The frames after our place are gone: a snapshot took theirs."""


class Follower:
    """`at`: the last frame given out; `read_bytes`: of frames since the snapshot. `ask`: `patience.patiently`, bound to a life."""

    def __init__(self, backend: Backend, ask: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> None:
        self._backend = backend
        self._ask = ask
        self.at = START
        self.read_bytes = 0
        self.cluster = ""

    async def begin(self) -> bytes | None:
        """The newest whole snapshot, None = the journal reaches back to its beginning. Raises JournalCorrupt."""
        head = await self._ask(self._backend.head)
        if head is None:
            raise JournalCorrupt("head", 0, "is gone: the store became empty")
        self.cluster = head.cluster
        manifest, state = await snapshot.load(self._backend, head, self._ask)
        self.at = manifest.position if manifest else START
        self.read_bytes = 0
        return state

    async def more(self) -> list[tuple[Position, bytes]]:
        """Payloads that came since, at most `FRAMES_AT_ONCE`; [] = none for now. Raises Outrun, JournalCorrupt."""
        batch = await self._ask(partial(self._backend.read, self.at, FRAMES_AT_ONCE))
        found: list[tuple[Position, bytes]] = []
        for where, data in batch:
            try:
                self.at, payload = follow(self.at, where, data)
            except JournalCorrupt:
                if found:  # what was whole before it is given out; the next call meets it again
                    break
                if await self._is_outrun():
                    raise Outrun from None
                raise
            self.read_bytes += len(data)
            found.append((self.at, payload))
        return found

    async def _is_outrun(self) -> bool:
        head = await self._ask(self._backend.head)
        return head is not None and bool(head.snapshots) and head.snapshots[-1].seq > self.at.seq
