"""A pool of kept-alive HTTP/1.1 connections, one request at a time on each, as cheap as Python allows.

Why not aiohttp: its client spends several times what the server's fast path does on a request, so it would measure itself.
This one splices bytes and looks for two header fields; it understands only what hetsched sends: answers with Content-Length.

Promises: a request is answered exactly once, with a status or with one of the words `timeout`, `connection`, `protocol`; requests wait in
order of submission when all connections are busy, and nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import NamedTuple

RECONNECT_S = 0.1
SWEEP_S = 0.25

Failure = str  # timeout | connection | protocol


class Request(NamedTuple):
    """`rows`: the board's rows that ride on it."""

    body: bytes
    rows: slice


OnSent = Callable[[Request, int], None]
OnAnswer = Callable[[Request, "int | Failure", bytes], None]


class Connection(asyncio.Protocol):
    """One connection: idle, or carrying one request."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self.request: Request | None = None
        self.sent_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._pool.idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._finish("connection", b"")
        self._pool.lost(self)

    def send(self, request: Request, head: bytes) -> None:
        assert self._transport is not None and self.request is None
        self.request = request
        self.sent_ns = time.monotonic_ns()
        self._transport.write(b"%b%d\r\n\r\n%b" % (head, len(request.body), request.body))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = _content_length(head)
        if length is None or not head.startswith(b"http/1.1 "):
            self.give_up("protocol")
            return
        total = end + 4 + length
        if len(self._buffer) < total:
            return
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        self._finish(int(head[9:12]), body)
        if b"\r\nconnection: close" in head and self._transport is not None:
            self._transport.close()
        elif self._transport is not None:
            self._pool.idle(self)

    def give_up(self, why: Failure) -> None:
        """The answer is no longer waited for; the connection cannot be used again, since it may still come."""
        self._finish(why, b"")
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, outcome: int | Failure, body: bytes) -> None:
        request, self.request = self.request, None
        if request is not None:
            self._pool.answered(request, outcome, body)


class Pool:
    """`size` connections to one address; `submit` never blocks."""

    def __init__(
        self, host: str, port: int, head: bytes, *, size: int, timeout_s: float, on_sent: OnSent, on_answer: OnAnswer
    ) -> None:
        """`head`: request line and header fields up to and including `Content-Length: `."""
        self._host, self._port, self._head = host, port, head
        self._size, self._timeout_ns = size, int(timeout_s * 1e9)
        self._on_sent, self._on_answer = on_sent, on_answer
        self._waiting: deque[Request] = deque()
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.outstanding = 0

    async def open(self) -> None:
        """Connects all; raises OSError when nobody listens."""
        await asyncio.gather(*(self._connect() for _ in range(self._size)))
        self._spawn(self._sweep())

    def submit(self, request: Request) -> None:
        self.outstanding += 1
        self._waiting.append(request)
        self._pump()

    def close(self) -> None:
        """What is still under way is answered with `connection`."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        for connection in [*self._busy, *self._idle]:
            connection.give_up("connection")
        while self._waiting:
            self.answered(self._waiting.popleft(), "connection", b"")

    # ---- what the connections say

    def idle(self, connection: Connection) -> None:
        self._busy.discard(connection)
        self._idle.append(connection)
        self._pump()

    def lost(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if not self._closing:
            self._spawn(self._reconnect())

    def answered(self, request: Request, outcome: int | Failure, body: bytes) -> None:
        self.outstanding -= 1
        self._on_answer(request, outcome, body)

    # ---- inside

    def _pump(self) -> None:
        while self._waiting and self._idle:
            connection, request = self._idle.popleft(), self._waiting.popleft()
            self._busy.add(connection)
            connection.send(request, self._head)
            self._on_sent(request, connection.sent_ns)

    async def _connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: Connection(self), self._host, self._port)

    async def _reconnect(self) -> None:
        while not self._closing:
            await asyncio.sleep(RECONNECT_S)
            try:
                return await self._connect()
            except OSError:
                continue

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            late_ns = time.monotonic_ns() - self._timeout_ns
            for connection in [entry for entry in self._busy if entry.sent_ns < late_ns]:
                connection.give_up("timeout")

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _content_length(head: bytes) -> int | None:
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        return None
    digits = head[at + 17 :].split(b"\r\n", 1)[0].strip()
    return int(digits) if digits.isdigit() else None
