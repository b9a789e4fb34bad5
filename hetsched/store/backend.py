"""The inner seam: what the journal needs from whoever keeps the bytes (a Redis or Valkey server, or memory in tests).

A backend keeps a *head* (who leads, which frame is last, which snapshots are whole), the frames by id and the chunks of
snapshots. It decides nothing but the fence: `Link` answers each frame with a verdict that compares (epoch, seq) with the head.
Every call may raise Unreachable, and everything but `open_epoch` may then simply be asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from hetsched.store.base import Durability, Position
from hetsched.store.frame import Frame


class Manifest(msgspec.Struct, frozen=True):
    """Where a snapshot lies. The state contains every frame up to (epoch, seq); `crc` is that frame's; sizes in bytes."""

    name: str
    epoch: int
    seq: int
    crc: int
    chunks: int
    state_bytes: int
    state_crc: int

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.seq, self.crc)


class Head(NamedTuple):
    """The store's one small record. `snapshots`: newest first, at most two. `unfinished`: chunks of one never published."""

    cluster: str
    epoch: int
    seq: int
    crc: int
    snapshots: tuple[Manifest, ...] = ()
    unfinished: Manifest | None = None

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.seq, self.crc)


class Answer(StrEnum):
    """stored, duplicate: durable. refused: certainly not written (full), ask again later. The rest end the leadership:
    deposed by a higher epoch; behind: the store lacks frames it confirmed; mismatch: another frame has this id; empty: no head."""

    STORED = "STORED"
    DUPLICATE = "DUPLICATE"
    REFUSED = "REFUSED"
    DEPOSED = "DEPOSED"
    BEHIND = "BEHIND"
    MISMATCH = "MISMATCH"
    EMPTY = "EMPTY"
    BROKEN = "BROKEN"


class Verdict(NamedTuple):
    """`detail`: the server's words, or the head's id."""

    answer: Answer
    detail: str = ""


class Health(NamedTuple):
    """`refusal`: why no new work should be admitted, empty = fine. A limit of 0 bytes = none set."""

    durability: Durability
    memory_used_bytes: int = 0
    memory_limit_bytes: int = 0
    refusal: str = ""


class Link(Protocol):
    """One connection for appends. Answers come in the order of sending; after an Unreachable the link is dead."""

    async def send(self, frame: Frame) -> None: ...

    async def receive(self) -> Verdict: ...

    async def close(self) -> None: ...


class Backend(Protocol):
    kind: str

    @property
    def restarts_total(self) -> int:
        """How often the server was found dead and started again."""

    async def start(self) -> None:
        """Make the server reachable (waiting while it loads). StoreLost, ConfigError when that is hopeless."""

    async def head(self) -> Head | None:
        """None: the store is empty."""

    async def open_epoch(self, cluster: str, create: bool) -> Head:
        """Raise the epoch by one, in one step with reading the head. `create`: it must be empty and becomes `cluster`."""

    async def dial(self) -> Link: ...

    async def read(self, after: Position, count: int) -> list[tuple[str, bytes]]:
        """At most `count` (id, frame) after a position, in order. Raises JournalCorrupt where the first of them is no frame at all."""

    async def announce(self, manifest: Manifest) -> None:
        """Note whose chunks are about to be written, so that they can be found again if nobody finishes them."""

    async def put_chunk(self, name: str, index: int, data: bytes) -> None: ...

    async def get_chunk(self, name: str, index: int) -> bytes | None: ...

    async def publish(self, epoch: int, snapshots: tuple[Manifest, ...], trim: Position | None) -> None:
        """In one step, if `epoch` still leads and all chunks of the newest are there: set the list, drop frames before `trim`."""

    async def rehead(self, head: Head) -> None:
        """Write the head as it is given, whatever was there. Raises Conflict where a daemon leads."""

    async def snapshot_names(self) -> list[str]:
        """Of all of which there is a first chunk, named in the head or not."""
        ...

    async def drop_chunks(self, manifest: Manifest) -> None: ...

    async def cut(self, epoch: int, ids: Sequence[str]) -> None:
        """If `epoch` still leads: drop these frames, the last ones there are."""

    async def end_at(self, head: Head) -> None:
        """If its epoch still leads: the journal ends with the frame that `head` names, and has its snapshots."""

    async def health(self) -> Health: ...

    async def close(self) -> None: ...
