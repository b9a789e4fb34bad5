"""The past as the journal tells it: the state at any frame that is kept, rebuilt from the nearest snapshot before it.

Promises: nothing is decided and nothing is written; what is rebuilt is the state that was, up to its digest, as a restart would have found it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from hetsched.config import Config
from hetsched.daemon.recover import plug_ins
from hetsched.errors import NotFound
from hetsched.scheduler import Scheduler
from hetsched.store import JournalCorrupt, Position
from hetsched.store.archive import Archive, Entry, Kept
from hetsched.store.backend import Head
from hetsched.store.base import START


class Base(NamedTuple):
    """Where a rebuilding may begin. `state` None: from nothing, before the first frame."""

    at: Position
    state: bytes | None


class History:
    """Of one archive. `bases`: oldest first."""

    def __init__(self, archive: Archive, head: Head, bases: list[Base], kept: list[Kept], config: Config) -> None:
        self.archive = archive
        self.head = head
        self.bases = bases
        self.kept = kept
        self._config = config
        self._scorers = plug_ins(config)

    def scheduler(self, base: Base) -> Scheduler:
        """As it was right after the frame of that base. Raises JournalCorrupt."""
        try:
            return Scheduler.restore(self._config, base.state, epoch=self.head.epoch, scorers=self._scorers)
        except ValueError as error:
            raise JournalCorrupt(f"snapshot at {base.at.id}", 0, str(error)) from error

    def entries(self, base: Base) -> AsyncIterator[Entry]:
        """Those after it."""
        return self.archive.entries(self.head, base.at)


async def open_history(archive: Archive, config: Config) -> History:
    """Raises NotFound where there is no journal, or none of it can be begun with."""
    head = await archive.head()
    kept = await archive.snapshots(head)
    bases = [Base(one.manifest.position, one.state) for one in reversed(kept) if one.state is not None]
    if await _reaches_back(archive, head):
        bases.insert(0, Base(START, None))
    if not bases:
        raise NotFound("no snapshot can be read, and the journal does not reach back to its beginning")
    return History(archive, head, bases, kept, config)


async def _reaches_back(archive: Archive, head: Head) -> bool:
    """Whether the first frame ever is still there, or will be the next."""
    async for entry in archive.entries(head, START):
        return entry.position is not None and entry.position.seq == 1
    return head.seq == 0
