"""The head written anew from what the stream, the snapshots' chunks and the daemon's own disk say: what `hetsched journal mend` does.

Promises: it names the last frame that is whole, and only snapshots of which every chunk is whole; its epoch is beyond all that anybody knows
of, so no older daemon appends behind it. Where that is less than what the daemon's disk knows to be confirmed nothing is written. Frames that
are damaged besides are named by the next start, as ever.
"""

from __future__ import annotations

from functools import partial

import msgspec
from crc32c import crc32c

from hetsched.errors import Conflict, NotFound
from hetsched.store import snapshot
from hetsched.store.archive import AT_ONCE, Archive
from hetsched.store.backend import Head, Manifest
from hetsched.store.base import START, HeadDamaged, JournalCorrupt, Position
from hetsched.store.frame import decode
from hetsched.store.identity import Identity

KEPT_SNAPSHOTS = 2


class Stream(msgspec.Struct, frozen=True):
    """`ends`: where the frames lead that can be read, and `checks`: checksum of each frame by its number, its predecessor's included.
    `unread`: how many entries cannot be read."""

    ends: Position
    checks: dict[int, Position]
    unread: int


async def plan_head(archive: Archive, identity: Identity) -> tuple[Head, Stream]:
    """What the head has to be. Raises Conflict where it is whole, or cannot be made."""
    try:
        head: Head | None = await archive.ask(archive.backend.head)
    except HeadDamaged:
        head = None
    if head is not None:
        raise Conflict(f"the head of this journal can be read ({head.position.id}): nothing has to be mended")
    if not identity.known:
        raise Conflict("whose journal it was stands in the daemon's data directory: give its --data")
    stream = await _look_at(archive)
    if stream.ends.seq < identity.confirmed.seq:
        raise Conflict(
            f"the journal ends at {stream.ends.id}, and {identity.confirmed.id} was confirmed: restore the store from a backup"
        )
    snapshots = await _snapshots(archive, stream)
    if not snapshots and min(stream.checks) > 1:
        raise Conflict(
            "the journal begins in its middle and no snapshot before that is whole: restore the store from a backup"
        )
    epoch = max(stream.ends.epoch, identity.confirmed.epoch) + 1
    return Head(identity.cluster, epoch, stream.ends.seq, stream.ends.crc, snapshots), stream


async def mend_head(archive: Archive, head: Head, identity: Identity) -> None:
    """Write it. No daemon may run on this store."""
    await archive.ask(partial(archive.backend.rehead, head))
    identity.save(head.cluster, Position(head.epoch, head.seq))


async def _look_at(archive: Archive) -> Stream:
    at, ends, unread = START, START, 0
    checks: dict[int, Position] = {}
    while True:
        try:
            batch = await archive.ask(partial(archive.backend.read, at, AT_ONCE))
        except JournalCorrupt as fault:
            batch, unread = [(fault.where, b"")], unread + 1
        if not batch:
            break
        for where, data in batch:
            try:
                position, previous_crc, _ = decode(data, where)
            except JournalCorrupt:
                unread += bool(data)
                continue
            if not checks:
                checks[position.seq - 1] = Position(position.epoch, position.seq - 1, previous_crc)
            checks[position.seq] = ends = position
        epoch, _, seq = batch[-1][0].partition("-")
        at = Position(int(epoch), int(seq))
    if not checks:
        raise NotFound("the store holds no frame that can be read: there is nothing to mend; restore it from a backup")
    return Stream(ends, checks, unread)


async def _snapshots(archive: Archive, stream: Stream) -> tuple[Manifest, ...]:
    """Newest first: those that are whole and from which the frames lead on."""
    found = []
    for name in await archive.ask(archive.backend.snapshot_names):
        epoch, _, seq = name.rpartition("@")[2].partition("-")
        if not (epoch.isdecimal() and seq.isdecimal()) or int(seq) not in stream.checks:
            continue
        at = Position(int(epoch), int(seq), stream.checks[int(seq)].crc)
        manifest = await _whole(archive, name, at)
        if manifest is not None:
            found.append(manifest)
    return tuple(sorted(found, key=lambda one: (one.seq, one.epoch), reverse=True)[:KEPT_SNAPSHOTS])


async def _whole(archive: Archive, name: str, at: Position) -> Manifest | None:
    """None where a chunk is missing or damaged."""
    parts: list[bytes] = []
    chunks = 1
    while len(parts) < chunks:
        chunk = await archive.ask(partial(archive.backend.get_chunk, name, len(parts)))
        if chunk is None:
            return None
        try:
            chunks = snapshot.chunks_said(chunk, name)
            parts.append(snapshot.decode_chunk(chunk, len(parts), chunks, name))
        except JournalCorrupt:
            return None
    state = b"".join(parts)
    return Manifest(name, at.epoch, at.seq, at.crc, chunks, len(state), crc32c(state))
