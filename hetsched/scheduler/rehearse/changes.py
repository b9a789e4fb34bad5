"""What a person could ask for instead: one change of a task's body at a time, each the smallest of its kind that helps.

Pure but for `Ask`, the question that the engine answers: how many nodes would do for the body so changed. Amounts are found by halving, for
a smaller ask never fits fewer nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from hetsched.model import DeviceAsk, NodeSpec, Resources, Task, Toleration, task_to_json
from hetsched.scheduler.templates import tolerates

Ask = Callable[[Task], int]
"""Nodes that would do."""

GIB = 1024**3
MOST_WORDS = 8
"""Values of a label, taints and models tried one by one."""

LIGHT, LESS = 0.2, 0.3
"""What a change costs the one who asked: a wish given up, or a part of the amount on top of LESS (all of it: 1)."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """`code`: for programs. `text`: for people, as in "ask 3 gpu instead of 4". `cost`: 0 (free) to 1 (gives everything up)."""

    code: str
    text: str
    cost: float
    task: Task


def changes(task: Task, nodes: list[NodeSpec], ask: Ask) -> Iterator[Change]:
    """Those for which `ask` then finds a node, in no order."""
    yield from _topology(task, ask)
    yield from _selectors(task, nodes, ask)
    yield from _taints(task, nodes, ask)
    for at, wanted in enumerate(task.resources.devices):
        yield from _models(task, at, wanted, nodes, ask)
        yield from _device_memory(task, at, wanted, ask)
        yield from _count(task, at, wanted, ask)
        yield from _share(task, at, wanted, ask)
    yield from _cpu(task, ask)
    yield from _memory(task, ask)
    yield from _min_size(task, ask)


# ---------------------------------------------------------------------- wishes


def _topology(task: Task, ask: Ask) -> Iterator[Change]:
    if task.topology is None or not task.topology.required:
        return
    freed = msgspec.structs.replace(task, topology=msgspec.structs.replace(task.topology, required=False))
    if ask(freed):
        yield Change(
            code="topology", text=f"prefer one {task.topology.same} instead of requiring it", cost=LIGHT, task=freed
        )


def _selectors(task: Task, nodes: list[NodeSpec], ask: Ask) -> Iterator[Change]:
    for label, allowed in task.node_selector.items():
        others = sorted({node.labels[label] for node in nodes if label in node.labels} - set(allowed))
        for value in others[:MOST_WORDS]:
            wider = _with_selector(task, label, (*allowed, value))
            if ask(wider):
                yield Change(
                    code="node_selector", text=f"allow {label} {'|'.join((*allowed, value))}", cost=LIGHT, task=wider
                )
                break
        else:
            freed = _with_selector(task, label, ())
            if ask(freed):
                yield Change(
                    code="node_selector", text=f"drop the selector {label}={'|'.join(allowed)}", cost=LIGHT, task=freed
                )


def _with_selector(task: Task, label: str, allowed: tuple[str, ...]) -> Task:
    selector = {**task.node_selector, label: allowed}
    if not allowed:
        del selector[label]
    return msgspec.structs.replace(task, node_selector=selector)


def _taints(task: Task, nodes: list[NodeSpec], ask: Ask) -> Iterator[Change]:
    taints = {taint for node in nodes for taint in node.taints if taint.effect != "PreferNoSchedule"}
    foreign = [t for t in taints if not tolerates(task.tolerations, t.key, t.value, t.effect)]
    for taint in sorted(foreign, key=lambda t: (t.key, t.value, t.effect))[:MOST_WORDS]:
        also = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        tolerant = msgspec.structs.replace(task, tolerations=(*task.tolerations, also))
        if ask(tolerant):
            named = f"{taint.key}={taint.value}" if taint.value else taint.key
            yield Change(
                code="toleration", text=f"tolerate the taint {named}:{taint.effect}", cost=LIGHT, task=tolerant
            )


def _models(task: Task, at: int, wanted: DeviceAsk, nodes: list[NodeSpec], ask: Ask) -> Iterator[Change]:
    if not wanted.models:
        return
    known = {d.model for node in nodes for d in node.devices if d.kind == wanted.kind and d.model is not None}
    for model in sorted(known - set(wanted.models))[:MOST_WORDS]:
        wider = with_ask(task, at, models=(*wanted.models, model))
        if ask(wider):
            text = f"allow {wanted.kind} model {'|'.join((*wanted.models, model))}"
            yield Change(code="model", text=text, cost=LIGHT, task=wider)
            return
    freed = with_ask(task, at, models=())
    if ask(freed):
        text = f"allow any {wanted.kind} model instead of {'|'.join(wanted.models)}"
        yield Change(code="model", text=text, cost=LIGHT, task=freed)


# ---------------------------------------------------------------------- amounts


def _count(task: Task, at: int, wanted: DeviceAsk, ask: Ask) -> Iterator[Change]:
    if wanted.whole > 1 or (wanted.whole and wanted.parts):
        low = 0 if wanted.parts else 1
        yield from _fewer(task, at, wanted, "whole", low, wanted.whole, ask)
    elif wanted.parts > 1:
        yield from _fewer(task, at, wanted, "parts", 1, wanted.parts, ask)


def _fewer(task: Task, at: int, wanted: DeviceAsk, field: str, low: int, has: int, ask: Ask) -> Iterator[Change]:
    found = most(low, has - 1, lambda n: ask(with_ask(task, at, **{field: n})))
    if found is not None:
        smaller = with_ask(task, at, **{field: found})
        now = smaller.resources.devices[at]
        text = f"ask {now.total_milli / 1000:g} {wanted.kind} instead of {wanted.total_milli / 1000:g}"
        yield _less("devices", text, 1 - now.total_milli / wanted.total_milli, smaller)


def _share(task: Task, at: int, wanted: DeviceAsk, ask: Ask) -> Iterator[Change]:
    """A smaller part of a device; half of one where a whole one was asked."""
    if wanted.whole == 1 and not wanted.parts:
        halved = with_ask(task, at, whole=0, parts=1, part_milli=500)
        if ask(halved):
            yield _less("share", f"ask 0.5 {wanted.kind} instead of 1", 0.5, halved)
    elif not wanted.whole and wanted.parts and wanted.part_milli > 100:
        tenths = most(1, (wanted.part_milli - 1) // 100, lambda n: ask(with_ask(task, at, part_milli=100 * n)))
        if tenths is not None:
            text = f"ask parts of {tenths / 10:g} {wanted.kind} instead of {wanted.part_milli / 1000:g}"
            lost = 1 - 100 * tenths / wanted.part_milli
            yield _less("share", text, lost, with_ask(task, at, part_milli=100 * tenths))


def _device_memory(task: Task, at: int, wanted: DeviceAsk, ask: Ask) -> Iterator[Change]:
    if wanted.memory_bytes <= GIB:
        return
    gib = most(1, (wanted.memory_bytes - 1) // GIB, lambda n: ask(with_ask(task, at, memory_bytes=n * GIB)))
    if gib is not None:
        text = f"ask {gib}Gi on each {wanted.kind} instead of {wanted.memory_bytes / GIB:g}Gi"
        yield _less(
            "device_memory", text, 1 - gib * GIB / wanted.memory_bytes, with_ask(task, at, memory_bytes=gib * GIB)
        )


def _cpu(task: Task, ask: Ask) -> Iterator[Change]:
    has = task.resources.cpu_milli
    grain = 1000 if has > 1000 else 100
    found = (
        most(1, (has - 1) // grain, lambda n: ask(with_resources(task, cpu_milli=n * grain))) if has > grain else None
    )
    if found is not None:
        text = f"ask {found * grain / 1000:g} cores instead of {has / 1000:g}"
        yield _less("cpu", text, 1 - found * grain / has, with_resources(task, cpu_milli=found * grain))


def _memory(task: Task, ask: Ask) -> Iterator[Change]:
    has = task.resources.memory_bytes
    grain = GIB if has > GIB else GIB // 16
    found = (
        most(1, (has - 1) // grain, lambda n: ask(with_resources(task, memory_bytes=n * grain)))
        if has > grain
        else None
    )
    if found is not None:
        text = f"ask {found * grain / GIB:g}Gi of memory instead of {has / GIB:.4g}Gi"
        yield _less("memory", text, 1 - found * grain / has, with_resources(task, memory_bytes=found * grain))


def _min_size(task: Task, ask: Ask) -> Iterator[Change]:
    gang = task.gang
    found = None if gang is None else most(1, gang.min_size - 1, lambda n: ask(_with_min_size(task, n)))
    if gang is not None and found is not None:
        text = f"let the gang start with {found} members instead of {gang.min_size}"
        yield _less("min_size", text, 1 - found / gang.min_size, _with_min_size(task, found))


def _with_min_size(task: Task, found: int) -> Task:
    assert task.gang is not None
    return msgspec.structs.replace(task, gang=msgspec.structs.replace(task.gang, min_size=found))


def _less(code: str, text: str, lost: float, task: Task) -> Change:
    return Change(code=code, text=text, cost=LESS + (1 - LESS) * lost, task=task)


# ---------------------------------------------------------------------- tools


def with_resources(task: Task, **fields: object) -> Task:
    """The task with other amounts."""
    resources: Resources = msgspec.structs.replace(task.resources, **fields)
    return msgspec.structs.replace(task, resources=resources)


def with_ask(task: Task, at: int, **fields: object) -> Task:
    """The task with its `at`-th ask for devices changed; `models` stands in the task, too."""
    asks = list(task.resources.devices)
    asks[at] = msgspec.structs.replace(asks[at], **fields)
    changed = with_resources(task, devices=tuple(asks))
    return msgspec.structs.replace(changed, models=fields["models"]) if "models" in fields and task.models else changed


def most(low: int, high: int, ask: Callable[[int], int]) -> int | None:
    """The largest number from `low` to `high` for which there is an answer; there is none beyond the first without."""
    if high < low or not ask(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if ask(middle):
            low = middle
        else:
            high = middle - 1
    return low


def difference(before: Task, after: Task) -> dict[str, Any]:
    """Fields of the contract's JSON that are others, as they are after."""
    old, new = task_to_json(before), task_to_json(after)
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    return {**changed, **{name: None for name in old if name not in new}}
