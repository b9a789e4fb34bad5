"""The fast path: `POST /v1/schedule` of one JSON task, answered by the connection itself, without aiohttp.

Promises: a request is taken here only if all of it is there, nothing before it on the connection is still open, its head and its body are
ones that would be accepted, and it asks for nothing but the submission; every other is handed on untouched, so that refusals are written in
one place. The answer is, byte for byte, that of the slow path. Answers leave in the order of the requests, all of a turn in one write.

Why: aiohttp costs 100 µs a request, routing and answering included, and a task that was seen before costs the scheduler a few.
"""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import msgspec

from hetsched._scan import Filling, Head, Recognised, Singles
from hetsched.api.accepted import location
from hetsched.api.desk import Desk, Taker
from hetsched.api.heads import Heads
from hetsched.api.known import may_submit
from hetsched.api.problem import EPOCH, MEDIA_TYPE, headers_of
from hetsched.daemon.auth import Token
from hetsched.errors import HetschedError
from hetsched.scheduler.lifecycle import STATE_OF_CODE

MOST_OPEN = 1024
"""Requests of one connection that may wait for their turn; then it is read no further."""

_STATES = [str(STATE_OF_CODE.get(code, "")).encode() for code in range(256)]


class Counter(Singles):
    """What the lanes of one listener share, and all that they ask. `headers`: those that every answer carries."""

    def __init__(self, desk: Desk, headers: dict[str, str]) -> None:
        super().__init__(desk, desk.memory().recall, _STATES, MOST_OPEN)
        self._heads = Heads(desk)
        self._signature = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
        self._second = 0
        self._epoch: int | None = None
        self._tail = b""
        self._taker: Taker | None = None

    def find(self, head: bytes) -> Head | None:
        return self._heads.find(head)

    def may(self, token: Token, task: Recognised) -> bool:
        return may_submit(token, task.known.task)

    def open(self, is_urgent: bool) -> Filling | None:
        taker: Taker | None = self.desk.taker
        if taker is None:
            return None
        self._taker = taker
        try:
            return taker.filling(is_urgent)
        except HetschedError:
            return None

    def common(self) -> tuple[bytes, bytes, float]:
        assert self._taker is not None, "somebody took what is answered"
        now = int(time.time())
        if now != self._second or self.desk.epoch != self._epoch:
            self._second, self._epoch = now, self.desk.epoch
            epoch = b"" if self._epoch is None else b"%s: %d\r\n" % (EPOCH.encode(), self._epoch)
            self._tail = (
                b"\r\nDate: " + formatdate(now, usegmt=True).encode() + b"\r\n" + self._signature + epoch + b"\r\n"
            )
        return self._tail, self._taker.durability.encode(), time.monotonic()

    def refusal(self, error: HetschedError) -> bytes:
        body = msgspec.json.encode(error.body())
        more = "".join(f"{name}: {value}\r\n" for name, value in headers_of(error).items())
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n{more}Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}"
        return head.encode() + self.common()[0] + body

    def placement(self, placements: dict[str, dict[str, Any]], ident: bytes) -> bytes:
        where = placements.get(ident.decode())
        return b"" if where is None else b',"placement":' + msgspec.json.encode(where)

    def location(self, ident: bytes) -> bytes:
        return location(ident.decode()).encode()
