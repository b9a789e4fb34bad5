"""A front end from its start to its end: welcome, serve, drain.

Its descriptors come from the deciding process: sockets that listen (that one has them open too, so clients that wait there when a front end
dies are served by the next), the line, and the socket over which connections are handed over. It ends when it was told to drain and has, when
the line is cut, and, by the kernel's hand, when the deciding process dies.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import uvloop

from hetsched.api.app import Listener
from hetsched.api.desk import Desk, Taker
from hetsched.api.routes import ROUTES
from hetsched.daemon.auth import Tokens
from hetsched.daemon.binding import tls_context
from hetsched.errors import HetschedError
from hetsched.front import messages as say
from hetsched.front.baton import Came, Giver
from hetsched.front.deputy import Deputy
from hetsched.front.door import FrontDoor
from hetsched.front.line import Line
from hetsched.store.launcher import die_with

EXIT_ALONE = 75
OURS = tuple(route for route in ROUTES if route.path == "/v1/schedule")


def main(arguments: Sequence[str]) -> int:
    """Run until told to drain; the exit code."""
    parent, *fds = map(int, arguments)
    die_with(parent)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the deciding process
    line, baton, *listening = [socket.socket(fileno=fd) for fd in fds]
    uvloop.run(_run(line, baton, listening))
    return 0


async def _run(line: socket.socket, baton: socket.socket, listening: list[socket.socket]) -> None:
    await FrontEnd(line, baton, listening).run()


class FrontDesk(Desk):
    """Says who takes submissions: whoever the deciding process said last."""

    def __init__(self, welcome: say.Welcome, deputy: Deputy) -> None:
        hosts = None if welcome.hosts is None else frozenset(welcome.hosts)
        super().__init__(welcome.config, Tokens(welcome.standing.tokens), hosts=hosts, insecure=welcome.insecure)
        self._deputy = deputy
        self._refusal: HetschedError | None = None
        self.hear(welcome.standing)

    def taking(self) -> Taker:
        if self._refusal is not None:
            raise self._refusal
        return self._deputy

    @property
    def epoch(self) -> int | None:
        """As the deciding process said last."""
        return self._told_epoch

    def hear(self, standing: say.Standing) -> None:
        """Of a change."""
        self.state = standing.state
        self._told_epoch = standing.epoch
        self._deputy.durability = standing.durability
        self._refusal = None if standing.refusal is None else standing.refusal.error()
        self.taker = self._deputy if self._refusal is None else None
        self.tokens = Tokens(standing.tokens)


class FrontEnd:
    """One process. A `Porter` to its doors."""

    def __init__(self, line: socket.socket, baton: socket.socket, listening: list[socket.socket]) -> None:
        self._listening = listening
        self._line_socket = line
        self._line = Line(say.ToFront, self._heard, self._end)
        self._giver = Giver(baton)
        self._doors: dict[int, FrontDoor] = {}
        self._numbers = itertools.count(1)
        self._welcomed = asyncio.Event()
        self._over = asyncio.Event()
        self._hears: dict[type[say.Said], Callable[[Any], None]] = {say.Welcome: self._welcome}

    async def run(self) -> None:
        """Until it is over."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self._line, sock=self._line_socket)
        await self._welcomed.wait()
        server = self._desk.config.server
        tls = tls_context(server.tls_cert, server.tls_key, None)
        await self._listener.serve(self._listening, tls, self._door)
        self._line.say(say.Serving())
        counting = asyncio.create_task(self._deputy.count(), name="counting")
        await self._over.wait()
        counting.cancel()
        await self._listener.stop()
        await self._giver.empty()
        self._deputy.say_counts()
        self._line.close()

    def _heard(self, message: say.Said) -> None:
        self._hears[type(message)](message)

    def _welcome(self, welcome: say.Welcome) -> None:
        self._deputy = deputy = Deputy(self._line, welcome.config.task_defaults())
        self._desk = FrontDesk(welcome, deputy)
        self._listener = Listener(self._desk, drain_s=welcome.config.server.drain_timeout, routes=OURS)
        self._hears = {
            say.Standing: self._desk.hear,
            say.Answered: deputy.on_answered,
            say.AnsweredArray: deputy.on_array,
            say.AnsweredWhole: deputy.on_whole,
            say.Failed: deputy.on_failed,
            say.TurnAway: self._turn_away,
            say.Drain: lambda _: self._end(),
        }
        self._welcomed.set()

    def _turn_away(self, told: say.TurnAway) -> None:
        door = self._doors.get(told.connection)
        if door is not None:
            door.turn_away_one_of_many(told.address)

    def _end(self) -> None:
        """Told to drain, or the line is cut: then nobody will answer any more."""
        if not self._line.is_open:
            os._exit(EXIT_ALONE)
        self._over.set()

    # ------------------------------------------------------------------ to the doors

    @property
    def takes(self) -> bool:
        """The deciding process takes submissions now."""
        return self._desk.taker is not None

    def _door(self) -> FrontDoor:
        return self._listener.door_of(partial(FrontDoor, self))

    def entered(self, door: FrontDoor, address: str) -> int:
        """A client has come; its number."""
        number = next(self._numbers)
        self._doors[number] = door
        self._line.say(say.Entered(connection=number, address=address))
        return number

    def left(self, connection: int) -> None:
        """It has gone, or was handed over."""
        if self._doors.pop(connection, None) is not None:
            self._line.say(say.Left(connection=connection))

    def hand_over(self, fd: int, came: Came, data: bytes) -> None:
        """To the deciding process."""
        self._deputy.handed_over_total += 1
        self._giver.give(fd, came, data)
