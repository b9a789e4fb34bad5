"""The journal: what a turn decided is kept here before anybody is told.

    store = await open_store(config.store.url, data_dir, config)
    opened = await store.open()            # fences every older daemon; snapshot and frames to replay
    await store.append(facts)              # resolves when durable; call again before it does, up to four are on their way
    await store.save_snapshot(state)       # and trims the journal

Several daemons on one store: `open` raises Led for all but one, and they follow (`follow`, `attend`) until the place is theirs.

Inside, from the face to the bytes: `base` (the promises) · `journal` (all of it together) · `appender` (the lane) · `frame`,
`frames`, `snapshot`, `identity` (formats) · `follower`, `succession` (standbys, and who leads) · `archive`, `surgery` (without a
daemon) · `backend` (the inner seam) · `redis`, `redis_link`, `redis_succession`,
`primary`, `sentinel`, `cluster`, `head`, `post` (between cells), `scripts`, `embedded`, `server`, `launcher`, `memory`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hetsched.config import Config
from hetsched.errors import ConfigError, NotFound
from hetsched.store.archive import Archive
from hetsched.store.base import (
    START,
    DirectoryBusy,
    Durability,
    FileDamaged,
    Frames,
    HeadDamaged,
    IdentityMismatch,
    JournalCorrupt,
    Leader,
    Led,
    Moved,
    NewerVersion,
    Opened,
    Position,
    Regressed,
    SnapshotLost,
    Standby,
    Store,
    StoreStats,
)
from hetsched.store.cluster import ClusterBackend
from hetsched.store.embedded import EmbeddedBackend
from hetsched.store.follower import Follower, Outrun
from hetsched.store.identity import DirectoryLock, Identity, holder_of
from hetsched.store.journal import Journal
from hetsched.store.memory import Faults, MemoryBackend, MemoryServer
from hetsched.store.post import Entry, Post
from hetsched.store.redis import RedisBackend, connection_pool
from hetsched.store.scripts import Keys
from hetsched.store.sentinel import SentinelBackend
from hetsched.store.succession import Candidate

__all__ = [
    "START",
    "DirectoryBusy",
    "Durability",
    "Entry",
    "Faults",
    "FileDamaged",
    "Follower",
    "Frames",
    "HeadDamaged",
    "IdentityMismatch",
    "JournalCorrupt",
    "Leader",
    "Led",
    "MemoryServer",
    "Moved",
    "NewerVersion",
    "Opened",
    "Outrun",
    "Position",
    "Post",
    "Regressed",
    "SnapshotLost",
    "Standby",
    "Store",
    "StoreStats",
    "memory_store",
    "open_archive",
    "open_post",
    "open_store",
    "without_secrets",
]

SERVED = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")


async def open_store(url: str, data_dir: Path, config: Config, *, name: str = "", address: str = "") -> Store:
    """The store at `url`, not yet reached: `open` does that. Holds a lock in `data_dir` until `close` (not for memory:).
    `name`, `address`: of this daemon, for others on the same server.

    Raises ConfigError: an unknown URL, no server program, a directory in use or of another store."""
    if urlsplit(url).scheme == "memory":
        return memory_store(MemoryServer(), config)
    _check_scheme(url)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = DirectoryLock(data_dir)
    try:
        identity = Identity(data_dir / "identity.json", without_secrets(url))
        backend = backend_of(url, data_dir, config)
        shared = not isinstance(backend, EmbeddedBackend)
        candidate = Candidate(holder_of(data_dir), name, address, config.store.lease) if shared else None
        renewer = partial(backend_of, url, data_dir, config)
        return Journal(
            backend, config.store, identity, lock, backend.succession, candidate, renewer if shared else None
        )
    except BaseException:
        lock.release()
        raise


def open_post(url: str, data_dir: Path, config: Config) -> Post:
    """Of `store.cell`, over the store at `url`; nothing is reached yet. Raises ConfigError."""

    def reach(cell: str) -> RedisBackend:
        store = msgspec.structs.replace(config.store, cell=cell)
        return backend_of(url, data_dir, msgspec.structs.replace(config, store=store))

    return Post(config.store.cell, reach)


def memory_store(server: MemoryServer, config: Config) -> Store:
    """A store on a memory server that outlives it; `server.faults` says what goes wrong. For tests and simulations."""
    return Journal(MemoryBackend(server), config.store)


def backend_of(url: str, data_dir: Path, config: Config) -> RedisBackend:
    """Who keeps the bytes at `url`. Raises ConfigError."""
    scheme = _check_scheme(url)
    replicated, keys = config.store.durability == "replicated", Keys(config.store.cell)
    if scheme == "redis+sentinel":
        return SentinelBackend(url, replicated, keys)
    if scheme == "redis+cluster":
        return ClusterBackend(url, replicated, keys)
    if scheme != "embedded":
        return RedisBackend(connection_pool(url), replicated, keys)
    if keys.cell:
        raise ConfigError("store.cell needs a store that cells share, and the embedded server is one daemon's alone")
    if config.store.durability == "replicated":
        raise ConfigError(
            "store.durability is replicated, but the embedded server has no replica; name a server in store.url"
        )
    return EmbeddedBackend(data_dir, config.store)


def open_archive(url: str, data_dir: Path, config: Config) -> Archive:
    """The store at `url` only to be looked at, to be entered. Of our own server the directory is locked, so no daemon may run on it.

    Raises ConfigError (DirectoryBusy among them), NotFound where the directory holds no journal."""
    if urlsplit(url).scheme != "embedded":
        return Archive(backend_of(url, data_dir, config))
    if not (data_dir / "valkey").is_dir():
        raise NotFound(
            f"there is no journal in {data_dir}: --data names the daemon's directory, --store a server of your own"
        )
    lock = DirectoryLock(data_dir)
    try:
        return Archive(backend_of(url, data_dir, config), lock)
    except BaseException:
        lock.release()
        raise


def _check_scheme(url: str) -> str:
    scheme = urlsplit(url).scheme
    if scheme != "embedded" and scheme not in SERVED:
        raise ConfigError(
            f"store.url: {url!r} is none of embedded:, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, memory:"
        )
    return scheme


def without_secrets(url: str) -> str:
    """For messages and the identity file: no user, no password, no query."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}:{'//' if place or parts.path else ''}{place}{parts.path}"
