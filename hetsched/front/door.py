"""A client's connection in a front end: what is kept, and what is handed over to the deciding process.

Kept are requests to submit whose head is whole, whose end is plain to see and that ask for nothing else. Whatever else a connection says, or
says while the deciding process takes nothing, makes it change hands: with all bytes from that request on, once everything before is answered
and has left. So refusals are written there, but for those of bodies that were read here.

aiohttp gets one request at a time here and never a byte of the next: what it has seen could not be handed over any more.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, Protocol

from aiohttp import web
from aiohttp.web_request import BaseRequest

from hetsched.api.heads import END, LINE
from hetsched.api.protocol import LOOKS, Door, address_of, size_of_request
from hetsched.front.baton import Came
from hetsched.front.tunnel import tunnel

LOOK_AGAIN_S = 0.01


class Porter(Protocol):
    """What a door needs of its front end."""

    @property
    def takes(self) -> bool:
        """The deciding process takes submissions now."""

    def entered(self, door: FrontDoor, address: str) -> int:
        """A client has come; its number."""

    def left(self, connection: int) -> None:
        """It has gone, or was handed over."""

    def hand_over(self, fd: int, came: Came, data: bytes) -> None:
        """To the deciding process; `fd` is the porter's from now on."""


class FrontDoor(Door):
    """One connection."""

    __slots__ = ("_leaving", "_number", "_porter")

    def __init__(self, porter: Porter, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._porter = porter
        self._number = 0
        self._leaving: bytes | None = None  # to be handed over once what was said has left

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._number = self._porter.entered(self, address_of(transport))
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._porter.left(self._number)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        return self._leaving is not None or super().eof_received()

    # ------------------------------------------------------------------ keeping

    def data_received(self, data: bytes) -> None:
        if self._held or self._is_full() or self._leaving is not None:
            self._hold(data)
        elif self._owed > 0:
            ours, rest = data[: self._owed], data[self._owed :]
            self._to_aiohttp(ours)
            if rest:
                self._hold(rest)
        elif not self._is_between():
            self._hold(data)
        else:
            taken = self._lane.take(data)
            if taken and self._head_timer is not None:
                self._head_came()
            if taken < len(data):
                self._not_taken(data[taken:] if taken else data)
            else:
                self._all_taken()

    def _not_taken(self, data: bytes) -> None:
        self._only_singles = False
        if self._lane.open:
            self._hold(data)
            return
        size = size_of_request(data) if self._porter.takes and is_ours(data) else None
        if size is None:
            self._leave(data)
            return
        self._to_aiohttp(data[:size])
        if size < len(data):
            self._hold(data[size:])

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        finished = await super().finish_response(request, resp, start_time)
        self._loop.call_soon(self._look_again, LOOKS)
        return finished

    def _look_again(self, looks: int) -> None:
        if self._is_between():
            if self._held:
                self._go_on(self.data_received)
        elif looks:
            self._loop.call_soon(self._look_again, looks - 1)
        elif self._held and self.transport is not None:  # it reads on in a body that it has refused
            self._loop.call_later(LOOK_AGAIN_S, self._look_again, 0)

    def _hold(self, data: bytes) -> None:
        super()._hold(data)
        if self._is_held_back and self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()  # aiohttp reads on when it has taken a body in

    # ------------------------------------------------------------------ handing over

    def _leave(self, data: bytes) -> None:
        assert self.transport is not None
        self._head_came()
        self._leaving = data
        self.transport.pause_reading()
        if self._is_tls():  # what is still to be written stays in front of what the tunnel brings
            self._go()
            return
        self.transport.set_write_buffer_limits(0)
        if self.transport.get_write_buffer_size() == 0:
            self._go()

    def resume_writing(self) -> None:
        if self._leaving is None:
            super().resume_writing()
        else:
            self._go()

    def _go(self) -> None:
        """Everything that was said has left; the deciding process goes on."""
        transport, data = self.transport, self._leaving
        if transport is None or data is None or transport.is_closing():
            return
        is_tls = self._is_tls()
        came = Came(connection=self._number, address=address_of(transport), is_tls=is_tls, size=len(data))
        if is_tls:
            inner, theirs = socket.socketpair()
            self._porter.hand_over(theirs.detach(), came, data)
            tunnel(self._loop, transport, inner)
            self.transport = None  # it has another protocol now, and is not to be closed
            self.connection_lost(None)
        else:
            self._porter.hand_over(os.dup(transport.get_extra_info("socket").fileno()), came, data)
            transport.abort()


def is_ours(data: bytes) -> bool:
    """Whether a front end may answer the request with which the data begins. `Prefer` asks when tasks are placed, which it cannot know."""
    return data.startswith(LINE) and b"\r\nprefer" not in data[: data.find(END)].lower()
