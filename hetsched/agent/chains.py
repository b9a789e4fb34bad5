"""Work on disk, in order for one attempt and in parallel for many.

Promises: of one attempt's works each begins when the one before has ended, whatever became of that; an error is logged with the
attempt's name and ends only its own work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from hetsched.agent.attempts import Key

log = logging.getLogger("hetsched.agent")

T = TypeVar("T")

_THREADS = 8  # each start waits for an fsync; more of them than this share the disk anyway


class Chains:
    """The pending works of every attempt."""

    def __init__(self) -> None:
        self._last: dict[Key, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="disk")

    def add(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        """After all that was added for `key` before."""
        task = asyncio.get_running_loop().create_task(self._after(self._last.get(key), key, work))
        self._last[key] = task
        task.add_done_callback(lambda done: self._last.pop(key) if self._last.get(key) is done else None)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Runs what blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def close(self, patience_s: float) -> None:
        """Waits for all works; cancels those that take longer (hunting what cannot be killed)."""
        if self._last:
            _, late = await asyncio.wait(list(self._last.values()), timeout=patience_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._threads.shutdown(wait=True)

    @staticmethod
    async def _after(previous: asyncio.Task[None] | None, key: Key, work: Coroutine[Any, Any, None]) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        try:
            await work
        except Exception:
            log.exception("%s attempt %d: work on its files failed", *key)
