"""The nodes as arrays, a place a node slot: what terms and plug-ins count with. Made anew when nodes come or change, never per task.

A figure that nobody knows is NaN; a slot without a node has `present` false. A fleet never changes, and its arrays cannot be written to, for
plug-ins are given it too: `changed` makes the next one from it, at the price of the nodes that differ.
Nodes with the same devices form a group, and what follows from devices is computed once a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from hetsched.model import DeviceAsk, DeviceSpec, NodeSpec
from hetsched.policy import catalogue

Vector = NDArray[np.float64]
Devices = tuple[DeviceSpec, ...]

PUE_LABEL = "hetsched/pue"
DELAY_LABEL = "hetsched/network-delay"
"""Labels that say what the node's own fields do not: agents have labels, and operators can set them."""

FIGURES: dict[str, Callable[[DeviceSpec], float | None]] = {
    "tflops": catalogue.tflops,
    "tops": catalogue.tops,
    "bandwidth_gbs": catalogue.bandwidth_gbs,
    "watts": catalogue.watts,
}

VECTORS_KEPT = 256
"""Vectors by figure and devices asked, and by volume; a cluster with more different ones computes some twice."""


class Fleet:
    """`cpu_cores`, `memory_bytes`: the whole node's. `single_core`: relative speed of one core. `pue`: power usage effectiveness, at
    least 1. `delay_s`: network delay, seconds. `group`: of equal devices, -1 where no node is."""

    def __init__(self, nodes: Iterable[tuple[int, NodeSpec]] = ()) -> None:
        self.size = 0
        self.specs: tuple[NodeSpec | None, ...] = ()
        self._table = np.empty((5, 0))
        self._groups: list[Devices] = []
        self._group_of: dict[tuple[object, ...], int] = {}
        self.group = np.empty(0, dtype=np.int64)
        self._fill(nodes)

    def changed(self, nodes: Iterable[tuple[int, NodeSpec | None]]) -> Fleet:
        """The fleet with these nodes in these slots; None: the slot is empty."""
        fleet = Fleet()
        fleet.size, fleet.specs = self.size, self.specs
        fleet._table, fleet.group = self._table.copy(), self.group.copy()
        fleet._groups, fleet._group_of = self._groups.copy(), self._group_of.copy()
        fleet._fill(nodes)
        return fleet

    def _fill(self, nodes: Iterable[tuple[int, NodeSpec | None]]) -> None:
        pairs = list(nodes)
        more = max((slot for slot, _ in pairs), default=-1) + 1 - self.size
        specs = [*self.specs, *[None] * more]
        if more > 0:
            self._table = np.hstack([self._table, np.full((5, more), np.nan)])
            self.group = np.concatenate([self.group, np.full(more, -1)])
            self.size += more
        for slot, spec in pairs:
            specs[slot] = spec
            self._table[:, slot] = np.nan if spec is None else _row(spec)
            self.group[slot] = -1 if spec is None else self._group(spec.devices)
        self.specs = tuple(specs)
        self.present: NDArray[np.bool_] = self.group >= 0
        for array in (self._table, self.group, self.present):
            array.flags.writeable = False
        self.cpu_cores, self.memory_bytes, self.single_core, self.pue, self.delay_s = self._table
        self._vectors: dict[tuple[object, ...], Vector] = {}
        self._used = frozenset(np.unique(self.group).tolist())

    def _group(self, devices: Devices) -> int:
        key = tuple((d.kind, d.model, d.tflops, d.tops, d.bandwidth, d.watts) for d in devices)
        found = self._group_of.setdefault(key, len(self._groups))
        if found == len(self._groups):
            self._groups.append(devices)
        return found

    # -- questions

    def each(self, ask: Callable[[NodeSpec], float | None]) -> Vector:
        """One number a node; None and absent nodes are NaN. A loop over all nodes: what is wanted often is kept by `devices` or `holds`."""
        out = np.full(self.size, np.nan)
        for slot, spec in enumerate(self.specs):
            value = None if spec is None else ask(spec)
            if value is not None:
                out[slot] = value
        return out

    def each_group(self, ask: Callable[[Devices], float | None]) -> Vector:
        """One number a node that follows from its devices alone."""
        values = [ask(devices) for devices in self._groups]
        by_group = np.array([np.nan if value is None else value for value in values] + [np.nan], dtype=np.float64)
        out: Vector = by_group[self.group]  # -1 is the last: no node, no number
        return out

    def devices(self, asks: tuple[DeviceAsk, ...], figure: str) -> Vector:
        """Mean `figure` (of FIGURES) over the devices that the asks would get of the node if nobody was there; NaN where none is known."""
        key = (figure, *((ask.kind, ask.models, ask.whole + ask.parts) for ask in asks))
        return self._kept(
            key, lambda: self.each_group(lambda devices: _mean(map(FIGURES[figure], fastest(devices, asks, _speed))))
        )

    def different_devices(self, asks: tuple[DeviceAsk, ...]) -> list[DeviceSpec]:
        """One device of each model that one of the asks may get, on whatever node."""
        here = (devices for group, devices in enumerate(self._groups) if group in self._used)
        return list({device.model: device for devices in here for device in right(devices, asks)}.values())

    def is_mixed(self, asks: tuple[DeviceAsk, ...]) -> bool:
        """Whether some node has devices of several models that the asks may get."""
        here = (devices for group, devices in enumerate(self._groups) if group in self._used)
        return any(len({device.model for device in right(devices, asks)}) > 1 for devices in here)

    def holds(self, volume: str) -> Vector:
        """1 where the node holds the volume, else 0."""
        return self._kept(("volume", volume), lambda: np.nan_to_num(self.each(lambda spec: volume in spec.volumes)))

    def _kept(self, key: tuple[object, ...], compute: Callable[[], Vector]) -> Vector:
        found = self._vectors.get(key)
        if found is None:
            if len(self._vectors) >= VECTORS_KEPT:
                self._vectors.clear()
            found = self._vectors[key] = compute()
            found.flags.writeable = False
        return found


def right(devices: Devices, asks: tuple[DeviceAsk, ...]) -> list[DeviceSpec]:
    """The devices that one of the asks may get, whoever holds them now."""
    return [
        device
        for device in devices
        if any(ask.kind == device.kind and (not ask.models or device.model in ask.models) for ask in asks)
    ]


def fastest(devices: Devices, asks: tuple[DeviceAsk, ...], speed: Callable[[DeviceSpec], float]) -> list[DeviceSpec]:
    """Of a board with several models as many as each ask wants, the fastest; of others all that it may get."""
    out: list[DeviceSpec] = []
    for ask in asks:
        mine = right(devices, (ask,))
        if len({device.model for device in mine}) > 1:
            mine = sorted(mine, key=speed, reverse=True)[: ask.whole + ask.parts]
        out += mine
    return out


def _speed(device: DeviceSpec) -> float:
    return catalogue.tflops(device) or catalogue.tops(device) or 0.0


def _row(spec: NodeSpec) -> list[float]:
    """cpu_cores, memory_bytes, single_core, pue, delay_s."""
    pue = _said(spec.pue, spec.labels.get(PUE_LABEL), least=1.0)
    delay_s = _said(spec.network_delay, spec.labels.get(DELAY_LABEL))
    single_core = np.nan if spec.cpu_single_core is None else spec.cpu_single_core
    return [spec.cpu_milli / 1000, spec.memory_bytes, single_core, pue, delay_s]


def _said(own: float | None, label: str | None, least: float = 0.0) -> float:
    """The node's own figure, else its label's; a label that is no number says nothing."""
    if own is None and label is not None:
        try:
            own = float(label)
        except ValueError:
            return np.nan
    return own if own is not None and least <= own < float("inf") else np.nan


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
