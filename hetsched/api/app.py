"""The application, made from the table of routes, and the listener it is served by."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from aiohttp import web

from hetsched import __version__
from hetsched._scan import Sockets
from hetsched.api.call import Call, admit
from hetsched.api.desk import DESK, Desk
from hetsched.api.fast import Counter
from hetsched.api.problem import CELL, EPOCH, LEADER, plain, problems, refuse
from hetsched.api.protocol import Door, Doorman, Handed
from hetsched.api.routes import ROUTES, Route
from hetsched.daemon.fronts import FrontTotals

BACKLOG = 1024
D = TypeVar("D", bound=Door)
HEADERS = {
    "Server": f"hetsched/{__version__}",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


def make_app(desk: Desk, routes: Iterable[Route] = ROUTES) -> web.Application:
    """These routes over this desk."""
    app = web.Application(middlewares=[problems], client_max_size=0)
    app[DESK] = desk
    app.on_response_prepare.append(_sign)
    for route in routes:
        if route.scope is None:
            app.router.add_get(route.path, _handler(route), allow_head=True, expect_handler=_expect)
        else:
            app.router.add_route(route.method, route.path, _handler(route), expect_handler=_expect)
    return app


def _handler(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        token = admit(request, route.scope)
        return await route.handler(Call(request, token, route.parameters))

    return handle


async def _expect(request: web.Request) -> web.StreamResponse | None:
    """`Expect: 100-continue` is granted; anything else is a 417, as a problem and not in aiohttp's words."""
    expected = request.headers.get("Expect", "")
    if request.version < (1, 1):
        return None  # HTTP/1.0 knows no expectations
    if expected.lower() != "100-continue":
        detail = f"Expect {expected[:80]!r} is not understood; 100-continue is"
        return refuse(plain(417, "expect", "The expectation cannot be met", detail))
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # what was said so far is no answer
    return None


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    desk = request.app[DESK]
    response.headers.update(_signature(desk))
    response.headers.setdefault("Cache-Control", "no-store")
    epoch, standby = desk.epoch, desk.standby
    if epoch is not None:
        response.headers[EPOCH] = str(epoch)
    if standby is not None:
        response.headers["Hetsched-Lag"] = f"{standby.lag_s:.3f}"
        response.headers[LEADER] = standby.leader.url


def _signature(desk: Desk) -> dict[str, str]:
    """What every answer carries, whichever way it goes."""
    cell = desk.config.store.cell
    return {**HEADERS, CELL: cell} if cell else HEADERS


class Listener:
    """Serves the application on sockets; `stop` lets requests under way end. `routes`: those that are answered here.
    `fronts`: what front ends did for it, where there are any."""

    fronts: FrontTotals | None = None

    def __init__(self, desk: Desk, *, drain_s: float, routes: Iterable[Route] = ROUTES) -> None:
        server = desk.config.server
        self.desk = desk
        self.doorman = Doorman(server.header_timeout, server.connections_per_address)
        self.counter = Counter(desk, {**_signature(desk), "Cache-Control": "no-store"})
        self._settings: dict[str, Any] = {"auto_decompress": False, "access_log": None, "keepalive_timeout": 75.0}
        self._runner = web.AppRunner(make_app(desk, routes), shutdown_timeout=drain_s, **self._settings)
        self._servers: list[asyncio.AbstractServer] = []
        self._reading: Sockets | None = None

    async def set_up(self) -> None:
        """Before the first connection."""
        await self._runner.setup()
        if self._reading is None:
            self._reading = Sockets()
            asyncio.get_running_loop().add_reader(self._reading.fileno(), self._reading.ready)
            self.counter.read_by(self._reading)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen; the port that was bound. Raises OSError."""
        await self.set_up()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.door, host, port, ssl=tls, backlog=BACKLOG)
        self._servers.append(server)
        bound: socket.socket = server.sockets[0]
        port_bound: int = bound.getsockname()[1]
        return port_bound

    async def up(self) -> None:
        """Until clients are accepted."""

    async def serve(
        self, listening: Iterable[socket.socket], tls: ssl.SSLContext | None, door: Callable[[], Door]
    ) -> None:
        """Accept what comes to sockets that somebody else opened, with doors of another kind."""
        await self.set_up()
        loop = asyncio.get_running_loop()
        for each in listening:
            self._servers.append(await loop.create_server(door, sock=each, ssl=tls, backlog=BACKLOG))

    def door(self) -> Door:
        """For a connection that is accepted here."""
        return self.door_of(Door)

    def door_of(self, kind: Callable[..., D], handed: Handed | None = None) -> D:
        """Of that kind, for one connection."""
        server = self._runner.server
        assert server is not None, "it is set up"
        loop = asyncio.get_running_loop()
        return kind(self.doorman, self.counter, server, handed=handed, loop=loop, **self._settings)

    async def adopt(self, connection: socket.socket, handed: Handed) -> None:
        """Go on with a connection that another process accepted."""
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self.door_of(Door, handed), connection)

    async def stop(self) -> None:
        """Accept no more, answer what is under way, close."""
        for server in self._servers:
            server.close()
        await self._runner.cleanup()
        if self._reading is not None:
            self.counter.read_by(None)
            asyncio.get_running_loop().remove_reader(self._reading.fileno())
            self._reading = None
