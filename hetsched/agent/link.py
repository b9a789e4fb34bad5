"""The agent's line to the daemon: one WebSocket that it opens itself and opens again, for ever.

Promises: every connection begins with the whole state (Hello), so there is one way to join and no other; nothing begins whose order was read
when the lease was over, as by an agent that was frozen, for it may run elsewhere by now; the lease runs from the
*sending* of the heartbeat that was acknowledged; orders of another session or of an older epoch never reach `Peer.order`; a line
that is open but dead is noticed by missing acknowledgements; whoever is told to go away comes back later, each at its own time, to the
leader where one was named, else to the next address it knows.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from typing import Any, Protocol

import aiohttp
import msgspec

from hetsched import wire
from hetsched.agent.shim.lease import Lease, now_ns
from hetsched.agent.together import until_one_ends

log = logging.getLogger("hetsched.agent")

CONNECT_PATH = "/v1/agents/connect"
_MESSAGE_BYTES = 64 * 1024 * 1024
_ANSWER_S = 10.0
_DEAD_AFTER_BEATS = 3
_MOST_TOGETHER = 4096
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = (
    0.1,
    3.0,
)  # well below any lease: a daemon that comes back finds its nodes before that


class Parted(Exception):
    """The line cannot be had or kept; says why. The link tries again."""


class Rejoin(Parted):
    """The line was good; it is opened anew because its hello would say something new."""


class Peer(Protocol):
    """Whom the link speaks for."""

    def address(self) -> tuple[str, str]:
        """(URL, token) as they are now; raises Parted where they are not known yet."""

    def left(self, leader: str) -> None:
        """The line to that address could not be had or kept; whoever answered named this `leader` ("" = none)."""

    def hello(self) -> wire.Hello:
        """The whole state."""

    def welcomed(self, welcome: wire.Welcome) -> str:
        """Why this daemon is not obeyed; "" = it is, and that is on disk."""

    def order(self, message: Any) -> None:
        """A message of the present session."""

    def to_repeat(self) -> list[wire.Ended]:
        """What the daemon has not confirmed; asked at every heartbeat."""

    def parted(self) -> None:
        """The session is over."""


class Link:
    """See the module. `send` may be called at any time from the event loop."""

    def __init__(self, peer: Peer, lease: Lease) -> None:
        self._peer = peer
        self._lease = lease
        self._session: _Session | None = None
        self.joined = asyncio.Event()

    def send(self, message: Any) -> None:
        """To the daemon if there is a session; else nothing: the next Hello tells all that matters."""
        if self._session is not None:
            self._session.post(message)

    async def send_and_wait(self, message: Any) -> None:
        """Likewise, and waits until it is on its way: for what could fill the line."""
        if self._session is not None:
            await self._session.post_and_wait(message)

    def reconnect(self) -> None:
        """Says hello anew: what it would tell has changed."""
        if self._session is not None:
            self._session.end(Rejoin("there is something new to say hello with"))

    async def run(self) -> None:
        """Until cancelled."""
        pause_s, said = _FIRST_PAUSE_S, ""
        while True:
            named = ""
            try:
                await self._connect()
            except (Parted, aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError) as error:
                why = _in_words(error)
                if why != said or self.joined.is_set():
                    log.warning("not connected: %s", why)
                said = why
                if not isinstance(error, Rejoin):
                    named = _leader(error)
                    self._peer.left(named)
            if self.joined.is_set():
                self.joined.clear()
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep((_FIRST_PAUSE_S if named else pause_s) * random.uniform(0.5, 1.0))
            pause_s = pause_s if named else min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _connect(self) -> None:
        url, token = self._peer.address()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            async with asyncio.timeout(_ANSWER_S):
                socket = await client.ws_connect(
                    url.rstrip("/") + CONNECT_PATH,
                    headers={"Authorization": f"Bearer {token}"},
                    max_msg_size=_MESSAGE_BYTES,
                    compress=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                )
            async with socket:
                await self._join(socket, url)

    async def _join(self, socket: aiohttp.ClientWebSocketResponse, url: str) -> None:
        sent_ns = now_ns()
        await socket.send_bytes(wire.encode(self._peer.hello()))
        async with asyncio.timeout(_ANSWER_S):
            welcome = await _receive(socket)
        if isinstance(welcome, wire.Refused):
            raise Parted(f"the daemon refuses this agent: {welcome.reason}")
        if not isinstance(welcome, wire.Welcome):
            raise Parted(f"expected a welcome, got {type(welcome).__name__}")
        refusal = self._peer.welcomed(welcome)
        if refusal:
            raise Parted(f"this daemon is not obeyed: {refusal}")
        self._session = _Session(socket, welcome, sent_ns, self._lease, self._peer)
        self.joined.set()
        log.info("joined %s, session %d, epoch %d", url, welcome.session, welcome.epoch)
        try:
            await self._session.run()
        finally:
            self._session = None
            self._peer.parted()


class _Session:
    """One connection after its Welcome. The Hello counts as the first heartbeat: the Welcome acknowledges it."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, welcome: wire.Welcome, hello_ns: int, lease: Lease, peer: Peer
    ) -> None:
        self._socket = socket
        self._welcome = welcome
        self._lease = lease
        self._peer = peer
        self._outbox: deque[tuple[wire.Message, asyncio.Future[None] | None]] = deque()
        self._more = asyncio.Event()
        self._first_ns = self._last_sent_ns = self._seen_ns = hello_ns
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._renew(hello_ns)

    def post(self, message: wire.Message) -> None:
        self._outbox.append((message, None))
        self._more.set()

    async def post_and_wait(self, message: wire.Message) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outbox.append((message, written))
        self._more.set()
        await written

    def end(self, why: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(why)

    async def run(self) -> None:
        """Raises when the line is gone, with the reason."""
        try:
            await until_one_ends(self._read(), self._write(), self._beat(), self._ended)
        finally:
            for _, written in self._outbox:
                if written is not None:
                    written.cancel()

    async def _read(self) -> None:
        while True:
            self._on(await _receive(self._socket))

    def _on(self, message: wire.FromDaemon) -> None:
        match message:
            case wire.HeartbeatSeen(sent_ns):
                if self._first_ns <= sent_ns <= self._last_sent_ns:
                    self._renew(sent_ns)
            case wire.Refused(reason):
                raise Parted(f"the daemon refuses this agent: {reason}")
            case wire.Welcome():
                raise Parted("a second welcome is no part of the protocol")
            case wire.Starts() | wire.SettledMany():
                for one in message.each():
                    self._on(one)
            case wire.Start() | wire.Stop() | wire.Settled() if message.session != self._welcome.session:
                log.warning("an order of session %d is ignored, this is %d", message.session, self._welcome.session)
            case wire.Start() if self._lease.left_ns() <= 0:
                raise Rejoin(f"the lease was over when the order to start {message.task} was read")
            case wire.Start() | wire.Stop() if message.epoch != self._welcome.epoch:
                log.warning("an order of epoch %d is refused, this is %d", message.epoch, self._welcome.epoch)
            case _:
                self._peer.order(message)

    async def _write(self) -> None:
        while True:
            while self._outbox:
                await self._write_some()
            self._more.clear()
            await self._more.wait()

    async def _write_some(self) -> None:
        """What waits, as far as the first that somebody waits for."""
        said: list[wire.Message] = []
        written: asyncio.Future[None] | None = None
        while self._outbox and written is None and len(said) < _MOST_TOGETHER:
            message, written = self._outbox.popleft()
            said.append(message)
        for message in wire.together(said):
            await self._socket.send_bytes(wire.encode(message))
        if written is not None and not written.done():
            written.set_result(None)

    async def _beat(self) -> None:
        """Ahead of everything that waits to be written: what is older is worth less. The first at once: it says that the welcome has come, and
        that this daemon is obeyed."""
        patience_ns = int(_DEAD_AFTER_BEATS * self._welcome.heartbeat_s * 1e9)
        self._say_heartbeat()
        while True:
            await asyncio.sleep(self._welcome.heartbeat_s)
            if now_ns() - self._seen_ns > patience_ns + int(self._welcome.heartbeat_s * 1e9):
                raise Parted(f"the daemon has not answered {_DEAD_AFTER_BEATS} heartbeats")
            self._say_heartbeat()
            for ended in self._peer.to_repeat():
                self._outbox.append((ended, None))
            self._more.set()

    def _say_heartbeat(self) -> None:
        self._last_sent_ns = now_ns()
        self._outbox.appendleft((wire.Heartbeat(self._last_sent_ns), None))
        self._more.set()

    def _renew(self, sent_ns: int) -> None:
        self._seen_ns = max(self._seen_ns, sent_ns)
        self._lease.extend(sent_ns + int(self._welcome.lease_s * 1e9))


async def _receive(socket: aiohttp.ClientWebSocketResponse) -> wire.FromDaemon:
    message = await socket.receive()
    if message.type is not aiohttp.WSMsgType.BINARY:
        raise Parted("the daemon has closed the line")
    return wire.decode_from_daemon(message.data)


def _leader(error: BaseException) -> str:
    """Whom a daemon that does not lead has named."""
    headers = error.headers if isinstance(error, aiohttp.WSServerHandshakeError) else None
    return headers.get("Hetsched-Leader", "") if headers else ""


_HINTS = {
    401: "is the agent's token the daemon's? (DATA/agent-token, HETSCHED_TOKEN)",
    403: "the token lacks the scope node",
    404: "is that a hetsched daemon?",
    503: "it is starting, stopping or standing by",
}


def _in_words(error: BaseException) -> str:
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"the daemon answers {error.status}: {_HINTS.get(error.status, error.message)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {error.os_error.strerror}"
    if isinstance(error, TimeoutError):
        return f"the daemon does not answer within {_ANSWER_S:.0f} s"
    return str(error) or type(error).__name__
