"""Snapshots: a whole state in chunks of at most 1 MB, so that appends slip in between and no single value grows large.

    chunk:  magic 4 │ version u8 │ encoding u8 │ reserved u16 │ index u32 │ chunks u32 │ data │ crc32c u32

Promises: a snapshot is named in the head only after all its chunks are in the store; a chunk that is missing, damaged or of
another snapshot is found when read; two generations are kept, with the journal since the older one, so that one bad snapshot
costs a longer replay and nothing else.

Why zlib at level 1 and not zstandard: it is in the standard library, runs beside the loop in a thread, and a chunk that does
not shrink is kept raw.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from crc32c import crc32c

from hetsched.store.backend import Backend, Head, Manifest
from hetsched.store.base import JournalCorrupt, Position, SnapshotLost

log = logging.getLogger("hetsched.store")

Ask = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""`patience.patiently`, bound to the life of the store."""

CHUNK_BYTES = 1024 * 1024 - 64  # what a chunk holds at most: with header and checksum below 1 MB
MAGIC = b"HSJS"
VERSION = 1
RAW, ZLIB = 0, 1
_HEADER = struct.Struct("<4sBBHII")
_CRC = struct.Struct("<I")


def describe(name: str, at: Position, state: bytes) -> Manifest:
    """The manifest of `state`, taken when the frame `at` was the last."""
    chunks = max(1, -(-len(state) // CHUNK_BYTES))
    return Manifest(name, at.epoch, at.seq, at.crc, chunks, len(state), crc32c(state))


def encode_chunk(state: bytes, index: int, chunks: int, compress: bool = True) -> bytes:
    """Chunk `index` of `chunks`."""
    data = memoryview(state)[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
    packed = zlib.compress(data, 1) if compress else b""
    encoding = ZLIB if compress and len(packed) < len(data) else RAW
    head = _HEADER.pack(MAGIC, VERSION, encoding, 0, index, chunks) + (packed if encoding == ZLIB else bytes(data))
    return head + _CRC.pack(crc32c(head))


def decode_chunk(data: bytes, index: int, chunks: int, where: str) -> bytes:
    """What the chunk holds. Raises JournalCorrupt unless it is exactly chunk `index` of `chunks`."""
    end = len(data) - _CRC.size
    if end < _HEADER.size:
        raise JournalCorrupt(where, len(data), "cut short")
    if _CRC.unpack_from(data, end)[0] != crc32c(memoryview(data)[:end]):
        raise JournalCorrupt(where, end, "checksum does not match")
    magic, version, encoding, _, its_index, its_chunks = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION or encoding not in (RAW, ZLIB):
        raise JournalCorrupt(where, 0, f"not a chunk that this program reads: {magic!r}, version {version}")
    if (its_index, its_chunks) != (index, chunks):
        raise JournalCorrupt(where, 8, f"is chunk {its_index} of {its_chunks}, not {index} of {chunks}")
    body = data[_HEADER.size : end]
    return body if encoding == RAW else _inflate(body, where)


def chunks_said(data: bytes, where: str) -> int:
    """How many chunks there are by what this one says; to be believed once it has been decoded. Raises JournalCorrupt."""
    if len(data) < _HEADER.size:
        raise JournalCorrupt(where, len(data), "cut short")
    return int(_HEADER.unpack_from(data)[5])


def _inflate(body: bytes, where: str) -> bytes:
    inflater = zlib.decompressobj()
    try:
        out = inflater.decompress(body, CHUNK_BYTES)
    except zlib.error as error:
        raise JournalCorrupt(where, _HEADER.size, f"cannot be unpacked: {error}") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise JournalCorrupt(where, _HEADER.size, "does not unpack to one chunk")
    return out


async def write(backend: Backend, manifest: Manifest, state: bytes, ask: Ask) -> None:
    """Put all chunks, one at a time: an append waits behind at most one of them."""
    await ask(partial(backend.announce, manifest))
    for index in range(manifest.chunks):
        chunk = await asyncio.to_thread(encode_chunk, state, index, manifest.chunks)
        await ask(partial(backend.put_chunk, manifest.name, index, chunk))


async def read(backend: Backend, manifest: Manifest, ask: Ask) -> bytes:
    """The state. Raises JournalCorrupt."""
    parts = []
    for index in range(manifest.chunks):
        where = f"snapshot {manifest.name}, chunk {index}"
        chunk = await ask(partial(backend.get_chunk, manifest.name, index))
        if chunk is None:
            raise JournalCorrupt(where, 0, "is missing")
        parts.append(await asyncio.to_thread(decode_chunk, chunk, index, manifest.chunks, where))
    state = b"".join(parts)
    if len(state) != manifest.state_bytes or crc32c(state) != manifest.state_crc:
        raise JournalCorrupt(f"snapshot {manifest.name}", 0, "chunks are whole, but not those of this snapshot")
    return state


async def load(backend: Backend, head: Head, ask: Ask) -> tuple[Manifest | None, bytes | None]:
    """The newest valid snapshot, or (None, None) where the journal still reaches back to its beginning.

    Raises SnapshotLost, of the newest, if neither of two can be read: the journal before them is gone."""
    errors: list[JournalCorrupt] = []
    for manifest in head.snapshots:
        try:
            return manifest, await read(backend, manifest, ask)
        except JournalCorrupt as error:
            log.error("%s; falling back to what was before it", error)
            errors.append(error)
    if len(errors) > 1:
        raise SnapshotLost(
            errors[0].where, errors[0].offset, f"{errors[0].reason}, and the snapshot before it is lost, too"
        )
    return None, None
