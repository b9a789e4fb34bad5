"""Small fleets and shapes."""

from __future__ import annotations

from typing import Any

from hetsched.model import DeviceAsk, parse_node
from hetsched.policy.fleet import Fleet
from hetsched.policy.shape import ShapeWords


def fleet(*nodes: dict[str, Any]) -> Fleet:
    """Nodes as scenario files say them, in slots 0, 1, 2 …"""
    specs = [spec for raw in nodes for spec in parse_node({"cpu": 8, "memory": "32Gi", **raw})]
    return Fleet(enumerate(specs))


def node(name: str, model: str | None = None, kind: str = "gpu", count: int = 1, **extra: Any) -> dict[str, Any]:
    devices = [] if model is None else [{"kind": kind, "model": model, "count": count}]
    return {"name": name, "devices": devices, **extra}


def shape(kind: str | None = "gpu", task_type: str = "batch", **extra: Any) -> ShapeWords:
    asks = () if kind is None else (DeviceAsk(kind=kind, whole=1, models=extra.pop("models", ())),)
    return ShapeWords(task_type=task_type, cpu_milli=1000, memory_bytes=0, asks=asks, size="1", **extra)
