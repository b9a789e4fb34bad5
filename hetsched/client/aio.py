"""The client for asyncio: each call runs in a thread, at a client's pace cheaper than a second implementation.

await AsyncClient(client).call(Client.submit, {"command": ["true"]})
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from hetsched.client import Client

_T = TypeVar("_T")


class AsyncClient:
    """Wraps a Client, which any number of these may share."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, method: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """`method` of Client, with these arguments."""
        return await asyncio.to_thread(partial(method, self.client, *args, **kwargs))

    async def events(self, since: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """The event log, for ever."""
        stream = self.client.events(since)
        while (event := await asyncio.to_thread(next, stream, None)) is not None:
            yield event
