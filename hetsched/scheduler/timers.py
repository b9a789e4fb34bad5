"""Everything that has to happen at a time, in one ordered list; at most one timer per (kind, subject).

The scheduler never sleeps: it asks `next_ns` for the instant at which it wants to be called again.
"""

from __future__ import annotations

from enum import IntEnum

from sortedcontainers import SortedList


class Timer(IntEnum):
    """What is due. The subject is a task slot, but a gang's name for REPAIR and a graph's id for GRAPH and PLANNING."""

    BACKOFF = 1
    DEADLINE = 2
    TIME_LIMIT = 3
    CLAIM = 4
    REPAIR = 5
    DAMPED = 6
    GRAPH = 15
    PLANNING = 16


Subject = int | str


class Timers:
    """Ordered by time, then by the order in which they were set."""

    def __init__(self) -> None:
        self._due: SortedList[tuple[int, int, Timer, Subject]] = SortedList()
        self._entry: dict[tuple[Timer, Subject], tuple[int, int, Timer, Subject]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, kind: Timer, subject: Subject, when_ns: int) -> None:
        """Set or move the timer."""
        self.clear(kind, subject)
        self._count += 1
        entry = (when_ns, self._count, kind, subject)
        self._due.add(entry)
        self._entry[kind, subject] = entry

    def clear(self, kind: Timer, subject: Subject) -> None:
        """Forget it; nothing happens if it is not set."""
        entry = self._entry.pop((kind, subject), None)
        if entry is not None:
            self._due.remove(entry)

    def when(self, kind: Timer, subject: Subject) -> int | None:
        """Nanoseconds since 1970, or None when it is not set."""
        entry = self._entry.get((kind, subject))
        return None if entry is None else entry[0]

    def next_ns(self) -> int | None:
        """When the first one is due."""
        return self._due[0][0] if self._due else None

    def pop(self, now_ns: int) -> list[tuple[Timer, Subject]]:
        """All that are due at `now_ns`, in order; they are no longer set."""
        due = []
        while self._due and self._due[0][0] <= now_ns:
            _, _, kind, subject = self._due.pop(0)
            del self._entry[kind, subject]
            due.append((kind, subject))
        return due
