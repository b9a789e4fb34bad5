"""Logs, read through the agent that holds them, a window at a time.

Promise: a slow reader slows only itself. The daemon asks for at most `WINDOW_BYTES`, and asks again when those are handed on; so
neither the link nor the daemon's memory ever holds more than one window per reader.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing

from hetsched import wire
from hetsched.daemon.link import AgentLink
from hetsched.daemon.links import Links
from hetsched.errors import Gone, HetschedError, NotFound, TooBusy, Unavailable

WINDOW_BYTES = 256 * 1024
ANSWER_S = 10.0
"""Longest wait for an agent's answer to a read that does not follow."""


class Logs:
    """Opens readers on whichever agent holds the log."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._requests = itertools.count(1)

    async def read(
        self, node: str, task: str, attempt: int, stream: str, offset: int, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        """Pieces of the log from byte `offset`; with `follow` until the attempt has ended and all is read.

        Raises Unavailable when the agent is not connected, NotFound or Gone when it has no such log.
        """
        more = True
        while more:
            more = False
            ask = wire.ReadLog(next(self._requests), task, attempt, stream, offset, WINDOW_BYTES, follow)
            async with aclosing(self._window(self._link(node), ask)) as window:
                async for data in window:
                    if data.data:
                        offset = data.offset + len(data.data)
                        yield data.data
                    more = not data.end and (follow or bool(data.data))

    def _link(self, node: str) -> AgentLink:
        link = self._links.by_node.get(node)
        if link is None:
            raise Unavailable(f"the log lies on {node}, whose agent is not connected")
        return link

    async def _window(self, link: AgentLink, ask: wire.ReadLog) -> AsyncGenerator[wire.LogData, None]:
        answers: asyncio.Queue[wire.LogData | None] = asyncio.Queue()
        link.log_readers[ask.request] = answers
        link.send(ask)
        left = ask.limit_bytes
        done = False
        try:
            while not done:
                data = await _answer(answers, link.node, None if ask.follow else ANSWER_S)
                left -= len(data.data)
                done = data.end or left <= 0 or not ask.follow
                yield data
        finally:
            del link.log_readers[ask.request]
            if not done:
                link.send(wire.CloseLog(ask.request))


async def _answer(answers: asyncio.Queue[wire.LogData | None], node: str, patience_s: float | None) -> wire.LogData:
    try:
        async with asyncio.timeout(patience_s):
            data = await answers.get()
    except TimeoutError:
        raise Unavailable(f"the agent of {node} does not answer") from None
    if data is None:
        raise Unavailable(f"the agent of {node} has gone")
    if data.error:
        raise _refusal(data.error, node)
    return data


def _refusal(code: str, node: str) -> HetschedError:
    match code:
        case "gone":
            return Gone("the log is no longer kept")
        case "busy":
            return TooBusy(f"the agent of {node} has too many readers", retry_after=2)
        case "unreadable":
            return Unavailable(f"the agent of {node} cannot read this log; its own log tells why", retry_after=30)
        case _:
            return NotFound(f"{node} has no such log ({code})")
