"""What the operating system says to the daemon (SIGTERM, SIGINT, SIGHUP), and what the daemon says to systemd.

SIGTERM and SIGINT stop; a second one stops at once, which is as safe as kill -9 (that is: safe) but answers nobody.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from hetsched import sdnotify

STOP = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Context in which signals are heard. `stop` is set by the first SIGTERM or SIGINT; SIGHUP calls `reload`."""

    def __init__(self, reload: Callable[[], None]) -> None:
        self.stop = asyncio.Event()
        self._reload = reload

    def __enter__(self) -> Signals:
        loop = asyncio.get_running_loop()
        for number in STOP:
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        return self

    def __exit__(self, *exc: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (*STOP, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _on_stop(self) -> None:
        if self.stop.is_set():
            os._exit(128 + signal.SIGTERM)
        self.stop.set()


class Supervisor:
    """systemd, if it is there: READY when the daemon first leads or stands by, WATCHDOG from then on, STOPPING at the end. The watchdog is fed
    by the daemon's own loop, so a loop that hangs starves it."""

    def __init__(self) -> None:
        self._feeding: asyncio.Task[None] | None = None

    def ready(self, status: str) -> None:
        """It leads, or stands by."""
        sdnotify.notify("READY=1", f"STATUS={status}")
        if self._feeding is None:
            self._feeding = asyncio.create_task(self._feed(), name="watchdog")

    def stopping(self) -> None:
        """It was told to stop, or has to."""
        if self._feeding is not None:
            self._feeding.cancel()
            sdnotify.notify("STOPPING=1", "STATUS=stopping; tasks go on")

    async def _feed(self) -> None:
        every_s = sdnotify.watchdog_s()
        while every_s is not None:
            sdnotify.notify("WATCHDOG=1")
            await asyncio.sleep(every_s)
