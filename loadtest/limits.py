"""What our daemon is measured against: the least that answers a task over HTTP, with aiohttp and without it.

    python -m loadtest.limits aiohttp|bare

Both decode the task of a `POST /v1/schedule` with msgspec into a Struct, keep nothing, and answer 202 with its id. `aiohttp`: a routed handler
on uvloop. `bare`: an asyncio protocol with httptools on uvloop, one write for all answers of a read. The first line on stdout says the port.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any, cast

import msgspec
import uvloop
from aiohttp import web


class Task(msgspec.Struct):
    """The fields of the benchmark's task."""

    id: str
    queue: str
    qos: str
    resources: dict[str, float | str]
    labels: dict[str, str] = {}
    duration: float = 0.0


_decode = msgspec.json.Decoder(Task).decode


async def _handle(request: web.Request) -> web.Response:
    task = _decode(await request.read())
    return web.json_response({"id": task.id, "state": "queued", "lane": "batch"}, status=202, dumps=_dumps)


def _dumps(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Bare(asyncio.Protocol):
    """One connection."""

    parser_of: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = self.parser_of(self)
        self._body = b""
        self._out: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self._transport.write(b"".join(self._out))
        self._out.clear()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body = msgspec.json.encode({"id": _decode(self._body).id, "state": "queued", "lane": "batch"})
        self._body = b""
        head = b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._out.append(head % len(body) + body)


async def _serve(kind: str) -> None:
    loop = asyncio.get_running_loop()
    if kind == "aiohttp":
        app = web.Application()
        app.router.add_post("/v1/schedule", _handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        assert runner.server is not None
        server = await loop.create_server(runner.server, "127.0.0.1", 0)
    else:
        Bare.parser_of = importlib.import_module("httptools").HttpRequestParser  # pip install httptools
        server = await loop.create_server(Bare, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as _runner:
        _runner.run(_serve(sys.argv[1]))
