"""The whole part of a journal whose file the server does not load: a copy of it, cut behind its last whole transaction, with a server
of its own.

Promises: the file itself is only read; the copy lies in `DATA/prefix`, is made anew every time and is gone at `close`; its epoch is beyond all
that this directory knows of, so agents obey whoever shows it, and the start after mending (`surgery.settle_file`) opens a higher one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from functools import partial
from pathlib import Path

from hetsched.config import Config
from hetsched.errors import StoreLost
from hetsched.store.aof import behind, find_damage
from hetsched.store.archive import Archive
from hetsched.store.embedded import EmbeddedBackend
from hetsched.store.identity import DirectoryLock, Identity
from hetsched.store.journal import Journal

DIRECTORY = "prefix"
NOT_COPIED = ("*.sock", "*.log", "*.log.1", "*.lock")


async def open_prefix(data_dir: Path, config: Config) -> Journal:
    """A store over the copy, not yet opened. Raises StoreLost where it cannot be made."""
    lock = DirectoryLock(data_dir)
    place = data_dir / DIRECTORY
    try:
        await asyncio.to_thread(_copy, data_dir, place)
        await _open_epochs(place, config, Identity(data_dir / "identity.json", "").confirmed.epoch)
        return _Prefix(place, config, lock)
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        lock.release()
        if isinstance(error, OSError):
            raise StoreLost(f"cannot copy the whole part of the journal to {place}: {error.strerror}") from error
        raise


class _Prefix(Journal):
    """Its directory goes with it."""

    def __init__(self, place: Path, config: Config, lock: DirectoryLock) -> None:
        super().__init__(EmbeddedBackend(place, config.store), config.store, lock=lock)
        self._place = place

    async def close(self) -> None:
        await super().close()
        shutil.rmtree(self._place, ignore_errors=True)


def _copy(data_dir: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    shutil.copytree(data_dir / "valkey", place / "valkey", ignore=shutil.ignore_patterns(*NOT_COPIED))
    damage = find_damage(place / "valkey")
    if damage is not None:
        if damage.whole_until is None:
            raise StoreLost(f"{damage.path}: {damage.reason}")
        os.truncate(damage.path, damage.whole_until)
        for path in behind(damage, place / "valkey"):
            os.truncate(path, 0)


async def _open_epochs(place: Path, config: Config, known: int) -> None:
    """The next one to be opened is beyond `known`."""
    async with Archive(EmbeddedBackend(place, config.store)) as archive:
        head = await archive.head()
        while head.epoch < known:
            head = await archive.ask(partial(archive.backend.open_epoch, head.cluster, False))
