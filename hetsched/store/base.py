"""The seam between the daemon and its journal: what a store promises, and the words it promises it in.

A store keeps one journal: frames in order, each the facts of one turn, and now and then a snapshot of everything before.
Promises: a frame is confirmed only when it is kept as durably as `stats().durability` says; confirmed frames come back whole
and in order, each once, or `open` refuses by name; only the highest epoch appends. The daemon knows only what is in this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from hetsched.errors import ConfigError, StoreLost

if TYPE_CHECKING:
    from hetsched.store.follower import Follower


class Position(NamedTuple):
    """A place in the journal: the frame `epoch`-`seq` and its checksum. Seq counts on through all epochs; 0 = before the first."""

    epoch: int
    seq: int
    crc: int = 0

    @property
    def id(self) -> str:
        """The stream id, `<epoch>-<seq>`."""
        return f"{self.epoch}-{self.seq}"


START = Position(0, 0, 0)


class Durability(StrEnum):
    """fsync: on disk when confirmed. replicated: a replica has it too. relaxed: up to 2 s may be lost with the power.
    memory: gone with the process. unknown: the server does not let us ask."""

    FSYNC = "fsync"
    REPLICATED = "replicated"
    RELAXED = "relaxed"
    MEMORY = "memory"
    UNKNOWN = "unknown"


class Frames(Protocol):
    """Payloads after a snapshot, in order, each proven to follow the one before. `at`: the frame that was given last, so after an error the
    end of what is whole. May be read again, from the beginning."""

    at: Position

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Opened(NamedTuple):
    """What there was when the epoch opened. `frames`: those after the snapshot, to be read to the end."""

    epoch: int
    snapshot: bytes | None
    frames: Frames
    cluster_id: str
    position: Position


class Leader(NamedTuple):
    """Who leads a shared store, or may do so next. `holder`: its data directory. `renewals` of its lease since its epoch opened; None = an
    older hetsched leads, which does not count them."""

    holder: str
    name: str
    url: str
    renewals: int | None = None


class Standby(NamedTuple):
    """A daemon that follows the journal. `seq`: how far it said it was, within the last lease."""

    holder: str
    name: str
    url: str
    seq: int


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a store. `admit`: whether new work should be taken in (`reason` says why not); completions always may be."""

    kind: str
    durability: Durability
    admit: bool
    reason: str
    connected: bool
    epoch: int
    assigned_seq: int
    confirmed_seq: int
    in_flight: int
    appends_total: int
    appended_bytes_total: int
    resent_total: int
    reconnects_total: int
    server_restarts_total: int
    last_append_ns: int
    since_snapshot_bytes: int
    since_snapshot_ns: int
    snapshots_total: int
    memory_used_bytes: int
    memory_limit_bytes: int


class Store(Protocol):
    """The journal as the daemon sees it. One owner, one event loop."""

    failed: asyncio.Future[StoreLost]
    """Resolves (with the error as its result) once the store is lost for good: deposed, or the server lost our frames."""

    async def open(self, followed: Follower | None = None) -> Opened:
        """Open a new epoch, which fences every older one, and say what there was before it, or after what was `followed`.

        Raises Led (another daemon leads: follow it, then try again), ConfigError (identity or server unfit, fix named), JournalCorrupt,
        StoreLost (cannot be reached)."""
        ...

    async def follow(self) -> Follower:
        """The journal as it grows, without an epoch. Raises ConfigError and StoreLost as `open` does."""
        ...

    async def attend(self, at: Position) -> Leader | None:
        """Say that a standby is here and how far it is; who leads. None: try `open` now, the place is free or ours."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other daemons may lead this store."""
        ...

    @property
    def leads(self) -> bool:
        """Whether nobody else can have begun to lead, by our own clock. False: tell nobody anything until it is True again."""
        ...

    @property
    def takeover_s(self) -> float:
        """So long after our epoch opened a leader before us may have gone on hearing agents: its lease."""
        ...

    def standbys(self) -> tuple[Standby, ...]:
        """Who follows, as of a second ago."""
        ...

    async def hand_over(self, to: Standby | None) -> None:
        """When all that was appended is confirmed: let this standby lead, None = whoever comes first. Nothing may be appended any more."""
        ...

    def append(self, facts: bytes) -> asyncio.Future[None]:
        """Append one frame (1 byte to 64 MB); the future resolves when it is durable, in order of the calls.

        It waits through cuts, restarts and a full server; it raises Deposed or StoreLost only when no retry can help."""
        ...

    @property
    def position(self) -> Position:
        """Position of the frame appended last, confirmed or not: what a state copied now contains."""
        ...

    @property
    def snapshot_due(self) -> bool:
        """Whether enough journal (`store.snapshot_bytes`, `store.snapshot_every`) lies behind the last snapshot."""
        ...

    async def save_snapshot(self, state: bytes, at: Position | None = None) -> None:
        """Keep `state`, which contains every frame up to `at` (default: up to now), and trim the journal to the one before."""
        ...

    @property
    def durability(self) -> Durability:
        """`stats().durability`, for those who ask once a turn."""
        ...

    def refusal(self) -> str:
        """Why new work should not be admitted; "" where it should."""
        ...

    def stats(self) -> StoreStats:
        """The present moment, without asking the server."""
        ...

    async def close(self) -> None:
        """Wait a little for what is in flight, note the last confirmed position, stop. Idempotent."""
        ...


class Moved(StoreLost):
    """The server we lead on is primary no more; another one is, or will be. Beginning again at the store finds it."""


class Regressed(StoreLost):
    """The store lacks what it had confirmed. Beginning again at it, its identity is refused."""


class JournalCorrupt(StoreLost):
    """A frame that is not what was written. Nothing is skipped: the daemon decides nothing on it.

    `where`: its stream id. `cut`: from which frame on the journal has to be cut to be whole again."""

    def __init__(self, where: str, offset: int, reason: str, *, cut: str = "") -> None:
        super().__init__(f"journal {where}, byte {offset}: {reason}")
        self.where = where
        self.offset = offset
        self.reason = reason
        self.cut = cut or where


class NewerVersion(JournalCorrupt):
    """Whole, but written by a later program: nothing to be cut."""


class SnapshotLost(JournalCorrupt):
    """No snapshot can be read, and the journal does not reach back to before them. `where`: the snapshot and its chunk."""


class HeadDamaged(JournalCorrupt):
    """The store's one small record cannot be read, or is gone while there are frames. `where`: its key."""


class FileDamaged(JournalCorrupt):
    """The journal server does not load its own files. `where`: the file; `cut`: `byte:N`, behind its last whole transaction, "" = nothing is
    won by cutting."""

    def __init__(self, where: str, offset: int, reason: str, *, cut: str) -> None:
        super().__init__(where, offset, reason)
        self.cut = cut


class IdentityMismatch(ConfigError):
    """The store is not the one this data directory belongs to, or is older than what it has confirmed."""


class DirectoryBusy(ConfigError):
    """Another daemon holds the data directory."""


class Led(Exception):
    """Another daemon leads the store; no epoch was opened."""

    def __init__(self, leader: Leader) -> None:
        super().__init__(leader.url)
        self.leader = leader


class Unreachable(Exception):
    """Internal: no answer (cut, timeout, loading). What was asked may or may not have happened; ask again."""
