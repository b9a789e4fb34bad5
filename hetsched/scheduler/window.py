"""The batch lane's window: gathered until `size` tasks have come or `max_wait` is over, then flushed in one decision.

Where it is `eager`, nobody waits in vain: who comes after a window's time in which nothing was flushed is decided at once, and when a window
has brought nobody together, so are the next ones, until another one is tried. Clients that wait for one task before they submit the next are
served like that, and streams are gathered.
"""

from __future__ import annotations

IN_VAIN = 8
"""After a window that brought nobody together so many are not waited for."""


class Window:
    """`opened_ns`: when the first change since the last flush came; None = closed, nothing to decide. `part`: of the last flush that had
    gathered tasks, for how much of the window they had waited in the mean, 0 to 1."""

    def __init__(self, size: int, max_wait_ns: int) -> None:
        self.size = size
        self.max_wait_ns = max_wait_ns
        self.opened_ns: int | None = None
        self.gathered = 0
        self.flushes = 0
        self.part = 1.0
        self.eager = False
        self._flushed_ns: int | None = None
        self._turns = 0  # that brought something since it was opened
        self._in_vain = 0  # windows that need not be waited for
        self._missed_ns = 0  # summed over the gathered tasks: how long the window had been open when they came

    def gather(self, arrived: int, capacity_changed: bool, waiting: int, now_ns: int) -> None:
        """Note what this turn brought. With nobody waiting there is nothing to open for."""
        if not waiting:
            self.close()
        elif arrived or capacity_changed:
            self._turns += 1
            self.gathered += arrived
            self._missed_ns += arrived * (now_ns - self.open(now_ns))

    def open(self, now_ns: int) -> int:
        """Open it unless it is open; when it was opened."""
        if self.opened_ns is None:
            self.opened_ns = now_ns
        return self.opened_ns

    def flush(self, now_ns: int) -> None:
        """What it gathered is decided now."""
        if self.gathered and self.opened_ns is not None and now_ns > self.opened_ns:
            self.part = 1.0 - self._missed_ns / (self.gathered * (now_ns - self.opened_ns))
        if self.opened_ns != now_ns:
            self._in_vain = IN_VAIN if self._turns == 1 else 0
        else:
            self._in_vain = max(0, self._in_vain - 1)
        self._flushed_ns = now_ns
        self.close()

    def close(self) -> None:
        """Flushed, or nothing left to flush."""
        if self.opened_ns is not None:
            self.flushes += 1
        self.opened_ns = None
        self.gathered = self._missed_ns = self._turns = 0

    def due_ns(self) -> int | None:
        """When it has to be flushed at the latest."""
        if self.opened_ns is None:
            return None
        return self.opened_ns if self.eager and self._is_alone() else self.opened_ns + self.max_wait_ns

    def _is_alone(self) -> bool:
        """Nobody else is to be expected."""
        assert self.opened_ns is not None
        return self._in_vain > 0 or self._flushed_ns is None or self.opened_ns - self._flushed_ns >= self.max_wait_ns

    def is_due(self, now_ns: int) -> bool:
        """Full or over."""
        due_ns = self.due_ns()
        return due_ns is not None and (self.gathered >= self.size or now_ns >= due_ns)
