"""The nodes as a plan of a graph sees them: what they hold, what of it is free now and until when the rest is taken, and what may run where
at what speed.

A plan looks at a few nodes of each sort (`MOST_NODES` in all): it grows with operators times nodes, and a graph that could use more hardware
than that has its pieces cut often enough to move on to other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hetsched import _core
from hetsched.model import DeviceAsk, DeviceSpec, Task
from hetsched.model.graph import Operator
from hetsched.policy.classify import task_type
from hetsched.policy.heft import Choice
from hetsched.policy.rates import NO_DEVICE
from hetsched.policy.timetable import Ask, Timetable
from hetsched.scheduler.books import Books
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.graphs.state import began_ns
from hetsched.scheduler.templates import LEVEL_RULED_OUT, level_of

MOST_NODES = 32
CPU, MEMORY, DEVICES = 0, 1, 2
SHORTEST_S = 60.0
"""Of a task that says nothing of its run time, and of one that is over its time: it is expected to take as long again, at least this."""

FREELY = 64
"""Pieces at once on a node of an operator that asks for nothing."""

Sort = bytes
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Site:
    """One node. `dimensions`: of its vectors, by (kind, model); `whole`: all that it has."""

    def __init__(self, place: int, node: Node) -> None:
        self.place = place
        self.node = node
        self.devices = [one for one, health in zip(node.spec.devices, node.health, strict=True) if health == "healthy"]
        models = dict.fromkeys((one.kind, one.model or "") for one in self.devices)
        self.dimensions = {model: DEVICES + at for at, model in enumerate(models)}
        self.whole = [node.spec.cpu_milli, node.spec.memory_bytes, *[0] * len(models)]
        for device in self.devices:
            self.whole[self.dimensions[device.kind, device.model or ""]] += 1000

    @property
    def kin(self) -> object:
        """Equal for nodes that hold the same."""
        return tuple(self.whole), tuple(self.dimensions)

    def ask(self, task: Task, model: str) -> Ask | None:
        """What the task would take here on devices of this model ("cpu": it asks for none); None: it never fits."""
        ask = [(CPU, task.resources.cpu_milli), (MEMORY, task.resources.memory_bytes)]
        for index, one in enumerate(task.resources.devices):
            wanted = [(one.kind, model)] if index == 0 else [key for key in self.dimensions if key[0] == one.kind]
            fitting = [key for key in wanted if key in self.dimensions and (not one.models or key[1] in one.models)]
            if not fitting:
                return None
            ask.append((self.dimensions[fitting[0]], one.total_milli))
        if any(self.whole[dimension] < amount for dimension, amount in ask):
            return None
        return tuple((dimension, amount) for dimension, amount in ask if amount)

    def free(self, core: _core.Core) -> list[int]:
        """What is free now."""
        slot = self.node.slot
        cpu_milli, memory_bytes = core.node_state(slot)[:2]
        free = [cpu_milli, memory_bytes, *[0] * len(self.dimensions)]
        for index, device in enumerate(self.node.spec.devices):
            used_milli, _, usable = core.device_state(slot, index)
            at = self.dimensions.get((device.kind, device.model or ""))
            if usable and at is not None:
                free[at] += 1000 - used_milli
        return free

    def held(self, body: Task, devices: Iterable[tuple[str, int]]) -> Ask:
        """What a live attempt with these devices holds here."""
        ask = {CPU: body.resources.cpu_milli, MEMORY: body.resources.memory_bytes}
        for ident, share_milli in devices:
            spec = self.node.spec.devices[self.node.index_of(ident)]
            at = self.dimensions.get((spec.kind, spec.model or ""))
            if at is not None:
                ask[at] = ask.get(at, 0) + share_milli
        return tuple(ask.items())


class Sites:
    """All open nodes, or some of each sort. `version`: of the cluster that this was made from."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.version = version_of(books)
        nodes = _some_of_each([node for node in books.cluster.by_name.values() if node.is_open])
        self.all = [Site(place, node) for place, node in enumerate(nodes)]
        self.by_name = {site.node.name: site for site in self.all}
        self._choices: dict[Sort, tuple[int, list[Choice]]] = {}
        self._models_there = {
            (one.kind, one.model): one for node in books.cluster.by_name.values() for one in node.spec.devices
        }

    # -- what may run where

    def choices(self, operator: Operator, sort: Sort) -> list[Choice]:
        """Of an operator of this sort, at the speeds known now; the same list for the same sort."""
        rates = self.books.graphs.rates
        found = self._choices.get(sort)
        if found is None or found[0] != rates.version:
            found = self._choices[sort] = rates.version, self._choose(operator)
        return found[1]

    def _choose(self, operator: Operator) -> list[Choice]:
        seconds = self._seconds_per_work(operator)
        choices = []
        for alternative, task in enumerate(operator.tasks):
            key = self.books.templates.shape_key(task)
            for site in self.all:
                if level_of(key, site.node.spec) == LEVEL_RULED_OUT:
                    continue
                for model in self._models(site, task):
                    ask = site.ask(task, model)
                    if ask is not None:
                        units = min((site.whole[at] // amount for at, amount in ask), default=FREELY)
                        per_work = seconds[alternative][model]
                        choices.append(Choice(site.place, alternative, model, per_work, ask, units))
        return choices

    @staticmethod
    def _models(site: Site, task: Task) -> list[str]:
        if not task.resources.devices:
            return [NO_DEVICE]
        asked = task.resources.devices[0]
        return [
            model
            for kind, model in site.dimensions
            if kind == asked.kind
            and (not asked.models or model in asked.models)
            and _is_large_enough(site, asked, model)
        ]

    def _seconds_per_work(self, operator: Operator) -> list[dict[str, float]]:
        """By alternative, by model: all alternatives are compared with one another."""
        kinds = {ask.kind for task in operator.tasks for ask in task.resources.devices[:1]}
        devices = [one for (kind, _), one in self._models_there.items() if kind in kinds]
        on_cores = any(not task.resources.devices for task in operator.tasks)
        return [
            self.books.graphs.rates.seconds_per_work(
                task_type(task),
                devices,
                operator.speeds,
                is_tensor=task.pattern == "tensor-op",
                on_cores=on_cores,
            )
            for task in operator.tasks
        ]

    # -- what is taken

    def timetables(self, now_ns: int) -> list[Timetable]:
        """Of all places: what lives there stays for as long as is expected."""
        tables = []
        for site in self.all:
            tasks = self.books.core.tasks_on(site.node.slot)
            table = Timetable(site.whole, None if tasks else site.kin)
            for task in tasks:
                attempt = self.books.attempts.live.get(task)
                if attempt is not None:
                    table.take(site.held(self.books.body(task), attempt.devices), 0.0, self.left_s(task, now_ns))
            tables.append(table)
        return tables

    def left_s(self, task: int, now_ns: int) -> float:
        """How long a live task is expected to go on."""
        attempt = self.books.attempts.live.get(task)
        piece = self.books.graphs.of_task(task)
        if piece is not None:
            expected_s = piece[1].seconds
        else:
            expected_s = self.books.core.expected(task)[1] / 1e9
        elapsed_s = 0.0 if attempt is None else (now_ns - began_ns(attempt)) / 1e9
        if expected_s > elapsed_s:
            return expected_s - elapsed_s
        return max(elapsed_s, SHORTEST_S) if piece is None else max(0.1 * elapsed_s, 0.001)


def version_of(books: Books) -> tuple[int, int]:
    """Moves whenever other nodes may be looked at."""
    return books.cluster.version, books.cluster.marks


def sort_of(books: Books, operator: Operator) -> Sort:
    """Equal for operators that may run on the same devices at the same speeds."""
    tasks = [(books.templates.shape_key(task), task_type(task), task.pattern) for task in operator.tasks]
    return _encode((tasks, operator.speeds))


def _is_large_enough(site: Site, asked: DeviceAsk, model: str) -> bool:
    sizes = [one.memory_bytes for one in site.devices if one.kind == asked.kind and (one.model or "") == model]
    return any(size is None or size >= asked.memory_bytes for size in sizes)


def _some_of_each(nodes: list[Node]) -> list[Node]:
    """At most MOST_NODES, in turn one of each sort of node."""
    if len(nodes) <= MOST_NODES:
        return nodes
    sorts: dict[object, list[Node]] = {}
    for node in nodes:
        sorts.setdefault(tuple(dict.fromkeys(_sort(one) for one in node.spec.devices)), []).append(node)
    chosen: list[Node] = []
    depth = 0
    while len(chosen) < MOST_NODES and depth < max(map(len, sorts.values())):
        chosen += [group[depth] for group in sorts.values() if depth < len(group)]
        depth += 1
    return chosen[:MOST_NODES]


def _sort(device: DeviceSpec) -> tuple[str, str | None]:
    return device.kind, device.model
