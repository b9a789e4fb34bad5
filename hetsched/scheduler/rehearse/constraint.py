"""Of a request that no node could ever meet: the one constraint that by itself rules out most nodes, and the nearest request that would do.

A constraint is judged alone: the engine is asked how many nodes, empty and open, would do for a task that wants nothing else. The nearest
request is the cheapest single change that fits; where no single one does, the worst constraint is taken back to what fits alone, then the
next, until the rest fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hetsched.model import DeviceAsk, NodeSpec, Resources, Task, Toleration
from hetsched.scheduler.rehearse.changes import Ask, changes, difference, most, with_ask, with_resources

ANYWHERE = (Toleration(operator="Exists"),)
MOST_TAKEN_BACK = 4


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """`alone`: a task that wants nothing else. `without`: the task with this taken back to what fits alone."""

    name: str
    asked: str
    alone: Task
    without: Task


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a node could meet. `is_single`: one of `changes` leads there."""

    text: str
    task: Task
    is_single: bool


def worst(task: Task, total: int, ever: Ask) -> tuple[Constraint, int]:
    """The constraint that rules out most of the `total` nodes by itself, the first among equals; and how many."""
    judged = [(constraint, total - ever(constraint.alone)) for constraint in constraints(task, ever)]
    return max(judged, key=lambda pair: pair[1])


def nearest(task: Task, nodes: list[NodeSpec], ever: Ask) -> Near | None:
    """None: nothing near would fit."""
    found = sorted(changes(task, nodes, ever), key=lambda change: change.cost)
    if found:
        return Near(text=found[0].text, task=found[0].task, is_single=True)
    said = []
    for _ in range(MOST_TAKEN_BACK):
        constraint, _ = worst(task, len(nodes), ever)
        if constraint.without == task:
            return None
        said.append(constraint.name)
        task = constraint.without
        if ever(task):
            return Near(text=f"less of {' and '.join(said)}", task=task, is_single=False)
    return None


def constraints(task: Task, ever: Ask) -> Iterator[Constraint]:
    """All that the task demands, in the order in which people think of it."""
    for at, ask in enumerate(task.resources.devices):
        yield from _of_devices(task, at, ask, ever)
    yield _amount(task, "cpu_milli", "cpu", 1000, ever)
    yield _amount(task, "memory_bytes", "memory", 1024**3, ever)
    for label, allowed in task.node_selector.items():
        rest = {other: values for other, values in task.node_selector.items() if other != label}
        yield Constraint(
            name=f"node_selector.{label}",
            asked="|".join(allowed),
            alone=Task(node_selector={label: allowed}, tolerations=ANYWHERE),
            without=msgspec.structs.replace(task, node_selector=rest),
        )
    yield Constraint(
        name="tolerations",
        asked=f"{len(task.tolerations)} tolerations",
        alone=Task(tolerations=task.tolerations),
        without=msgspec.structs.replace(task, tolerations=ANYWHERE),
    )


def _of_devices(task: Task, at: int, ask: DeviceAsk, ever: Ask) -> Iterator[Constraint]:
    bare = msgspec.structs.replace(ask, models=(), memory_bytes=0)
    field = "whole" if ask.whole else "parts"
    found = most(1, getattr(ask, field), lambda n: ever(_alone(msgspec.structs.replace(bare, **{field: n}))))
    rest = tuple(one for one in task.resources.devices if one is not ask)
    less = with_resources(task, devices=rest) if found is None else with_ask(task, at, **{field: found})
    yield Constraint(
        name=f"resources.{ask.kind}", asked=f"{ask.total_milli / 1000:g}", alone=_alone(bare), without=less
    )
    one = DeviceAsk(kind=ask.kind, whole=1)
    if ask.models:
        yield Constraint(
            name=f"resources.{ask.kind}.model",
            asked="|".join(ask.models),
            alone=_alone(msgspec.structs.replace(one, models=ask.models)),
            without=with_ask(task, at, models=()),
        )
    if ask.memory_bytes:
        yield Constraint(
            name=f"resources.{ask.kind}_memory",
            asked=f"{ask.memory_bytes / 1024**3:.4g}Gi",
            alone=_alone(msgspec.structs.replace(one, memory_bytes=ask.memory_bytes)),
            without=with_ask(task, at, memory_bytes=0),
        )
    if task.topology is not None and task.topology.required:
        yield Constraint(
            name=f"topology.{task.topology.same}",
            asked=f"{ask.total_milli / 1000:g} {ask.kind} together",
            alone=msgspec.structs.replace(_alone(bare), topology=task.topology),
            without=msgspec.structs.replace(task, topology=msgspec.structs.replace(task.topology, required=False)),
        )


def _alone(ask: DeviceAsk) -> Task:
    return Task(resources=Resources(devices=(ask,)), tolerations=ANYWHERE)


def _amount(task: Task, field: str, name: str, grain: int, ever: Ask) -> Constraint:
    has: int = getattr(task.resources, field)

    def bare(amount: int) -> Task:
        return with_resources(Task(tolerations=ANYWHERE), **{field: amount})

    found = most(0, has // grain, lambda n: ever(bare(n * grain))) or 0
    less = with_resources(task, **{field: min(has, found * grain)})
    unit = f"{has / 1024**3:.4g}Gi" if grain == 1024**3 else f"{has / grain:g}"
    return Constraint(name=f"resources.{name}", asked=unit, alone=bare(has), without=task if ever(bare(has)) else less)


def judge(task: Task, nodes: list[NodeSpec], ever: Ask) -> tuple[dict[str, Any], Near | None]:
    """What `explain` says of it, and the nearest request."""
    constraint, ruled_out = worst(task, len(nodes), ever)
    near = nearest(task, nodes, ever)
    told: dict[str, Any] = {
        "name": constraint.name,
        "asked": constraint.asked,
        "nodes_ruled_out": ruled_out,
        "nodes": len(nodes),
        "detail": f"{constraint.name} {constraint.asked} alone rules out {ruled_out} of {len(nodes)} nodes",
        "nearest": None,
    }
    if near is not None:
        told["nearest"] = {"detail": near.text, "change": difference(task, near.task), "nodes": ever(near.task)}
    return told, near
