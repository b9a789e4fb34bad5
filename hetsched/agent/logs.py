"""What tasks said, read from disk for the daemon: a window at a time, followed while it grows, kept for a while.

Promises: only an attempt's own `stdout` and `stderr` below `tasks/` are ever opened, without following links, and only if they are
plain files; a log that retention removed is "gone", never an error of another kind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Coroutine
from typing import Any

from hetsched import wire
from hetsched.agent.attempts import Attempts, Key
from hetsched.agent.shim import files, streams
from hetsched.agent.spool import Spool

log = logging.getLogger("hetsched.agent")

PIECE_BYTES = 64 * 1024
_LOOK_S, _LONGEST_LOOK_S = 0.05, 0.4  # a stream that is silent is looked at less often
_MOST_READERS = 256

Send = Callable[[wire.LogData], Coroutine[Any, Any, None]]


class Logs:
    """All readers of one link. `send` waits while the link is full."""

    def __init__(self, attempts: Attempts, spool: Spool, send: Send) -> None:
        self._attempts = attempts
        self._spool = spool
        self._send = send
        self._readers: dict[int, asyncio.Task[None]] = {}

    def open(self, ask: wire.ReadLog) -> None:
        """Begins to answer."""
        if len(self._readers) >= _MOST_READERS:
            self._start(ask.request, self._send(wire.LogData(ask.request, ask.offset, b"", True, "busy")))
        else:
            self._start(ask.request, self._answer(ask))

    def close(self, request: int) -> None:
        """Nobody reads that any more."""
        reader = self._readers.pop(request, None)
        if reader is not None:
            reader.cancel()

    def close_all(self) -> None:
        """The link is gone."""
        for request in list(self._readers):
            self.close(request)

    def _start(self, request: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._readers[request] = task
        task.add_done_callback(lambda done: self._readers.pop(request) if self._readers.get(request) is done else None)

    async def _answer(self, ask: wire.ReadLog) -> None:
        key = Key(ask.task, ask.attempt) if ask.attempt else self._latest(ask.task)
        error = "unknown" if ask.stream not in streams.NAMES else "gone"
        if key is not None and error != "unknown":
            try:
                await self._read(key, ask)
                return
            except FileNotFoundError:
                pass
            except OSError as trouble:
                log.warning("%s attempt %d: its %s cannot be read: %s", *key, ask.stream, trouble)
                error = "unreadable"
        await self._send(wire.LogData(ask.request, ask.offset, b"", True, error))

    async def _read(self, key: Key, ask: wire.ReadLog) -> None:
        """One piece without `follow`; with it, until the attempt has ended or the window is full."""
        offset, left, pause_s = ask.offset, ask.limit_bytes, _LOOK_S
        while True:
            ended = self._has_ended(key)  # before the read: what was said until then is in it
            limit_bytes = min(left, PIECE_BYTES) if ask.follow else left
            start, data, size = await asyncio.to_thread(self._piece, key, ask.stream, offset, limit_bytes)
            end = ended and start + len(data) >= size
            if data or end or not ask.follow:
                await self._send(wire.LogData(ask.request, start, data, end))
            offset, left = start + len(data), left - len(data)
            if end or not ask.follow or left <= 0:
                return
            pause_s = _LOOK_S if data else min(2 * pause_s, _LONGEST_LOOK_S)
            if not data:
                await asyncio.sleep(pause_s)

    def _latest(self, task: str) -> Key | None:
        return self._attempts.latest(task) or self._spool.latest(task)

    def _has_ended(self, key: Key) -> bool:
        row = self._attempts.get(key)
        return row is None or row.outcome is not None

    def _piece(self, key: Key, stream: str, offset: int, limit_bytes: int) -> tuple[int, bytes, int]:
        """(where it starts, the bytes, size of the log). It starts later than asked where that is no longer kept."""
        handle = self._open(key, stream)
        if handle is None:  # not begun yet, or it has no process, or it left nothing
            return offset, b"", 0
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise OSError("not a plain file")
            start = streams.first_kept(handle, offset) if offset < status.st_size else offset
            data = os.pread(handle, limit_bytes, start)
        finally:
            os.close(handle)
        # Read first, then looked: a directory in which nothing was left becomes another attempt's.
        return (offset, b"", 0) if self._left_nothing(key) else (start, data, status.st_size)

    def _open(self, key: Key, stream: str) -> int | None:
        """None: the attempt is here, but has said nothing (yet). FileNotFoundError: nothing of it is here (any more)."""
        if self._left_nothing(key):
            return None
        try:
            directory = files.open_directory(str(self._spool.path(key)))
        except FileNotFoundError:
            row = self._attempts.get(key)
            if self._left_nothing(key) or (row is not None and row.outcome is None):
                return None
            raise
        try:
            return os.open(stream, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            return None
        finally:
            os.close(directory)

    def _left_nothing(self, key: Key) -> bool:
        entry = self._spool.get(key)
        return entry is not None and entry.ended is not None and entry.ended.silent
