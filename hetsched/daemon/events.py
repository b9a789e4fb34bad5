"""The last events in memory, for watchers: a ring that `GET /v1/events` reads from any point still kept.

Promises: a reader sees every event after the one it names, once, in order, or is told `gone`; a slow reader costs nothing but
its own place (it reads from the ring, the ring waits for nobody). The journal is the record; this is a window on it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable

from hetsched.errors import Gone
from hetsched.scheduler.messages import Event, EventRun


class EventRing:
    """`kept`: how many. `last_seq`: of the last event before this start, which is no longer here."""

    def __init__(self, kept: int, last_seq: int = 0) -> None:
        self.kept = kept
        self.last_seq = last_seq
        self.first_seq = last_seq + 1
        self._parts: list[Event | EventRun] = []
        self._begins: list[int] = []  # of each part, the number of its first event
        self._gone = 0  # so many of the parts, from the left, tell of nothing that is kept
        self._changed = asyncio.Event()
        self._watches: dict[str, set[TaskWatch]] = {}

    def publish(self, events: Iterable[Event | EventRun]) -> None:
        """Append, dropping the oldest; wake whoever waits."""
        for event in events:
            if event.seq != self.last_seq + 1:
                self.first_seq = event.seq  # a gap: what is before it cannot be promised to be whole
            self._parts.append(event)
            self._begins.append(event.seq)
            if isinstance(event, Event):
                self.last_seq = event.seq
                if event.task is not None:
                    self._touch(event.task)
                continue
            self.last_seq = event.seq + len(event) - 1
            if self._watches:
                for task in event.tasks():
                    self._touch(task)
        self.first_seq = max(self.first_seq, self.last_seq - self.kept + 1)
        self._drop()
        self._changed.set()
        self._changed = asyncio.Event()

    def _drop(self) -> None:
        """Parts go when the next one begins where what is kept does; the lists are cut when half of them is gone."""
        begins, gone = self._begins, self._gone
        while gone + 1 < len(begins) and begins[gone + 1] <= self.first_seq:
            gone += 1
        self._gone = gone
        if 2 * gone > len(begins):
            del self._parts[:gone], begins[:gone]
            self._gone = 0

    def _touch(self, task: str) -> None:
        for watch in self._watches.get(task, ()):
            watch.touch(task)

    def after(self, seq: int, limit: int) -> list[Event]:
        """Up to `limit` events following `seq`; Gone if some of them are no longer kept, or if `seq` is of another journal's future."""
        events: list[Event] = []
        for number, part in self.parts_after(seq, limit):
            if isinstance(part, Event):
                events.append(part)
            else:
                end = min(part.seq + len(part), number + limit - len(events))
                events += [part.event(at) for at in range(number, end)]
        return events

    def parts_after(self, seq: int, limit: int) -> list[tuple[int, Event | EventRun]]:
        """What tells of the events following `seq`, runs unopened, until there are `limit` events: of each part the first event that is meant.
        Gone as for `after`."""
        if seq + 1 < self.first_seq:
            raise Gone(f"events are kept from {self.first_seq} on; read the tasks, then follow from {self.last_seq}")
        if seq > self.last_seq:
            raise Gone(
                f"there is no event {seq} yet, the last is {self.last_seq}: it must be of another journal; read the tasks anew"
            )
        found: list[tuple[int, Event | EventRun]] = []
        number, end = seq + 1, min(self.last_seq, seq + limit) + 1
        at = bisect_right(self._begins, number) - 1
        while number < end:
            part = self._parts[at]
            found.append((number, part))
            number = part.seq + len_of(part)
            at += 1
        return found

    async def grown(self, seq: int, timeout_s: float) -> bool:
        """Until there is an event after `seq`; False when the time is over first."""
        if self.last_seq > seq:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """The daemon stops: wake everybody, so that they look up and end."""
        self._changed.set()
        for task, watches in self._watches.items():
            for watch in watches:
                watch.touch(task)

    def watch(self, tasks: Iterable[str]) -> TaskWatch:
        """Be woken by events of these tasks."""
        return TaskWatch(self, frozenset(tasks))


def len_of(part: Event | EventRun) -> int:
    """How many events it tells of."""
    return 1 if isinstance(part, Event) else len(part)


class TaskWatch:
    """Context in which `changed()` tells which of the tasks had an event since it was last asked."""

    def __init__(self, ring: EventRing, tasks: frozenset[str]) -> None:
        self._ring = ring
        self._tasks = tasks
        self._touched: set[str] = set()
        self._event = asyncio.Event()

    def __enter__(self) -> TaskWatch:
        for task in self._tasks:
            self._ring._watches.setdefault(task, set()).add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        for task in self._tasks:
            watches = self._ring._watches[task]
            watches.discard(self)
            if not watches:
                del self._ring._watches[task]

    def touch(self, task: str) -> None:
        """Something happened to it."""
        self._touched.add(task)
        self._event.set()

    async def changed(self) -> set[str]:
        """Until there are some."""
        await self._event.wait()
        self._event.clear()
        touched, self._touched = self._touched, set()
        return touched
