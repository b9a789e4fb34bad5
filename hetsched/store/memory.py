"""A journal in memory, for tests and throw-away daemons: the same fence and the same lane, no server, faults on demand.

`MemoryServer` stands for the server: several stores on one of it are several daemons on one server, and it outlives them.
Promise: it answers as the script in `scripts.py` does; a test of the lane's behaviour here holds there too.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from hetsched.errors import Deposed, StoreLost
from hetsched.store.backend import Answer, Head, Health, Link, Manifest, Verdict
from hetsched.store.base import Durability, Position, Unreachable
from hetsched.store.frame import Frame


class Faults(msgspec.Struct):
    """What goes wrong next; a test sets fields at any time, counts run down by themselves.

    delay_s: before every answer. lost_answers: the frame is stored, its answer is cut off. lost_frames: cut before it is
    stored. refusal: not empty = every frame is refused with it, as by a full server. unreachable: nobody answers at all."""

    delay_s: float = 0.0
    lost_answers: int = 0
    lost_frames: int = 0
    refusal: str = ""
    unreachable: bool = False


class MemoryServer:
    """What the server would keep."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.frames: list[tuple[Position, bytes]] = []
        self.chunks: dict[tuple[str, int], bytes] = {}
        self.faults = Faults()

    def append(self, frame: Frame) -> Verdict:
        """The fence, as in `scripts.APPEND`."""
        head = self.head
        if head is None:
            return Verdict(Answer.EMPTY)
        at = frame.position
        if at.seq <= head.seq:
            for position, data in reversed(self.frames):
                if position[:2] == at[:2]:
                    return Verdict(Answer.DUPLICATE if data == frame.data else Answer.MISMATCH)
        if at.epoch < head.epoch:
            return Verdict(Answer.DEPOSED, head.position.id)
        if at.epoch > head.epoch or at.seq != head.seq + 1:
            return Verdict(Answer.BEHIND, head.position.id)
        self.frames.append((at, frame.data))
        self.head = head._replace(seq=at.seq, crc=at.crc)
        return Verdict(Answer.STORED)

    def wipe(self) -> None:
        """What a primary restarted empty has left."""
        self.head = None
        self.frames.clear()
        self.chunks.clear()


class MemoryLink:
    """A connection that loses what the faults say."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._answers: asyncio.Queue[Verdict | None] = asyncio.Queue()

    async def send(self, frame: Frame) -> None:
        faults = self._server.faults
        if faults.refusal:
            self._answers.put_nowait(Verdict(Answer.REFUSED, faults.refusal))
        elif faults.lost_frames:
            faults.lost_frames -= 1
            self._answers.put_nowait(None)
        else:
            verdict = self._server.append(frame)
            lost = faults.lost_answers > 0
            faults.lost_answers -= lost
            self._answers.put_nowait(None if lost else verdict)

    async def receive(self) -> Verdict:
        verdict = await self._answers.get()
        if self._server.faults.delay_s:
            await asyncio.sleep(self._server.faults.delay_s)
        if verdict is None or self._server.faults.unreachable:
            raise Unreachable("cut (a fault of the memory store)")
        return verdict

    async def close(self) -> None:
        return None


class MemoryBackend:
    kind = "memory"
    restarts_total = 0

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()

    async def start(self) -> None:
        return None

    async def head(self) -> Head | None:
        return self.server.head

    async def open_epoch(self, cluster: str, create: bool) -> Head:
        if create:
            self.server.head = self.server.head or Head(cluster, 0, 0, 0)
        head = self.server.head
        if head is None or head.cluster != cluster:
            raise StoreLost("the store changed while it was opened")
        self.server.head = head._replace(epoch=head.epoch + 1)
        return self.server.head

    async def dial(self) -> Link:
        self._reach()
        return MemoryLink(self.server)

    async def read(self, after: Position, count: int) -> list[tuple[str, bytes]]:
        frames = self.server.frames
        first = bisect_right(frames, after[:2], key=lambda entry: entry[0][:2])
        return [(position.id, data) for position, data in frames[first : first + count]]

    async def announce(self, manifest: Manifest) -> None:
        self._reach()
        if self.server.head is not None:
            self.server.head = self.server.head._replace(unfinished=manifest)

    async def put_chunk(self, name: str, index: int, data: bytes) -> None:
        self._reach()
        self.server.chunks[name, index] = data

    async def get_chunk(self, name: str, index: int) -> bytes | None:
        return self.server.chunks.get((name, index))

    async def publish(self, epoch: int, snapshots: tuple[Manifest, ...], trim: Position | None) -> None:
        self._reach()
        head = self.server.head
        if head is None or head.epoch != epoch:
            raise Deposed("a snapshot was not published: a higher epoch leads")
        self.server.head = head._replace(snapshots=snapshots, unfinished=None)
        if trim is not None:
            self.server.frames = [entry for entry in self.server.frames if entry[0][:2] >= trim[:2]]

    async def drop_chunks(self, manifest: Manifest) -> None:
        for index in range(manifest.chunks):
            self.server.chunks.pop((manifest.name, index), None)

    async def cut(self, epoch: int, ids: Sequence[str]) -> None:
        self._lead(epoch)
        gone = set(ids)
        self.server.frames = [entry for entry in self.server.frames if entry[0].id not in gone]

    async def end_at(self, head: Head) -> None:
        self._lead(head.epoch)
        self.server.head = head

    async def rehead(self, head: Head) -> None:
        self.server.head = head

    async def snapshot_names(self) -> list[str]:
        return sorted({name for name, _ in self.server.chunks})

    def _lead(self, epoch: int) -> None:
        if self.server.head is None or self.server.head.epoch != epoch:
            raise Deposed("the journal was not cut: a higher epoch leads")

    async def health(self) -> Health:
        return Health(Durability.MEMORY)

    async def close(self) -> None:
        return None

    def _reach(self) -> None:
        if self.server.faults.unreachable:
            raise Unreachable("nobody answers (a fault of the memory store)")
