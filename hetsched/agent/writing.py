"""The agent's one writer: what is noted in a turn of the loop goes into the ledger together, on a thread of its own.

Promises: what is to happen `then` happens in the loop, in the order of the notes, when their lines are on disk; while one write is under
way the next ones gather. A disk that refuses is asked again every second; who does not want to wait so long says what else to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hetsched.agent.ledger import AnyLine
from hetsched.agent.spool import Spool

log = logging.getLogger("hetsched.agent")

Then = Callable[[], None]
Else = Callable[[OSError], None]

_AGAIN_S = 1.0
_CLOSING_WRITES = 3  # what the first one brings about may be noted too
_LINGER_S = 0.005  # ends wait so long for company: nobody waits for them, and every write costs a thread's waking


class Writer:
    """Of one spool."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._waiting: list[tuple[Then, Else | None]] = []
        self._turn: asyncio.Handle | None = None
        self._is_urgent = self._is_soon = False
        self._refused: list[bytes] = []
        self._under_way: asyncio.Future[None] | None = None

    def note(self, line: AnyLine, then: Then | None = None, otherwise: Else | None = None) -> None:
        """Counts at once (`Spool.note`); `then` when it is on disk, or `otherwise` when the disk has refused it once. Who says what else to
        do is in a hurry."""
        self._spool.note(line)
        if then is not None:
            self._waiting.append((then, otherwise))
        self._is_urgent = self._is_urgent or otherwise is not None
        self.flush()

    def flush(self) -> None:
        """Something was noted."""
        if self._under_way is not None or self._refused or (self._turn is not None and self._is_soon):
            return
        loop = asyncio.get_running_loop()
        if self._is_urgent:
            if self._turn is not None:
                self._turn.cancel()
            self._turn = loop.call_soon(self._write)
        elif self._turn is None:
            self._turn = loop.call_later(_LINGER_S, self._write)
        self._is_soon = self._is_urgent

    async def close(self) -> None:
        """What was noted is on disk, as far as it can be put there."""
        for _ in range(_CLOSING_WRITES):
            if self._turn is not None:
                self._turn.cancel()
                self._write()
            if self._under_way is None:
                break
            await asyncio.wait([self._under_way])
            await asyncio.sleep(0)
        if self._turn is not None:
            self._turn.cancel()
        self._thread.shutdown()

    def _write(self) -> None:
        self._turn, self._is_urgent, self._is_soon = None, False, False
        if self._spool.has_grown:
            lines, write = self._spool.whole(), self._spool.replace
        else:
            lines, write = self._refused + self._spool.noted(), self._spool.write
        if not lines:
            return
        waiting, self._waiting, self._refused = self._waiting, [], []
        self._under_way = asyncio.get_running_loop().run_in_executor(self._thread, write, lines)
        self._under_way.add_done_callback(lambda done: self._written(done, lines, waiting))

    def _written(self, done: asyncio.Future[None], lines: list[bytes], waiting: list[tuple[Then, Else | None]]) -> None:
        self._under_way = None
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            for then, _ in waiting:
                then()
            if self._spool.is_behind:
                self.flush()
        elif isinstance(error, OSError):
            log.error("the ledger cannot be written now: %s", error)
            self._refused = lines
            self._waiting[:0] = [one for one in waiting if one[1] is None]
            for _, otherwise in waiting:
                if otherwise is not None:
                    otherwise(error)
            if self._turn is not None:
                self._turn.cancel()
            self._turn = asyncio.get_running_loop().call_later(_AGAIN_S, self._write)
        else:
            raise error
