"""The fast path: `POST /v1/schedule` of one JSON task, answered by the connection itself, without aiohttp.

Promises: a request is taken here only if all of it is there, nothing before it on the connection is still open, its head and its body are
ones that would be accepted, and it asks for nothing but the submission; every other is handed on untouched, so that refusals are written in
one place. The answer is, byte for byte, that of the slow path. Answers leave in the order of the requests, all of a turn in one write.

Why: aiohttp costs 100 µs a request, routing and answering included, and a task that was seen before costs the scheduler a few.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from hetsched.api.accepted import location
from hetsched.api.desk import Desk, Taker
from hetsched.api.heads import END, LINE, Head, Heads
from hetsched.api.known import Recognised, may_submit
from hetsched.api.problem import MEDIA_TYPE, headers_of
from hetsched.errors import HetschedError
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.messages import BundleReply, Known

MOST_OPEN = 1024
"""Requests of one connection that may wait for their turn; then it is read no further."""

_STATE = {code: str(state).encode() for code, state in STATE_OF_CODE.items()}


Submit = Callable[[Known, bytes, str, Any], None]
"""`Taker.ask_single`."""


class Wire(Protocol):
    """What a lane needs of its connection."""

    def say(self, data: bytes) -> None: ...

    def lane_is_empty(self) -> None: ...


class Counter:
    """What the lanes of one listener share. `signature`: the headers that every answer carries, as bytes."""

    def __init__(self, desk: Desk, headers: dict[str, str]) -> None:
        self.desk = desk
        self.taker: Taker | None = None  # who took the last
        self.heads = Heads(desk)
        self._signature = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode() + b"\r\n"
        self._second = 0
        self._tail = b""
        self._durability = b""
        self._durable: BundleReply | None = None

    def durability(self, reply: BundleReply) -> bytes:
        """How durable this turn's answers are; looked up once a turn."""
        if reply is not self._durable:
            assert self.taker is not None, "somebody answered"
            self._durability, self._durable = self.taker.durability.encode(), reply
        return self._durability

    def tail(self) -> bytes:
        """The end of a head: date and signature."""
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._tail = b"\r\nDate: " + formatdate(now, usegmt=True).encode() + b"\r\n" + self._signature
        return self._tail


class Lane:
    """The fast path of one connection; an Asker of the turn loop."""

    __slots__ = ("_counter", "_out", "_wire", "open")

    def __init__(self, counter: Counter, wire: Wire) -> None:
        self._counter = counter
        self._wire = wire
        self._out: list[bytes] = []
        self.open: deque[Recognised] = deque()

    def take(self, data: bytes) -> int:
        """Take in the requests with which the data begins; the number of bytes taken."""
        desk = self._counter.desk
        taker = desk.taker
        if taker is None:
            return 0
        self._counter.taker = taker
        at, size, find, submit = 0, len(data), self._counter.heads.find, taker.ask_single
        recall = desk.memory().recall.one
        while data.startswith(LINE, at) and len(self.open) < MOST_OPEN:
            begin = at + len(LINE)
            end = data.find(END, begin) + len(END)
            head = find(data[begin:end]) if end > begin else None
            if head is None or end + head.length > size:
                return at
            found = recall(data, end, end + head.length)
            if found is None or not self._submit(head, *found, submit):
                return at
            at = end + head.length
        return at

    def _submit(self, head: Head, recognised: Recognised, ident: bytes, submit: Submit) -> bool:
        if not head.is_free and not may_submit(head.token, recognised.known.task):
            return False
        try:
            submit(recognised.known, ident, head.token.name, self)
        except HetschedError:
            return False
        self.open.append(recognised)
        return True

    # ------------------------------------------------------------------ answering: what the turn loop calls

    def answered(self, reply: BundleReply, index: int) -> None:
        """The turn of the oldest open request is durable."""
        recognised = self.open.popleft()
        error = reply.refused.get(index) if reply.refused else None
        if error is not None:
            self._refuse(error)
            return
        ident, state = reply.ids[index], _STATE[reply.states[index]]
        placed = b""
        if reply.placements and recognised.is_critical and (where := reply.placements.get(ident.decode())) is not None:
            placed = b',"placement":' + msgspec.json.encode(where)
        durability = self._counter.durability(reply)
        body = b'{"id":"%b","state":"%b","lane":"%b"%b,"durability":"%b","request":{"id":"%b%b}' % (
            *(ident, state, recognised.lane, placed, durability, ident, recognised.request),
        )
        self._out.append(
            b"HTTP/1.1 202 Accepted\r\nLocation: %b\r\nContent-Type: application/json\r\nContent-Length: %d%b%b"
            % (_location(ident), len(body), self._counter.tail(), body)
        )

    def failed(self, error: HetschedError) -> None:
        """Nobody will know any more what became of the oldest open request."""
        self.open.popleft()
        self._refuse(error)

    def told(self) -> None:
        """All of this turn has been said."""
        out = self._out
        self._wire.say(out[0] if len(out) == 1 else b"".join(out))
        out.clear()
        if not self.open:
            self._wire.lane_is_empty()

    def _refuse(self, error: HetschedError) -> None:
        body = msgspec.json.encode(error.body())
        more = "".join(f"{name}: {value}\r\n" for name, value in headers_of(error).items())
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n{more}Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}"
        self._out.append(head.encode() + self._counter.tail() + body)


def _location(ident: bytes) -> bytes:
    if b"/" in ident or not ident.strip(b".") or ident in (b"explain", b"logs"):
        return location(ident.decode()).encode()
    return b"/v1/tasks/" + ident
