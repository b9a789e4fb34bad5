"""The virtual clock's agenda: what is to happen when, in order of time and then of being entered."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from hetsched.scheduler.messages import Input

Action = Callable[[int], list[Input]]


class Agenda:
    """Actions get the time and return what the scheduler hears of them; one that is no longer meant returns nothing."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Action]] = []
        self._entered = 0

    def __len__(self) -> int:
        return len(self._heap)

    def enter(self, at_ns: int, action: Action) -> None:
        """Let `action` happen at `at_ns`."""
        self._entered += 1
        heapq.heappush(self._heap, (at_ns, self._entered, action))

    def next_ns(self) -> int | None:
        """When the first one is due."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_ns: int) -> list[Input]:
        """Let all that is due happen, in order."""
        heard: list[Input] = []
        while self._heap and self._heap[0][0] <= now_ns:
            heard += heapq.heappop(self._heap)[2](now_ns)
        return heard
