"""One request as a handler sees it: who asks, what for, and how to answer. The checks before every handler are here.

Host first (so that a rebinding web page learns nothing), then the token and its scope, then whether the daemon is ready at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from aiohttp import web

from hetsched.api import body as bodies
from hetsched.api.desk import DESK, Desk, Taker
from hetsched.api.problem import plain
from hetsched.errors import Problem

if TYPE_CHECKING:
    from hetsched.daemon.auth import Token
    from hetsched.daemon.daemon import Daemon
    from hetsched.daemon.links import Links
    from hetsched.daemon.standby import Standby
    from hetsched.scheduler.view import View

T = TypeVar("T")

LARGE_BYTES = 128 * 1024


class Call:
    """`token` is None only on open routes. `parameters`: query parameters that the route knows."""

    def __init__(self, request: web.Request, token: Token | None, parameters: Iterable[str]) -> None:
        self.request = request
        self.desk: Desk = request.app[DESK]
        self._token = token
        self._daemon: Daemon | None = None
        self._taker: Taker | None = None
        self._reader: Daemon | Standby | None = None
        self.body_bytes = 0
        self.query = _query(request, frozenset(parameters))

    @property
    def token(self) -> Token:
        """Who asks."""
        assert self._token is not None, "a route with a scope always has a token"
        return self._token

    @property
    def actor(self) -> str:
        """For the audit record."""
        return self.token.name

    @property
    def daemon(self) -> Daemon:
        """The daemon, when it is ready; else 503. Asked once: a call that was let in is answered although the daemon stops meanwhile."""
        if self._daemon is None:
            self._daemon = self.desk.ready()
        return self._daemon

    @property
    def taker(self) -> Taker:
        """Who takes what is submitted; else 503. Asked once, as `daemon`."""
        if self._taker is None:
            self._taker = self._daemon or self.desk.taking()
        return self._taker

    @property
    def reader(self) -> Daemon | Standby:
        """The daemon, or the standby that this process is; else 503. Asked once, as `daemon`."""
        if self._reader is None:
            self._reader = self._daemon or self.desk.reader()
        return self._reader

    @property
    def view(self) -> View:
        """The scheduler's read side."""
        return self.reader.view

    @property
    def links(self) -> Links | None:
        """The agents' links; a standby has none."""
        return None if self.desk.standby is self.reader else self.daemon.links

    def name(self, part: str) -> str:
        """A part of the path, decoded; ids and queue names may hold slashes."""
        return self.request.match_info[part]

    # ------------------------------------------------------------------ asking

    def number(self, parameter: str, default: int, low: int, high: int) -> int:
        """A whole number from the query."""
        text = self.query.get(parameter)
        if text is None:
            return default
        try:
            value = int(text) if text.isascii() and len(text) < 20 else low - 1
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise Problem.of_query(parameter, f"has to be a whole number from {low} to {high}, is {text[:40]!r}")
        return value

    def flag(self, parameter: str, default: bool = False) -> bool:
        """A yes or no from the query; the bare name is a yes."""
        text = self.query.get(parameter)
        if text is None:
            return default
        if text.lower() in ("", "1", "true", "yes"):
            return True
        if text.lower() in ("0", "false", "no"):
            return False
        raise Problem.of_query(parameter, f"has to be true or false, is {text[:40]!r}")

    def choice(self, parameter: str, known: Iterable[str]) -> str | None:
        """One of a closed set of words, or None where not given."""
        text = self.query.get(parameter)
        words = list(known)
        if text is not None and text not in words:
            raise Problem.of_query(parameter, f"has to be one of {', '.join(words)}, is {text[:40]!r}")
        return text

    async def body(self, *media: str) -> Any:
        """The body as plain values."""
        raw, kind = await self.raw_body(*media)
        return await aside(self.body_bytes, bodies.decode, raw, kind)

    async def raw_body(self, *media: str) -> tuple[bytes, str]:
        """The body as it came (decompressed), and its media type."""
        kind = bodies.media_type(self.request, media or (bodies.JSON,))
        config = self.desk.config
        raw = await bodies.read_body(self.request, config.limits.body_bytes, config.server.body_timeout)
        self.body_bytes = len(raw)
        return raw, kind

    async def typed_body(self, shape: type[T]) -> T:
        """The body as a Struct."""
        return bodies.typed(await self.body(), shape)

    async def no_body(self) -> None:
        """Nothing is expected; an empty object is let pass, because many clients send one."""
        if self.request.can_read_body and await self.body() != {}:
            raise Problem.at("", "no fields are expected here")

    # ------------------------------------------------------------------ answering

    def encoded(self, body: bytes, status: int) -> web.Response:
        """An answer that is JSON already."""
        return web.Response(status=status, body=body, content_type="application/json")

    async def read(self, value: Any, status: int = 200) -> web.Response:
        """Answer with something read from the view, once it is durable: readers never see state go back. A standby says in `lag` how many
        seconds ago it knew of everything."""
        await self.reader.settled()
        standby = self.desk.standby
        if standby is self.reader and isinstance(value, dict):
            value = {**value, "lag": round(standby.lag_s, 3)}
        return self.answer(value, status)

    def answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
        """A JSON answer."""
        return web.Response(
            status=status, body=msgspec.json.encode(value), content_type="application/json", headers=headers
        )


async def aside(size_bytes: int, work: Callable[..., T], *arguments: Any) -> T:
    """Do it here, or in a thread if the body is large: a list of 50,000 tasks takes a second to read, and heartbeats must not wait for it."""
    if size_bytes <= LARGE_BYTES:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def admit(request: web.Request, scope: str | None) -> Token | None:
    """Let the request in: its Host, its token, the token's scope. None on an open route."""
    desk = request.app[DESK]
    _check_host(request, desk)
    if scope is None:
        return None
    token = desk.tokens.identify(request.headers.get("Authorization"))
    token.require(scope)
    return token


def _check_host(request: web.Request, desk: Desk) -> None:
    host = request.headers.get("Host")
    if host is None:
        if request.version >= (1, 1):
            raise plain(400, "http", "This is no HTTP request", "HTTP/1.1 demands the header Host")
        return
    if not desk.knows_host(host):
        known = ", ".join(sorted(desk.hosts or ()))
        raise plain(
            421, "host", "This daemon has another name", f"Host {host[:80]!r} is not accepted here; {known} are"
        )


def _query(request: web.Request, known: frozenset[str]) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in known:
            has = f"known: {', '.join(sorted(known))}" if known else "there are none here"
            raise Problem.of_query(name[:40], f"is no query parameter of this call; {has}")
        if name in query:
            raise Problem.of_query(name, "is given twice")
        query[name] = value
    return query
