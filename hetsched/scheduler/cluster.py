"""Nodes and devices by name, and where each stands; keeps the core's slots, openness and usability in step.

A node is *open* (takes new attempts) while it is up, not silent, not cordoned and not draining. A device is usable while it is healthy.
"""

from __future__ import annotations

import msgspec

from hetsched._core import Core
from hetsched.model import DeviceSpec, NodeSpec
from hetsched.scheduler.intern import Interned
from hetsched.scheduler.words import DeviceMarked, NodeMarked

MAX_DOMAIN_LABELS = 8


class Node(msgspec.Struct, kw_only=True):
    """One node as the scheduler knows it. `health[i]`: healthy | suspect | failed of device i, with the reason beside it."""

    name: str
    slot: int
    spec: NodeSpec
    up: bool = True
    silent: bool = False
    cordoned: bool = False
    draining: bool = False
    boot_id: str = ""
    health: list[str] = []
    health_reason: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether new attempts may be placed here."""
        return self.up and not (self.silent or self.cordoned or self.draining)

    @property
    def state(self) -> str:
        """One word for people: the first that is true of down, silent, draining, cordoned, ready."""
        for word, is_so in (("down", not self.up), ("silent", self.silent), ("draining", self.draining)):
            if is_so:
                return word
        return "cordoned" if self.cordoned else "ready"

    def device(self, index: int) -> DeviceSpec:
        """Device by the core's index."""
        return self.spec.devices[index]

    def index_of(self, device: str) -> int:
        """The core's index of a device id; -1 if the node has no such device."""
        for index, spec in enumerate(self.spec.devices):
            if spec.id == device:
                return index
        return -1


def same_hardware(a: NodeSpec, b: NodeSpec) -> bool:
    """Whether the two describe the same amounts, so that running attempts may go on under the new description. Agents of 0.1 before it was
    released did not tell switches: to tell them is no other hardware."""
    return a.cpu_milli == b.cpu_milli and a.memory_bytes == b.memory_bytes and _without_pcie(a) == _without_pcie(b)


def _without_pcie(spec: NodeSpec) -> tuple[DeviceSpec, ...]:
    return tuple(msgspec.structs.replace(device, pcie=None) for device in spec.devices)


Faces = dict[int, tuple[str, tuple[str, ...]]]
"""Node slot → (name, ids of its devices by index)."""


class Cluster:
    """All nodes. Methods named `apply_*` follow word facts; the others answer questions."""

    def __init__(self, core: Core, kinds: Interned, models: Interned) -> None:
        self._core = core
        self._kinds = kinds
        self._models = models
        self.labels = Interned("topology labels", MAX_DOMAIN_LABELS)
        self.values = Interned("values of topology labels", 1 << 30)
        self.by_name: dict[str, Node] = {}
        self.by_slot: dict[int, Node] = {}
        self.version = 0  # moves whenever what is said of some node does; derived
        self._faces: Faces = {}
        self._faces_version = -1
        self.marks = 0  # moves whenever a node opens or closes, or a device's health changes; derived

    @property
    def faces(self) -> Faces:
        """Names of each node and of its devices, by slot. Another table once anything changes, so it may be kept to read later."""
        if self._faces_version != self.version:
            self._faces_version = self.version
            self._faces = {
                slot: (node.name, tuple(d.id for d in node.spec.devices)) for slot, node in self.by_slot.items()
            }
        return self._faces

    # -- word facts

    def apply_known(self, spec: NodeSpec) -> Node:
        """First join, or a join with other hardware: the node gets a (new) slot."""
        self.version += 1
        old = self.by_name.get(spec.name)
        if old is not None:
            self._core.remove_node(old.slot)
            del self.by_slot[old.slot]
        slot = self._core.add_node(spec.cpu_milli, spec.memory_bytes, self._devices(spec))
        node = Node(name=spec.name, slot=slot, spec=spec, boot_id=spec.boot_id)
        node.health = ["healthy"] * len(spec.devices)
        node.health_reason = [""] * len(spec.devices)
        if old is not None:
            node.cordoned, node.draining = old.cordoned, old.draining
            self._core.open_node(slot, node.is_open)
        self.by_name[spec.name] = self.by_slot[slot] = node
        self._set_domains(node)
        return node

    def apply_described(self, spec: NodeSpec) -> None:
        """The same hardware under other labels, taints or volumes."""
        self.version += 1
        node = self.by_name[spec.name]
        node.spec = spec
        self._set_domains(node)

    def apply_marked(self, word: NodeMarked) -> None:
        self.marks += 1
        node = self.by_name[word.node]
        node.up, node.silent, node.cordoned, node.draining = word.up, word.silent, word.cordoned, word.draining
        node.boot_id = word.boot_id
        self._core.open_node(node.slot, node.is_open)

    def apply_device(self, word: DeviceMarked) -> None:
        self.marks += 1
        node = self.by_name[word.node]
        index = node.index_of(word.device)
        node.health[index], node.health_reason[index] = word.health, word.reason
        self._core.set_device_usable(node.slot, index, word.health == "healthy")

    def _devices(self, spec: NodeSpec) -> list[tuple[int, ...]]:
        """Rows for the core. Islands are of one board, so each board's are numbered on their own."""
        links: dict[str | None, int] = {None: -1}
        switches: dict[str | None, int] = {None: -1}
        return [
            (
                self._kinds.slot(device.kind),
                -1 if device.model is None else self._models.slot(device.model),
                -1 if device.memory_bytes is None else device.memory_bytes,
                -1 if device.numa is None else device.numa,
                links.setdefault(device.nvlink, len(links) - 1),
                switches.setdefault(device.pcie, len(switches) - 1),
            )
            for device in spec.devices
        ]

    # -- topology labels

    def domain_column(self, label: str) -> int:
        """Column of a label that gangs may be kept together by; new ones are filled in for every node."""
        column = self.labels.known(label)
        if column < 0:
            column = self.labels.slot(label)
            for node in self.by_name.values():
                self._set_domain(node, label, column)
        return column

    def _set_domains(self, node: Node) -> None:
        for column, label in enumerate(self.labels.words):
            self._set_domain(node, label, column)

    def _set_domain(self, node: Node, label: str, column: int) -> None:
        value = node.spec.labels.get(label)
        self._core.set_node_domain(node.slot, column, -1 if value is None else self.values.slot(f"{label}={value}"))

    # -- snapshot

    def save(self) -> tuple[list[Node], list[str], list[str]]:
        return list(self.by_name.values()), self.labels.words, self.values.words

    def load(self, saved: tuple[list[Node], list[str], list[str]]) -> None:
        nodes, labels, values = saved
        self.labels.load(labels)
        self.values.load(values)
        for node in nodes:
            self.by_name[node.name] = self.by_slot[node.slot] = node
        self.version += 1
