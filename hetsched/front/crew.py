"""The front ends of a deciding process: their sockets, their starts, their replacements, their end.

All share one port: each has a socket of its own that listens there (SO_REUSEPORT: the kernel spreads clients over them), opened here and held
open here. So a client that waits to be accepted when a front end dies is accepted by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import ssl
import sys
import time
from functools import partial
from typing import Any

from hetsched.api.app import BACKLOG, Listener
from hetsched.api.desk import Desk
from hetsched.daemon.fronts import FrontTotals
from hetsched.front import messages as say
from hetsched.front.counterpart import Counterpart, standing_of

log = logging.getLogger("hetsched.front")

STEADY_S = 5.0
PAUSES_S = (0.0, 0.1, 0.5, 2.0)
"""Before one that died is replaced: at once, but for one that died soon after its start, and again, and again."""


class Crew(Listener):
    """A listener at whose port `size` front ends accept; it serves what they hand over. `fronts`: for the metrics."""

    def __init__(self, desk: Desk, *, drain_s: float, size: int) -> None:
        super().__init__(desk, drain_s=drain_s)
        self.fronts = self._totals = FrontTotals()
        self._size = size
        self._drain_s = drain_s
        self._sockets: list[list[socket.socket]] = []
        self._present: dict[int, Counterpart] = {}
        self._keeping: list[asyncio.Task[None]] = []
        self._up = [asyncio.Event() for _ in range(size)]
        self._is_stopping = False

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Open the sockets and start all; the port that was bound. TLS is spoken there, from the same configuration."""
        self._sockets = sockets_at(host, port, self._size)
        await self.set_up()
        self.desk.changed = self._tell_standing
        self._keeping = [
            asyncio.create_task(self._keep(place, each), name=f"front end {place}")
            for place, each in enumerate(self._sockets)
        ]
        bound: int = self._sockets[0][0].getsockname()[1]
        return bound

    async def up(self) -> None:
        """Until all accept clients."""
        for each in self._up:
            await each.wait()

    async def stop(self) -> None:
        """What is under way is answered; then they end. Those that do not in time are killed."""
        self._is_stopping = True
        for each in itertools.chain(*self._sockets):
            each.close()
        for counterpart in self._present.values():
            counterpart.line.say(say.Drain())
        if self._keeping:
            _, late = await asyncio.wait(self._keeping, timeout=self._drain_s + 1.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._keeping, return_exceptions=True)
        await super().stop()

    def _forget(self, place: int) -> None:
        self._present.pop(place, None)

    def _tell_standing(self) -> None:
        standing = standing_of(self.desk)
        for each in self._present.values():
            each.line.say(standing)

    # ------------------------------------------------------------------ one place

    async def _keep(self, place: int, listening: list[socket.socket]) -> None:
        """Somebody is always there."""
        soon_dead = 0
        while not self._is_stopping:
            began_s = time.monotonic()
            code = await self._one(place, listening)
            if self._is_stopping:
                return
            self._totals.replaced += 1
            soon_dead = soon_dead + 1 if time.monotonic() - began_s < STEADY_S else 0
            pause_s = PAUSES_S[min(soon_dead, len(PAUSES_S) - 1)]
            log.error("front end %d ended (%s) and is replaced in %g s; its clients send again", place, code, pause_s)
            await asyncio.sleep(pause_s)

    async def _one(self, place: int, listening: list[socket.socket]) -> int:
        """The life of one; its exit code."""
        line, their_line = socket.socketpair()
        baton, their_baton = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with their_line, their_baton:
            fds = [each.fileno() for each in (their_line, their_baton, *listening)]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "hetsched.front", str(os.getpid()), *map(str, fds)),
                pass_fds=fds,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        counterpart = Counterpart(self, self._totals, self._up[place].set, partial(self._forget, place))
        try:
            self._totals.crew += 1
            await counterpart.connect(line, baton)
            self._present[place] = counterpart
            counterpart.welcome()
            if self._is_stopping:
                counterpart.line.say(say.Drain())
            return await process.wait()
        finally:
            self._totals.crew -= 1
            counterpart.line.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def sockets_at(host: str, port: int, count: int) -> list[list[socket.socket]]:
    """For each of so many one that listens, on every address of the host, at one port. Raises OSError where somebody else is there: who shares
    a port would not be refused, so it is asked first without sharing."""
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[list[socket.socket]] = [[] for _ in range(count)]
    try:
        for family, kind, protocol, _, address in places:
            with socket.socket(family, kind, protocol) as probe:
                _bind(probe, family, (address[0], port, *address[2:]))
                port = probe.getsockname()[1]
            for each in opened:
                each.append(socket.socket(family, kind, protocol))
                each[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                _bind(each[-1], family, (address[0], port, *address[2:]))
                each[-1].listen(BACKLOG)
                each[-1].setblocking(False)
    except OSError:
        for one in itertools.chain(*opened):
            one.close()
        raise
    return opened


def _bind(each: socket.socket, family: int, address: tuple[Any, ...]) -> None:
    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    each.bind(address)
