"""A closed-loop generator that costs little: keep-alive connections, each with one request under way, built beforehand.

It finds a server's saturation, which an open-loop generator cannot be faster than; latencies here are those at saturation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

import msgspec
import uvloop


class Hammered(msgspec.Struct):
    """`seconds` from the first request to the last answer."""

    answers: int
    seconds: float
    latencies_s: list[float]
    refused: int

    def percentile_ms(self, part: float) -> float:
        """Of the latencies."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1e3


class _Connection(asyncio.Protocol):
    def __init__(self, hammered: Hammered, ask: Callable[[], bytes | None], done: asyncio.Event) -> None:
        self._hammered = hammered
        self._ask = ask
        self._done = done
        self._got = b""
        self._sent_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def _next(self) -> None:
        request = self._ask()
        if request is None:
            self._transport.close()
            self._done.set()
            return
        self._sent_s = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._got = self._got + data if self._got else data
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self._got.find(b"Content-Length: ") + 16
        if len(self._got) < end + 4 + int(self._got[at : self._got.find(b"\r", at)]):
            return
        self._hammered.latencies_s.append(time.perf_counter() - self._sent_s)
        self._hammered.answers += 1
        self._hammered.refused += not self._got.startswith(b"HTTP/1.1 202")
        self._got = b""
        self._next()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._done.set()


async def _hammer(port: int, ask: Callable[[], bytes | None], connections: int) -> Hammered:
    hammered = Hammered(0, 0.0, [], 0)
    loop = asyncio.get_running_loop()
    ends = [asyncio.Event() for _ in range(connections)]
    began_s = time.perf_counter()
    for end in ends:
        await loop.create_connection(lambda end=end: _Connection(hammered, ask, end), "127.0.0.1", port)  # type: ignore[misc]
    for end in ends:
        await end.wait()
    hammered.seconds = time.perf_counter() - began_s
    return hammered


def hammer(port: int, ask: Callable[[], bytes | None], connections: int) -> Hammered:
    """Until `ask` has no more requests."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_hammer(port, ask, connections))
