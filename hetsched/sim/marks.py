"""How much is allocated by how much has arrived: the curve by which placement policies are compared (Weng et al., USENIX ATC 2023).

Arrived and allocated are amounts of the kind of device that there is most of, as parts of all there is. The mark at x % is the mean of
what was allocated after every decision at which the arrived part, rounded to whole percent, was x; as in the published artifact.
"""

from __future__ import annotations

from collections import Counter

from hetsched.model import NodeSpec, Task
from hetsched.scheduler.messages import Event
from hetsched.sim.placements import ENDS

AT_PERCENT = (100, 110, 130)


class Marks:
    """A watcher. `at(percent)`: allocated percent, None where arrivals never came so far; `last`: at the end."""

    def __init__(self, nodes: tuple[NodeSpec, ...]) -> None:
        kinds = Counter(device.kind for node in nodes for device in node.devices)
        self.kind, devices = kinds.most_common(1)[0] if kinds else ("", 0)
        self._capacity_milli = devices * 1000
        self._asks: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._arrived = self._allocated = 0
        self._sums: dict[int, tuple[float, int]] = {}

    def submitted(self, task: Task, now_ns: int) -> None:
        if task.id is not None and task.id not in self._asks:
            self._asks[task.id] = sum(ask.total_milli for ask in task.resources.devices if ask.kind == self.kind)
            self._arrived += self._asks[task.id]

    def happened(self, event: Event) -> None:
        if event.task is None or event.task not in self._asks:
            return
        if event.event == "placed":
            self._held[event.task] = self._asks[event.task]
            self._allocated += self._asks[event.task]
            self._note()
        elif event.event == "rejected":
            self._note()
        elif event.event in ENDS:
            self._allocated -= self._held.pop(event.task, 0)

    def _note(self) -> None:
        if self._capacity_milli:
            percent = round(100 * self._arrived / self._capacity_milli)
            total, count = self._sums.get(percent, (0.0, 0))
            self._sums[percent] = total + self.last, count + 1

    @property
    def last(self) -> float:
        """Allocated percent now."""
        return 100 * self._allocated / self._capacity_milli if self._capacity_milli else 0.0

    def at(self, percent: int) -> float | None:
        """Allocated percent when so many percent had arrived."""
        total, count = self._sums.get(percent, (0.0, 0))
        return total / count if count else None
