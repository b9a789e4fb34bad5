"""A connection under TLS that was handed over: the front end goes on translating between the client and the inner end of a pair of sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

_RUNNING: set[asyncio.Task[object]] = set()


class _Half(asyncio.Protocol):
    """What comes here goes out at the other half, and no faster than it does; where one is cut, the other is closed."""

    def __init__(self, transport: asyncio.Transport | None = None) -> None:
        self.transport = transport
        self.other: _Half | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        if self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


def tunnel(loop: asyncio.AbstractEventLoop, outer: asyncio.Transport, inner: socket.socket) -> None:
    """From now on what `outer` says goes to `inner`, and back. `outer` is not being read when this is called."""
    client, server = _Half(outer), _Half()
    client.other, server.other = server, client
    outer.set_protocol(client)

    async def join() -> None:
        inner.setblocking(False)
        await loop.connect_accepted_socket(lambda: server, inner)
        if client.transport is not None:
            outer.resume_reading()
        elif server.transport is not None:
            server.transport.close()  # the client went meanwhile

    task: asyncio.Task[object] = loop.create_task(join())
    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
