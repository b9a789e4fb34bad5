"""A helper process that answers one question after the other: frames to its stdin, frames from its stdout.

Promises: it ends with the daemon, however that ends (its stdin is closed then); what it does can neither stop nor block the daemon. A helper
that dies or does not answer in time is killed, its question fails with Unavailable, and the next question starts a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence

from hetsched.errors import Unavailable

log = logging.getLogger("hetsched.daemon")

LENGTH_BYTES = 8


def frame(payload: bytes) -> bytes:
    """As it goes over the pipe."""
    return len(payload).to_bytes(LENGTH_BYTES, "little") + payload


class Sidecar:
    """`python -m MODULE`, started at the first question."""

    def __init__(self, module: str, patience_s: float) -> None:
        self._module = module
        self._patience_s = patience_s
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        self.starts = 0
        """How often a process was started: whoever told the last one something has to tell it the next one again."""

    async def ask(self, build: Callable[[], Sequence[bytes]]) -> bytes:
        """Send what `build` returns when it is this question's turn; the answer to the last of it. Whoever asked may go away: the exchange
        is brought to its end."""
        return await asyncio.shield(asyncio.ensure_future(self._ask(build)))

    def close(self) -> None:
        """End it; nothing new."""
        self._closed = True
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._process = None

    async def _ask(self, build: Callable[[], Sequence[bytes]]) -> bytes:
        async with self._turn:
            reader, writer = await self._pipes()
            try:
                async with asyncio.timeout(self._patience_s):
                    for payload in build():
                        writer.write(frame(payload))
                        await writer.drain()
                    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
                    return await reader.readexactly(length)
            except (TimeoutError, ConnectionError, asyncio.IncompleteReadError) as error:
                self._kill()
                if not self._closed:
                    log.warning("%s gave no answer: %s", self._module, type(error).__name__)
                raise Unavailable("the helper that answers this gave no answer; ask again") from None

    async def _pipes(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Of the helper, which is started unless it runs."""
        if self._closed:
            raise Unavailable("the daemon is stopping")
        if self._process is None or self._process.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            self.starts += 1
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self._module, stdin=pipe, stdout=pipe
            )
        assert self._process.stdout is not None and self._process.stdin is not None
        return self._process.stdout, self._process.stdin
