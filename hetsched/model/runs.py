"""Events in runs: what `GET /v1/events` tells a client that asks for `MEDIA` (docs/http.md, "Events by the thousand").

The stream is frames: an uint32 that counts the bytes behind it, then one msgpack array, `Single`, `Queued` or `Moves`; a count of 0 says that
the line is alive. Frames are in order and their events follow each other without a gap. All columns are little-endian.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched.model.ids import Ids

MEDIA = "application/vnd.hetsched.runs"
KEEP_ALIVE = bytes(4)


class Single(msgspec.Struct, frozen=True, array_like=True, tag="single"):
    """One event, as in the stream of server-sent events."""

    seq: int
    event: dict[str, Any]


class Queued(msgspec.Struct, frozen=True, array_like=True, tag="queued"):
    """`queued` of each: events `seq` and following, at `t_ns`."""

    seq: int
    t_ns: int
    tasks: Ids


class Moves(msgspec.Struct, frozen=True, array_like=True, tag="moves"):
    """Events `seq` and following, at `t_ns`, one a task. `what`: a byte each, an index of `names`; `attempts`: an uint16 each; `levels`: a
    byte each, an index of `lanes`; `nodes`: an uint32 each, a key of `machines` (name, its devices' ids) where it is `placed`; `devices`: of
    each that is `placed` a byte that counts them, then index and share_milli (uint16) of each."""

    seq: int
    t_ns: int
    names: tuple[str, ...]
    what: bytes
    tasks: Ids
    attempts: bytes
    lanes: tuple[str, ...]
    levels: bytes
    nodes: bytes
    machines: dict[int, tuple[str, tuple[str, ...]]]
    devices: bytes


Run = Single | Queued | Moves

decode = msgspec.msgpack.Decoder(Run).decode
_encode = msgspec.msgpack.Encoder().encode


def frame(run: Run) -> bytes:
    """As it goes over the line."""
    body = _encode(run)
    return len(body).to_bytes(4, "little") + body


def cut(data: bytes) -> tuple[list[bytes], bytes]:
    """Bodies of the whole frames that the bytes begin with, without those that are empty, and what is left."""
    bodies, at = [], 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data):
            break
        if end > at + 4:
            bodies.append(data[at + 4 : end])
        at = end
    return bodies, data[at:]
