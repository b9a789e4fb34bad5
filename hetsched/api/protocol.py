"""The outermost door: one connection's HTTP, hardened. Deadlines, a cap per address, and problem+json for what is no HTTP at all.

What the fast path (`fast.py`) can answer never reaches aiohttp: `data_received` offers it everything while the connection stands between two
requests, and holds back what follows until the lane's answers are out, so that answers keep the order of requests. A connection that brings
nothing but single tasks is read by its lane itself, past its transport, until something else comes (`_scan/sockets.pxi`).

aiohttp itself waits for ever for the rest of a request line, and answers broken HTTP with text. This subclass closes a connection
whose head is not complete `head_s` after its first byte (or after connecting), refuses more than `per_address` connections from one
address, and answers in problem+json. Body deadlines are in `body.py`, where bodies are read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec
from aiohttp import StreamReader, web
from aiohttp.web_protocol import RequestHandler

from hetsched._scan import Lane
from hetsched.api.fast import Counter as FastCounter
from hetsched.api.heads import END, LINE
from hetsched.api.problem import MEDIA_TYPE, plain, refuse

MOST_HELD = 256 * 1024
"""Bytes kept while answers of the fast path are under way; then the connection is read no further."""

LOOKS = 4


class Doorman:
    """Counts connections per address; shared by all connections of one listener."""

    def __init__(self, head_s: float, per_address: int) -> None:
        self.head_s = head_s
        self.per_address = per_address
        self.refused_total = 0
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """One more from there; False = over the cap."""
        if self._open[address] >= self.per_address:
            self.refused_total += 1
            return False
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        """One less."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]


class Handed(NamedTuple):
    """What is known of a connection that another process accepted (`hetsched.front`). `is_tls`: it is the inner end of a tunnel. `data`: what
    was read of it."""

    address: str
    is_tls: bool
    data: bytes


class Door(RequestHandler):
    """One connection."""

    __slots__ = (
        *(
            "_address",
            "_body",
            "_doorman",
            "_ended",
            "_handed",
            "_head_timer",
            "_held",
            "_is_held_back",
            "_lane",
            "_only_singles",
            "_owed",
            "_socket",
            "_streaming",
        ),
    )

    def __init__(
        self,
        doorman: Doorman,
        counter: FastCounter,
        server: web.Server,
        *,
        handed: Handed | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(server, **settings)
        self._handed = handed
        self._lane = Lane(counter, self)
        self._held = b""  # came while the lane's answers were under way
        self._is_held_back = False  # so much of it that reading was paused
        self._ended = False  # the client said its last while the lane's answers were under way
        self._only_singles = False  # that was all it brought since its last other request
        self._socket = -1  # that the lane may read by itself
        self._owed = 0  # bytes of aiohttp's present request that are still to come; below 0: not known any more
        self._doorman = doorman
        self._address: str | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._body: StreamReader | None = None
        self._streaming: asyncio.Task[Any] | None = None

    def stream(self, task: asyncio.Task[Any] | None) -> None:
        """This task streams an answer: cancel it when the client has gone, which it would not notice while it has nothing to say."""
        self._streaming = task

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._lane.connect(cast(asyncio.WriteTransport, transport).write)
        address = address_of(transport) if self._handed is None else self._handed.address
        if not self._doorman.enter(address):
            self.turn_away_one_of_many(address)
            return
        self._address = address
        self._socket = -1 if self._is_tls() else socket_of(transport)
        self._await_head()
        if self._handed is not None:
            self.data_received(self._handed.data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_came()
        self._lane.connect(None)
        if self._address is not None:
            self._doorman.leave(self._address)
            self._address = None
        if self._streaming is not None:
            self._streaming.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client says no more, which is no good-bye: `nc -N` and small clients do so and wait for the answer.

        Returns whether the connection stays open for writing: while a request is being answered, or its body was cut short and that
        has to be told. TLS knows no half-closed connection; one who only listens to a stream has gone, and so has an agent: a WebSocket
        says good-bye in its own words, and a node must not stand as ready until the next pull finds nobody there.
        """
        if self._lane.open or self._held:
            self._ended = self._lane.is_waited_for = self.transport is not None and not self._is_tls()
            return self._ended
        is_stream = self._streaming is not None or self._payload_parser is not None
        if self._is_idle() or is_stream or self.transport is None:
            return False
        if self._is_tls():
            return False
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(web.RequestPayloadError("it ends before it is whole"))
        self._close_after_all()
        return True

    def _is_tls(self) -> bool:
        is_inner_end = self._handed is not None and self._handed.is_tls
        return is_inner_end or (self.transport is not None and self.transport.get_extra_info("sslcontext") is not None)

    def _close_after_all(self) -> None:
        """`close` waits for the answer under way and forgets those that wait behind it; so wait for them first."""
        if self._messages and self.transport is not None:
            self._loop.call_later(0.05, self._close_after_all)
        elif self._is_idle():
            self.force_close()  # `close` would wait for an answer that has been given
        else:
            self.close()

    def data_received(self, data: bytes) -> None:
        if self._held or (self._paused and self._is_full()):
            self._hold(data)
        elif self._is_between():
            taken = self._lane.take(data)
            if taken and self._head_timer is not None:
                self._head_came()
            if taken < len(data):
                self._not_taken(data[taken:] if taken else data)
            else:
                self._all_taken()
        elif self._owed == 0 and data.startswith(LINE) and not (self._close or self._force_close or self._upgraded):
            self._hold(data)
            self._loop.call_soon(self._look_again, LOOKS)
        else:
            self._to_aiohttp(data)

    # ------------------------------------------------------------------ the fast path's side

    def _all_taken(self) -> None:
        """By the lane. Who brings a second time nothing else will bring more of it: then the lane reads by itself."""
        transport = self.transport
        if not self._only_singles:
            self._only_singles = True
        elif transport is not None and self._socket >= 0 and not transport.get_write_buffer_size():
            if self._lane.read_alone(self._socket):
                transport.pause_reading()

    def given_back(self, rest: bytes) -> None:
        """By the lane, that reads by itself no longer; this is what it could not take, at the beginning of a request."""
        if self.transport is not None:
            self.transport.resume_reading()
        if rest:
            self._not_taken(rest)

    def broken(self, error: Exception) -> None:
        """The lane could not go on by itself."""
        self._loop.call_exception_handler(
            {"message": "a connection could not be read", "exception": error, "protocol": self}
        )
        self.force_close()

    def _not_taken(self, rest: bytes) -> None:
        """By the lane, at the beginning of a request."""
        self._only_singles = False
        if self._lane.open:
            self._hold(rest)
        else:
            self._to_aiohttp(rest)

    def _is_between(self) -> bool:
        """All that aiohttp was given is answered, and it ended where a request ends."""
        if self._owed or self._close or self._force_close or self._upgraded:
            return False
        return self._request_count == 0 or self._is_idle()

    def _look_again(self, looks: int) -> None:
        """aiohttp has answered and takes some rounds of the loop to notice; a quick client's next request need not go its way for that."""
        if looks and not self._is_idle():
            self._loop.call_soon(self._look_again, looks - 1)
            return
        self._go_on(self.data_received if self._is_between() else self._to_aiohttp)

    def _is_full(self) -> bool:
        """The client does not read its answers."""
        return bool(self._paused) and self._owed == 0

    def _hold(self, data: bytes) -> None:
        self._held += data
        self._lane.is_waited_for = True
        if len(self._held) > MOST_HELD and not self._is_held_back and self.transport is not None:
            self._is_held_back = True
            self.transport.pause_reading()

    def _process_keepalive(self) -> None:
        """aiohttp's timer; it does not know when the lane said something last."""
        last_s = self._lane.said_s + self._keepalive_timeout
        self._next_keepalive_close_time = max(self._next_keepalive_close_time, last_s)
        super()._process_keepalive()

    def lane_is_empty(self) -> None:
        """All its answers are out."""
        if not self._paused and self.transport is not None:
            self._go_on(self.data_received)

    def _go_on(self, take: Callable[[bytes], None]) -> None:
        """With what was held back."""
        held, self._held = self._held, b""
        self._lane.is_waited_for = self._ended
        if self._is_held_back and self.transport is not None:
            self._is_held_back = False
            self.transport.resume_reading()
        if held:
            take(held)
        if self._ended and not self._lane.open and not self._held and not self.eof_received():
            self.force_close()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._lane.open:
            self.lane_is_empty()

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """What the lane took is answered first."""
        deadline_s = self._loop.time() + (timeout or 0.0)
        while self._lane.open and self._loop.time() < deadline_s:
            await asyncio.sleep(0.01)
        await super().shutdown(timeout)

    # ------------------------------------------------------------------ aiohttp's side

    def _count(self, data: bytes) -> None:
        """Follow where aiohttp's request ends, as far as that is plain to see."""
        if self._owed == 0 and data:
            size = size_of_request(data)
            self._owed = -1 if size is None or size < len(data) else size - len(data)
        elif self._owed > 0:
            self._owed = max(-1, self._owed - len(data))

    def _to_aiohttp(self, data: bytes) -> None:
        self._count(data)
        heads = self._request_count
        is_of_a_head = self._body is None or self._body.is_eof()
        if is_of_a_head:
            super().data_received(data)
        else:
            self._rest_of_body(data)
        if self._request_count > heads:
            self._head_came()
            self._body = self._messages[-1][1] if self._messages else None
        elif data and is_of_a_head and self._head_timer is None and not self._upgraded:
            self._await_head()  # not for b"", with which aiohttp resumes reading: a connection may be idle for as long as it likes

    def _rest_of_body(self, data: bytes) -> None:
        """aiohttp drops what comes after it was told to close, and the request whose body that is would wait for it in vain."""
        was_closing, was_forced = self._close, self._force_close
        self._close = self._force_close = False
        super().data_received(data)
        self._close, self._force_close = self._close or was_closing, self._force_close or was_forced

    def _await_head(self) -> None:
        self._head_timer = self._loop.call_later(self._doorman.head_s, self._head_is_late)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self._is_idle():
            self._await_head()  # the request before it is still being answered
        else:
            self._turn_away(
                408,
                "deadline",
                "The request came too slowly",
                f"its head was not complete after {self._doorman.head_s:g} s",
            )

    def _is_idle(self) -> bool:
        """Nothing is being answered, nothing waits to be."""
        return self._waiter is not None and not self._waiter.done()

    def turn_away_one_of_many(self, address: str) -> None:
        """Its address has too many."""
        most = self._doorman.per_address
        self._turn_away(429, "connections", "Too many connections", f"{address} has {most} open, and may have no more")

    def _turn_away(self, status: int, kind: str, title: str, detail: str) -> None:
        """Answer without a request, and close."""
        body = msgspec.json.encode(plain(status, kind, title, detail).body())
        head = (
            f"HTTP/1.1 {status} {title}\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n"
            f"{'Retry-After: 1' if status == 429 else 'Cache-Control: no-store'}\r\nConnection: close\r\n\r\n"
        )
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).write(head.encode() + body)
        self.force_close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What is no HTTP, in the words of the parser."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; nothing can be said any more")
        said = (message or str(exc or "")).strip().splitlines()
        detail = said[0][:200] if said and status < 500 else "the request could not be read"
        answer = refuse(plain(status, "http", "This is no HTTP request", detail))
        answer.force_close()
        return answer


def address_of(transport: asyncio.BaseTransport) -> str:
    """Of the client."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else "local"


def socket_of(transport: asyncio.BaseTransport) -> int:
    """Its number; below 0 where it has none."""
    found = transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


def size_of_request(data: bytes) -> int | None:
    """Bytes of the request with which the data begins, if its head is whole and its length plain to see; else None."""
    end = data.find(END)
    head = data[:end].lower()
    if end < 0 or b"\r\ntransfer-encoding" in head or b"\r\nupgrade" in head or b"\r\nexpect" in head:
        return None
    before, _, rest = head.partition(b"\r\ncontent-length:")
    length = rest.partition(b"\r\n")[0].strip() or b"0"
    if not length.isdigit() or len(length) > 12 or b"\r\ncontent-length" in rest or b"\r\ncontent-length" in before:
        return None
    return end + len(END) + int(length)
