"""A task in the contract's words again: what `parse_task` would read back to the same task."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hetsched.model.read_time import render_rfc3339
from hetsched.model.task import Dependency, DeviceAsk, Resources, Task, Usage

_PLAIN = ("name", "pattern", "estimate", "time_limit", "workdir", "user", "duration", "checkpoint", "stop_time")
_ALWAYS = ("kind", "queue", "preemptible", "priority", "on_deadline", "grace", "retries", "on_lost")
_LISTS = ("models", "data", "retry_on")
_MAPS = ("labels", "env")


def task_to_json(task: Task) -> dict[str, Any]:
    """Every field with its value after defaults; those that were not said and have no default are left out."""
    out: dict[str, Any] = {} if task.id is None else {"id": task.id}
    out["qos"], out["guarantee"] = task.qos.value, task.guarantee.value
    out.update({name: getattr(task, name) for name in _ALWAYS})
    out.update({name: value for name in _PLAIN if (value := getattr(task, name)) is not None})
    out.update({name: list(value) for name in _LISTS if (value := getattr(task, name))})
    out.update({name: dict(value) for name in _MAPS if (value := getattr(task, name))})
    out["resources"] = resources_to_json(task.resources)
    if task.limits is not None:
        out["limits"] = resources_to_json(task.limits)
    if task.usage is not None:
        out["usage"] = _usage(task.usage)
    if task.command is not None:
        out["command"] = list(task.command)
    out.update(_constraints(task))
    return out


def resources_to_json(resources: Resources) -> dict[str, Any]:
    """Amounts as numbers: cores, bytes, devices; a kind with parts or models at length."""
    out: dict[str, Any] = {}
    if resources.cpu_milli:
        out["cpu"] = milli_to_json(resources.cpu_milli)
    if resources.memory_bytes:
        out["memory"] = resources.memory_bytes
    for ask in resources.devices:
        out[ask.kind] = _ask(ask)
    return out


def milli_to_json(milli: int) -> int | float:
    """Thousandths as the number that people would write: 2000 → 2, 500 → 0.5."""
    whole, rest = divmod(milli, 1000)
    return float(Decimal(milli) / 1000) if rest else whole


def _ask(ask: DeviceAsk) -> Any:
    if ask.parts > 1 or (ask.parts == 1 and not ask.whole and (ask.memory_bytes or ask.models)):
        out: dict[str, Any] = {"count": ask.parts, "share": milli_to_json(ask.part_milli)}
    elif ask.memory_bytes or ask.models:
        out = {"count": milli_to_json(ask.total_milli)}
    else:
        return milli_to_json(ask.total_milli)
    if ask.memory_bytes:
        out["memory"] = ask.memory_bytes
    if ask.models:
        out["model"] = list(ask.models)
    return out


def _usage(usage: Usage) -> Any:
    steps = [_usage_step(step) for step in (usage, *usage.later)]
    return steps if usage.later else steps[0]


def _usage_step(usage: Usage) -> dict[str, Any]:
    out: dict[str, Any] = {kind: milli_to_json(milli) for kind, milli in usage.devices_milli.items()}
    if usage.cpu_milli is not None:
        out["cpu"] = milli_to_json(usage.cpu_milli)
    if usage.memory_bytes is not None:
        out["memory"] = usage.memory_bytes
    if usage.part_milli != 1000:
        out["part"] = milli_to_json(usage.part_milli)
    if usage.at:
        out["at"] = usage.at
    return out


def _constraints(task: Task) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if task.node_selector:
        out["node_selector"] = {label: list(values) for label, values in task.node_selector.items()}
    if task.tolerations:
        names = ("key", "operator", "value", "effect")
        out["tolerations"] = [{n: v for n in names if (v := getattr(one, n))} for one in task.tolerations]
    if task.topology is not None:
        out["topology"] = {"same": task.topology.same, "required": task.topology.required}
    if task.gang is not None:
        out["gang"] = {"id": task.gang.id, "size": task.gang.size, "min_size": task.gang.min_size}
    if task.after:
        out["after"] = [_dependency(one) for one in task.after]
    if task.deadline_ns is not None:
        out["deadline"] = render_rfc3339(task.deadline_ns) if task.deadline_absolute else task.deadline_ns / 1e9
    return out


def _dependency(one: Dependency) -> dict[str, str]:
    return {"id": one.id, "when": one.when}
