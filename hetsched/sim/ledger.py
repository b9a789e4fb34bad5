"""What of the cluster is in use at every moment, kept from the events alone: for the summary's `allocated`, `utilization` and energy."""

from __future__ import annotations

import heapq

import msgspec

from hetsched.model import NodeSpec, Task, Usage
from hetsched.sim.energy import CORE_WATTS, IDLE_PART, device_watts
from hetsched.sim.usage import really_used
from hetsched.sim.weighted import Weighted, rounded

Amounts = dict[str, float]


class Held(msgspec.Struct, frozen=True):
    """One live attempt: what it was given and what it really uses now, per resource; watts above idle, of its devices and its cores."""

    task: Task
    given: Amounts
    used: Amounts
    device_watts: float

    @property
    def watts(self) -> float:
        return self.device_watts + self.used["cpu"] / 1000 * CORE_WATTS


class Ledger:
    """Resources are `cpu` (millicores), `memory` (bytes) and every kind of device (thousandths)."""

    def __init__(self, nodes: tuple[NodeSpec, ...]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._watts = {(n.name, d.id): device_watts(d) for n in nodes for d in n.devices}
        self.kinds = sorted({device.kind for node in nodes for device in node.devices})
        names = ["cpu", "memory", *self.kinds]
        self.capacity = {name: Weighted() for name in names}
        self.given = {name: Weighted() for name in names}
        self.used = {name: Weighted() for name in names}
        self._power = Weighted()
        self._live: dict[str, Held] = {}
        self._steps: list[tuple[int, int, str, Held, Usage]] = []  # changes of use to come, by time
        self._steps_seen = 0
        self._up: set[str] = set()

    # -- what happens

    def node_up(self, name: str, now_ns: int) -> None:
        if name not in self._up:
            self._up.add(name)
            self._add_capacity(self._nodes[name], 1, now_ns)

    def node_down(self, name: str, now_ns: int) -> None:
        if name in self._up:
            self._up.discard(name)
            self._add_capacity(self._nodes[name], -1, now_ns)

    def placed(self, task: Task, node: str, devices: list[dict[str, object]], now_ns: int) -> None:
        """An attempt holds `devices` from now on."""
        assert task.id is not None
        given = {"cpu": float(task.resources.cpu_milli), "memory": float(task.resources.memory_bytes)}
        watts = 0.0
        for one in devices:
            share = float(str(one["share"]))
            kind = str(one["id"]).rsplit("-", 1)[0]
            given[kind] = given.get(kind, 0.0) + share
            watts += self._watts[node, str(one["id"])] * (1 - IDLE_PART) * share / 1000
        self._live[task.id] = Held(task, given, _really_used(task, given, task.usage), watts)
        self._add(self._live[task.id], 1, now_ns)

    def started(self, task: str, now_ns: int) -> None:
        """Its attempt runs from now on: the steps of its usage count from here."""
        held = self._live[task]
        for usage in () if held.task.usage is None else held.task.usage.later:
            self._steps_seen += 1
            heapq.heappush(self._steps, (now_ns + round(usage.at * 1e9), self._steps_seen, task, held, usage))

    def ended(self, task: str, now_ns: int) -> None:
        """Its attempt, if it had one, holds nothing any more."""
        self._catch_up(now_ns)
        held = self._live.pop(task, None)
        if held is not None:
            self._add(held, -1, now_ns)

    def _catch_up(self, now_ns: int) -> None:
        """Uses that changed since the last event."""
        while self._steps and self._steps[0][0] <= now_ns:
            at_ns, _, task, begun, usage = heapq.heappop(self._steps)
            held = self._live.get(task)
            if held is not None and held.given is begun.given:  # else that attempt is over
                self._count(held, -1, at_ns)
                self._live[task] = held = msgspec.structs.replace(held, used=_really_used(held.task, held.given, usage))
                self._count(held, 1, at_ns)

    def _add(self, held: Held, sign: int, now_ns: int) -> None:
        self._catch_up(now_ns)
        self._count(held, sign, now_ns)

    def _count(self, held: Held, sign: int, now_ns: int) -> None:
        for table, amounts in ((self.given, held.given), (self.used, held.used)):
            for name, amount in amounts.items():
                table[name].set(table[name].value + sign * amount, now_ns)
        self._power.set(self._power.value + sign * held.watts, now_ns)

    def _add_capacity(self, node: NodeSpec, sign: int, now_ns: int) -> None:
        self._catch_up(now_ns)
        amounts: Amounts = {"cpu": float(node.cpu_milli), "memory": float(node.memory_bytes)}
        idle_watts = 0.0
        for device in node.devices:
            amounts[device.kind] = amounts.get(device.kind, 0.0) + 1000
            idle_watts += self._watts[node.name, device.id] * IDLE_PART
        for name, amount in amounts.items():
            self.capacity[name].set(self.capacity[name].value + sign * amount, now_ns)
        self._power.set(self._power.value + sign * idle_watts, now_ns)

    # -- what is told

    def allocated(self, name: str, now_ns: int) -> dict[str, float]:
        """Given over capacity: mean over time, and now."""
        capacity = self.capacity[name]
        return {
            "mean": _ratio(self.given[name].integral(now_ns), capacity.integral(now_ns))
            if now_ns
            else _ratio(self.given[name].value, capacity.value),
            "last": _ratio(self.given[name].value, capacity.value),
        }

    def utilization(self, now_ns: int) -> dict[str, float]:
        """Really used over capacity, per resource, mean over time."""
        self._catch_up(now_ns)
        return {
            name: _ratio(used.integral(now_ns), self.capacity[name].integral(now_ns))
            for name, used in self.used.items()
        }

    def energy_joules(self, now_ns: int) -> float:
        """From t = 0 to now, of devices and busy cores."""
        self._catch_up(now_ns)
        return round(self._power.integral(now_ns), 3)


def _really_used(task: Task, given: Amounts, usage: Usage | None) -> Amounts:
    if usage is None:
        return given
    part = usage.part_milli / 1000
    used = {name: min(amount, float(usage.devices_milli.get(name, amount * part))) for name, amount in given.items()}
    cpu_milli, memory_bytes, _ = really_used(task.resources, usage)
    return {**used, "cpu": float(cpu_milli), "memory": float(memory_bytes)}


def _ratio(part: float, whole: float) -> float:
    return rounded(part / whole) if whole else 0.0
