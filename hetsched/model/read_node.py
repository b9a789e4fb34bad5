"""Nodes and queues from scenario files and requests. `count` makes several of a group; ids of devices are `kind-N` over all groups."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from hetsched.model import reader
from hetsched.model.node import DeviceSpec, NodeSpec, QueueSpec, Taint
from hetsched.model.read_resources import kind_name, model_name, read_amounts
from hetsched.model.read_task import label_name, label_value, queue_name, volume_name
from hetsched.model.reader import Faults, Reader, items, mapping, text, word
from hetsched.model.words import EFFECTS
from hetsched.quantity import LARGEST, cpu_milli, memory_bytes

MOST_NODES = 100_000
MOST_DEVICES = 64
"""Devices of one node: as many as the core has room for."""

node_name = text(128, re.compile(r"[A-Za-z0-9._:-]+"), "of letters, digits and . _ : -")


def parse_node(raw: object) -> list[NodeSpec]:
    """Nodes of one group: `count` absent or 1 leaves the name, N > 1 appends 0 … N-1. Raises Problem."""
    faults = Faults()
    said = reader.fields(faults, "", raw, _NODE)
    if isinstance(raw, dict) and "name" not in raw:
        faults.add("", "needs name")
    count = said.pop("count", 1)
    devices = _number(faults, said.pop("devices", ()))
    if faults:
        raise faults.problem()
    node = NodeSpec(
        name=said.pop("name"),
        cpu_milli=min(said.pop("cpu", 0), LARGEST),
        memory_bytes=said.pop("memory", 0),
        devices=devices,
        **said,
    )
    if count == 1:
        return [node]
    return [msgspec.structs.replace(node, name=f"{node.name}{number}") for number in range(count)]


def parse_queue(raw: object) -> QueueSpec:
    """One queue with its weight, guarantee and limit. Raises Problem."""
    faults = Faults()
    said = reader.fields(faults, "", raw, _QUEUE)
    if isinstance(raw, dict) and "name" not in raw:
        faults.add("", "needs name")
    guaranteed, limit = said.get("guaranteed", {}), said.get("limit", {})
    for name, amount in guaranteed.items():
        if amount > limit.get(name, amount):
            faults.add(reader.below("/guaranteed", name), "must be at most limit")
    if faults:
        raise faults.problem()
    return QueueSpec(**said)


def _number(faults: Faults, groups: tuple[tuple[int, dict[str, Any]], ...]) -> tuple[DeviceSpec, ...]:
    """Give the devices of all groups their ids, in the order listed."""
    if sum(count for count, _ in groups) > MOST_DEVICES:
        faults.add("/devices", f"must be at most {MOST_DEVICES} devices")
        return ()
    numbers: Counter[str] = Counter()
    out = []
    for count, said in groups:
        for _ in range(count):
            out.append(DeviceSpec(id=f"{said['kind']}-{numbers[said['kind']]}", **said))
            numbers[said["kind"]] += 1
    return tuple(out)


def _group(faults: Faults, at: str, raw: object) -> tuple[int, dict[str, Any]]:
    said = reader.fields(faults, at, raw, _GROUP)
    if isinstance(raw, dict) and "kind" not in raw:
        faults.add(at, "needs kind")
    said.setdefault("kind", "gpu")
    count = said.pop("count", 1)
    if "memory" in said:
        said["memory_bytes"] = said.pop("memory")
    return count, said


def _taint(faults: Faults, at: str, raw: object) -> Taint:
    said = reader.fields(faults, at, raw, _TAINT)
    if isinstance(raw, dict) and "key" not in raw:
        faults.add(at, "needs key")
    return Taint(key=said.pop("key", ""), **said)


def _switch(faults: Faults, at: str, raw: object) -> str:
    """A switch by name or by number."""
    return str(_switch_number(faults, at, raw)) if isinstance(raw, int) else _switch_name(faults, at, raw)


_switch_name, _switch_number = text(64), reader.integer(0, 1_000_000)
_positive = reader.number(0, 1e9)
_amount_bytes = reader.quantity(memory_bytes)

_TAINT: dict[str, Reader[Any]] = {"key": label_name, "value": label_value, "effect": word(EFFECTS, str)}
_GROUP: dict[str, Reader[Any]] = {
    "kind": kind_name,
    "model": model_name,
    "count": reader.integer(0, MOST_DEVICES),
    "memory": _amount_bytes,
    "numa": reader.integer(0, 1023),
    "nvlink": text(64),
    "pcie": _switch,
    "tflops": _positive,
    "tops": _positive,
    "bandwidth": _positive,
    "watts": _positive,
}
_NODE: dict[str, Reader[Any]] = {
    "name": node_name,
    "count": reader.integer(1, MOST_NODES),
    "cpu": reader.quantity(cpu_milli),
    "memory": _amount_bytes,
    "labels": mapping(label_name, label_value, 64),
    "taints": items(_taint, 64),
    "volumes": items(volume_name, 1000),
    "devices": items(_group, MOST_DEVICES),
    "cpu_single_core": _positive,
    "pue": reader.number(1, 100),
    "network_delay": reader.number(0, 1e6),
}
_QUEUE: dict[str, Reader[Any]] = {
    "name": queue_name,
    "weight": reader.integer(1, 1_000_000),
    "guaranteed": read_amounts,
    "limit": read_amounts,
}
