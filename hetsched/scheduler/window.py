"""The batch lane's window: gathered until `size` tasks have come or `max_wait` is over, then flushed in one decision.

Where it is `eager`, who comes after a window's time in which nothing was flushed is decided at once: there is nobody to be gathered with. What
comes soon after that is gathered."""

from __future__ import annotations


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
        self._missed_ns = 0  # summed over the gathered tasks: how long the window had been open when they came

    def gather(self, arrived: int, capacity_changed: bool, waiting: int, now_ns: int) -> None:
        """Note what this turn brought. With nobody waiting there is nothing to open for."""
        if not waiting:
            self.close()
        elif arrived or capacity_changed:
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
        self._flushed_ns = now_ns
        self.close()

    def close(self) -> None:
        """Flushed, or nothing left to flush."""
        if self.opened_ns is not None:
            self.flushes += 1
        self.opened_ns = None
        self.gathered = self._missed_ns = 0

    def due_ns(self) -> int | None:
        """When it has to be flushed at the latest."""
        if self.opened_ns is None:
            return None
        is_alone = self.eager and (self._flushed_ns is None or self.opened_ns - self._flushed_ns >= self.max_wait_ns)
        return self.opened_ns if is_alone else self.opened_ns + self.max_wait_ns

    def is_due(self, now_ns: int) -> bool:
        """Full or over."""
        due_ns = self.due_ns()
        return due_ns is not None and (self.gathered >= self.size or now_ns >= due_ns)
