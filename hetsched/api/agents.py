"""`GET /v1/agents/connect`: the WebSocket that an agent opens, handed to the links as a plain message socket."""

from __future__ import annotations

import asyncio

from aiohttp import WSMsgType, web

from hetsched.api.call import Call
from hetsched.api.problem import plain

MESSAGE_BYTES = 16 * 1024 * 1024
"""A hello with 100,000 attempts fits."""


async def connect(call: Call) -> web.StreamResponse:
    """Serve one agent until it is gone."""
    links = call.daemon.links
    socket = web.WebSocketResponse(max_msg_size=MESSAGE_BYTES, autoping=True, compress=False)
    if not socket.can_prepare(call.request).ok:
        raise plain(426, "upgrade", "This is a WebSocket", "node agents connect here; hetsched agent does it")
    await socket.prepare(call.request)
    await links.serve(_AgentSocket(socket))
    return socket


class _AgentSocket:
    """`hetsched.daemon.link.Socket` over aiohttp's."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def receive(self) -> bytes | None:
        message = await self._socket.receive()
        return message.data if message.type is WSMsgType.BINARY else None

    async def send(self, data: bytes) -> None:
        await self._socket.send_bytes(data)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self._socket.close()
        except (TimeoutError, ConnectionError):
            pass
