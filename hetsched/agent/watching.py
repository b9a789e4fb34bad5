"""Shims by pidfd, readable the moment its shim is gone, however that happened: those of an earlier agent or spawner, who do not speak to
us, and those that are nudged.

A pidfd names one process for ever, so a nudge cannot hit whoever got its pid later.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from hetsched.agent.attempts import Key
from hetsched.agent.shim import processes


class Shims:
    """The living shims by attempt. `gone(key)` is called in the event loop, once for each watched shim that is no more."""

    def __init__(self, gone: Callable[[Key], None]) -> None:
        self._gone = gone
        self._handles: dict[Key, int] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._handles

    def watch(self, key: Key, pid: int, started: int) -> bool:
        """False if no process of that pid and start time lives (any more). Raises OSError if that cannot be known now: no more
        descriptors, say; it must never pass for a death."""
        if key in self._handles:
            return True
        if pid <= 0:
            return False
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            alive = processes.is_alive(pid, started)
        except OSError:
            os.close(handle)
            raise
        if not alive:
            os.close(handle)
            return False
        self._handles[key] = handle
        asyncio.get_running_loop().add_reader(handle, self._ended, key)
        return True

    def nudge(self, key: Key) -> None:
        """Have it look whether it is to stop."""
        handle = self._handles.get(key)
        if handle is not None:
            try:
                signal.pidfd_send_signal(handle, signal.SIGUSR1)
            except ProcessLookupError:
                pass  # `_ended` is on its way

    def release(self, key: Key) -> None:
        """Looks away from one, if it was watched: its shim may do something else by now."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)

    def close(self) -> None:
        """Looks away; the shims go on."""
        for key in list(self._handles):
            self.release(key)

    def _ended(self, key: Key) -> None:
        self.release(key)
        self._gone(key)
