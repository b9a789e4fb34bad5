"""Works that stand and fall together: the agent's own, and those of its line to the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def until_one_ends(*works: Awaitable[Any]) -> None:
    """Side by side until the first is over; raises what it raised. The others are cancelled, and over too when this returns."""
    running = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for work in done:
            work.result()
    finally:
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)
