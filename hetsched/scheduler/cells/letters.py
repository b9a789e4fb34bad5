"""What one cell writes to another. Tags and order are between daemons of different versions: add at the end, with defaults."""

from __future__ import annotations

import msgspec

FULL, NOWHERE, PINNED = "full", "nowhere", "pinned"
"""Why a parcel is sent: there is no room here now; no node here could ever take it; its queue belongs elsewhere."""


class Parcel(msgspec.Struct, frozen=True, array_like=True, tag="parcel"):
    """Tasks (msgpack of `model.Task`, with ids, deadlines absolute) that the other cell is to take, or ids that it is to cancel. `number`
    counts from 1 for each pair of cells; `acked`: the home has durably heard the verdicts up to this one."""

    number: int
    acked: int
    why: str = ""
    actor: str = ""
    tasks: tuple[bytes, ...] = ()
    cancels: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, array_like=True, tag="verdict"):
    """What became of a parcel of `sender`'s: `refused` are the places of tasks that were not taken."""

    sender: str
    number: int
    refused: tuple[int, ...] = ()


Body = Parcel | Verdict


class Letter(msgspec.Struct, frozen=True):
    """An effect of a turn: put this into the inbox of cell `to` once the turn is durable."""

    to: str
    body: Body


class Delivered(msgspec.Struct, frozen=True):
    """One entry of our inbox. `at`: its place in the stream. `sender`: the cell and, behind a slash, the life of its journal; numbers count
    within that. `body` None: it cannot be read, and is passed over."""

    at: str
    sender: str
    body: Body | None


def cell_of(sender: str) -> str:
    """The cell to which answers go."""
    return sender.partition("/")[0]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Body).decode
