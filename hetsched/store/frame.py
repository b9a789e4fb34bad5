"""The journal's frame: how the facts of one turn lie in the store, and how a damaged one is told from a whole one.

    magic 4 │ version u16 │ reserved u16 │ epoch u64 │ seq u64 │ length u32 │ previous crc u32 │ payload │ crc32c u32

Little endian. The checksum covers header and payload; as each header holds the checksum of the frame before, the frames form
a chain: a frame lost, repeated or from elsewhere is noticed as surely as a flipped bit. Promise: the decoder accepts exactly
what the encoder wrote, and otherwise names the frame, the byte and the reason (the server's own file has no checksums, so a
flipped bit on disk arrives here unnoticed).

In every version the frame begins with magic and version and ends with the checksum of all before it: so a later version's frame is told
from a damaged one, and refused by name.
"""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c

from hetsched.store.base import JournalCorrupt, NewerVersion, Position

MAGIC = b"HSJF"
VERSION = 1
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
_HEADER = struct.Struct("<4sHHQQII")
_CRC = struct.Struct("<I")
OVERHEAD_BYTES = _HEADER.size + _CRC.size


class Frame(msgspec.Struct, frozen=True):
    """One encoded frame and its place."""

    position: Position
    data: bytes


def encode(epoch: int, previous: Position, payload: bytes) -> Frame:
    """The frame that follows `previous` in `epoch`. ValueError: empty, or over 64 MB."""
    if not 0 < len(payload) <= MAX_PAYLOAD_BYTES:
        raise ValueError(f"a frame holds 1 to {MAX_PAYLOAD_BYTES} bytes, not {len(payload)}")
    seq = previous.seq + 1
    header = _HEADER.pack(MAGIC, VERSION, 0, epoch, seq, len(payload), previous.crc)
    crc = crc32c(payload, crc32c(header))
    return Frame(Position(epoch, seq, crc), b"".join((header, payload, _CRC.pack(crc))))


def decode(data: bytes, where: str) -> tuple[Position, int, bytes]:
    """(position, checksum of the frame before, payload). `where` names the frame in the error: its stream id."""
    if len(data) < OVERHEAD_BYTES:
        raise JournalCorrupt(where, len(data), f"cut short: {len(data)} bytes, a frame has at least {OVERHEAD_BYTES}")
    magic, version, reserved, epoch, seq, length, previous_crc = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise JournalCorrupt(where, 0, f"not a frame: begins with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise _other_version(data, where, version)
    if reserved:
        raise JournalCorrupt(where, 6, f"reserved field is {reserved}, not 0")
    if length + OVERHEAD_BYTES != len(data):
        raise JournalCorrupt(
            where, 24, f"header says {length} bytes of payload, there are {len(data) - OVERHEAD_BYTES}"
        )
    end = _HEADER.size + length
    crc = crc32c(memoryview(data)[:end])
    if (said := _CRC.unpack_from(data, end)[0]) != crc:
        raise JournalCorrupt(where, end, f"checksum is {crc:08x}, the frame says {said:08x}")
    return Position(epoch, seq, crc), previous_crc, data[_HEADER.size : end]


def _other_version(data: bytes, where: str, version: int) -> JournalCorrupt:
    """A whole one of a later program, or a damaged one of ours."""
    end = len(data) - _CRC.size
    if _CRC.unpack_from(data, end)[0] != crc32c(memoryview(data)[:end]):
        return JournalCorrupt(where, 4, f"version is {version}, and the checksum does not match")
    return NewerVersion(where, 4, f"version {version}; this program reads {VERSION}")


def follow(previous: Position, where: str, data: bytes) -> tuple[Position, bytes]:
    """Decode the frame found at stream id `where` and check that it is the one that comes after `previous`."""
    position, previous_crc, payload = decode(data, where)
    if position.id != where:
        raise JournalCorrupt(where, 8, f"holds frame {position.id}")
    if position.seq != previous.seq + 1:
        raise JournalCorrupt(where, 16, f"follows {previous.id}: frames in between are missing")
    if position.epoch < previous.epoch:
        raise JournalCorrupt(where, 8, f"epoch goes back after {previous.id}")
    if previous_crc != previous.crc:
        raise JournalCorrupt(
            where, 28, f"follows a frame with checksum {previous_crc:08x}; {previous.id} has {previous.crc:08x}"
        )
    return position, payload
