"""The nodes as arrays, a place a node slot: what terms and plug-ins count with. Made anew when nodes come or change, never per task.

A figure that nobody knows is NaN; a slot without a node has `present` false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from hetsched.model import DeviceAsk, DeviceSpec, NodeSpec
from hetsched.policy import catalogue

Vector = NDArray[np.float64]

PUE_LABEL = "hetsched/pue"
DELAY_LABEL = "hetsched/network-delay"
"""Labels that say what the node's own fields do not: agents have labels, and operators can set them."""

FIGURES: dict[str, Callable[[DeviceSpec], float | None]] = {
    "tflops": catalogue.tflops,
    "tops": catalogue.tops,
    "bandwidth_gbs": catalogue.bandwidth_gbs,
    "watts": catalogue.watts,
}


class Fleet:
    """`cpu_cores`, `memory_bytes`: the whole node's. `single_core`: relative speed of one core. `pue`: power usage effectiveness, at
    least 1. `delay_s`: network delay, seconds."""

    def __init__(self, nodes: Iterable[tuple[int, NodeSpec]]) -> None:
        pairs = list(nodes)
        self.size = max((slot for slot, _ in pairs), default=-1) + 1
        self.specs: list[NodeSpec | None] = [None] * self.size
        for slot, spec in pairs:
            self.specs[slot] = spec
        self.present: NDArray[np.bool_] = np.array([spec is not None for spec in self.specs], dtype=np.bool_)
        self.cpu_cores = self.each(lambda spec: spec.cpu_milli / 1000)
        self.memory_bytes = self.each(lambda spec: spec.memory_bytes)
        self.single_core = self.each(lambda spec: spec.cpu_single_core)
        self.pue = self.each(lambda spec: said(spec.pue, spec.labels.get(PUE_LABEL), least=1.0))
        self.delay_s = self.each(lambda spec: said(spec.network_delay, spec.labels.get(DELAY_LABEL)))
        self._figures: dict[tuple[object, ...], Vector] = {}

    def each(self, ask: Callable[[NodeSpec], float | None]) -> Vector:
        """One number a node; None and absent nodes are NaN."""
        out = np.full(self.size, np.nan)
        for slot, spec in enumerate(self.specs):
            value = None if spec is None else ask(spec)
            if value is not None:
                out[slot] = value
        return out

    def devices(self, asks: tuple[DeviceAsk, ...], figure: str) -> Vector:
        """Mean `figure` (of FIGURES) over the node's devices that one of the asks may get; NaN where none is known."""
        key = (figure, *((ask.kind, ask.models) for ask in asks))
        found = self._figures.get(key)
        if found is None:
            found = self._figures[key] = self.each(lambda spec: _mean(map(FIGURES[figure], right(spec, asks))))
        return found


def right(spec: NodeSpec, asks: tuple[DeviceAsk, ...]) -> list[DeviceSpec]:
    """The node's devices that one of the asks may get, whoever holds them now."""
    return [
        device
        for device in spec.devices
        if any(ask.kind == device.kind and (not ask.models or device.model in ask.models) for ask in asks)
    ]


def said(own: float | None, label: str | None, least: float = 0.0) -> float | None:
    """The node's own figure, else its label's; a label that is no number says nothing."""
    if own is None and label is not None:
        try:
            own = float(label)
        except ValueError:
            return None
    return own if own is not None and least <= own < float("inf") else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
