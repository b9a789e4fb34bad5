"""Ending background tasks for certain.

*Why not just cancel and wait (2026-11-29).* Python 3.11's `asyncio.wait_for`, which redis-py puts around every send, forgets a
cancellation that arrives in the moment in which what it waits for is done. The task then goes on, and whoever waits for its end waits
for ever: seen as a close that hung, about once in six on a machine with eight busy processes on two cores.
"""

from __future__ import annotations

import asyncio
from typing import Any


async def end(*tasks: asyncio.Task[Any], again_s: float = 1.0) -> None:
    """Cancel the tasks, again every `again_s`, until they are done; their errors are of no interest any more.

    A task that ends others itself needs a larger `again_s` than it gives them, or it is interrupted in that."""
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=again_s)
    await asyncio.gather(*tasks, return_exceptions=True)
