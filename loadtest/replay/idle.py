"""Why devices are idle: device hours by what keeps them from work at every moment, for jobs that ask for whole devices.

While somebody waits, the free devices of a node count where the first of these holds: the node is kept for a reservation; it has fewer devices
than anybody who waits asks for; who waits finds enough free devices there, but too few cores or too little memory; somebody fits, and is
placed at the next turn; else what is free is broken: fewer devices than anybody who waits asks for, on a node that has as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from hetsched.model import NodeSpec, Task
from hetsched.scheduler.messages import Event
from hetsched.sim.summary import OVER

KINDS = ("used", "nobody_waits", "reserved", "narrow", "no_cores", "fits", "broken")
HOUR_NS = 3_600_000_000_000

Ask = tuple[int, int, int]


class Idle:
    """A watcher. `until_ns`: what is later does not count. `reserved`: names of the nodes kept now, asked once after each turn."""

    def __init__(self, nodes: Sequence[NodeSpec], until_ns: int, reserved: Callable[[], Iterable[str]]) -> None:
        self.hours = dict.fromkeys(KINDS, 0.0)
        self._until_ns, self._reserved = until_ns, reserved
        self._slot = {node.name: slot for slot, node in enumerate(nodes)}
        self._devices = np.array([len(node.devices) for node in nodes], dtype=np.float64)
        self._free = np.array(
            [[len(node.devices), node.cpu_milli, node.memory_bytes] for node in nodes], dtype=np.float64
        )
        self._asks: dict[str, Ask] = {}
        self._waiting: Counter[Ask] = Counter()
        self._held: dict[str, int] = {}
        self._kept = np.zeros(len(nodes), dtype=bool)
        self._now_ns = 0

    def submitted(self, task: Task, now_ns: int) -> None:
        assert task.id is not None
        self._pass(now_ns)
        asked = task.resources
        self._asks[task.id] = (sum(ask.whole for ask in asked.devices), asked.cpu_milli, asked.memory_bytes)
        self._wait(task.id, 1)

    def happened(self, event: Event) -> None:
        self._pass(event.t_ns)
        if event.task is None:
            return
        if event.event == "placed":
            self._held[event.task] = self._slot[event.data["node"]]
            self._free[self._held[event.task]] -= self._asks[event.task]
            self._wait(event.task, -1)
        elif event.event in OVER:
            if event.task in self._held:
                self._free[self._held.pop(event.task)] += self._asks[event.task]
                if event.event == "requeued":
                    self._wait(event.task, 1)
            else:
                self._wait(event.task, -1)

    def _wait(self, task: str, more: int) -> None:
        ask = self._asks[task]
        self._waiting[ask] += more
        if self._waiting[ask] == 0:
            del self._waiting[ask]

    def _pass(self, now_ns: int) -> None:
        """Until now it was as it was."""
        if now_ns <= self._now_ns:
            return
        passed = (min(now_ns, self._until_ns) - min(self._now_ns, self._until_ns)) / HOUR_NS
        self._now_ns = now_ns
        if passed > 0:
            self._count(passed)
        self._kept[:] = False
        self._kept[[self._slot[name] for name in self._reserved()]] = True

    def _count(self, passed: float) -> None:
        free = self._free[:, 0]
        self.hours["used"] += float((self._devices - free).sum()) * passed
        if not self._waiting:
            self.hours["nobody_waits"] += float(free.sum()) * passed
            return
        has_devices = np.zeros(len(free), dtype=bool)
        fits = np.zeros(len(free), dtype=bool)
        for ask in self._waiting:
            has_devices |= free >= ask[0]
            fits |= (self._free >= ask).all(axis=1)
        left = np.ones(len(free), dtype=bool)
        least = min(ask[0] for ask in self._waiting)
        for kind, holds in (
            ("reserved", self._kept),
            ("narrow", self._devices < least),
            ("no_cores", has_devices & ~fits),
            ("fits", fits),
            ("broken", left.copy()),
        ):
            self.hours[kind] += float(free[left & holds].sum()) * passed
            left &= ~holds
