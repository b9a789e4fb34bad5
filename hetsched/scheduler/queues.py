"""Queues by name: made at first use, with their ancestors; weights, guarantees and limits as the operator set them."""

from __future__ import annotations

from collections.abc import Mapping

from hetsched._core import NONE, RESOURCE_CPU, RESOURCE_KIND, RESOURCE_MEMORY, Core
from hetsched.model import QueueSpec
from hetsched.scheduler.intern import Interned


class Queues:
    """Name ↔ the core's slot. `a/b` lies below `a`."""

    def __init__(self, core: Core, kinds: Interned, delays: Mapping[str, float] | None = None) -> None:
        """`delays`: seconds before tasks of a queue may evict, where it is not what holds above it."""
        self._core = core
        self._kinds = kinds
        self._delays = delays or {}
        self.slot: dict[str, int] = {}
        self.name: dict[int, str] = {}
        self.spec: dict[str, QueueSpec] = {}

    def ensure(self, name: str) -> int:
        """Slot of the queue; it and its ancestors are made if they are not there."""
        slot = self.slot.get(name)
        if slot is None:
            above = name.rpartition("/")[0]
            parent = self.ensure(above) if above else NONE
            slot = self._core.add_queue(parent, 1)
            self._enter(name, slot)
        return slot

    def _enter(self, name: str, slot: int) -> None:
        self.slot[name] = slot
        self.name[slot] = name
        self.spec[name] = QueueSpec(name=name)
        if name in self._delays:
            self._core.set_preemption_delay(round(self._delays[name] * 1e9), slot)

    def apply(self, spec: QueueSpec) -> None:
        """The operator's word."""
        slot = self.ensure(spec.name)
        self.spec[spec.name] = spec
        self._core.set_queue(slot, spec.weight, self._amounts(spec.guaranteed), self._amounts(spec.limit))

    def _amounts(self, amounts: dict[str, int]) -> list[tuple[int, int]]:
        return [(self.resource(name), amount) for name, amount in amounts.items()]

    def resource(self, name: str) -> int:
        """The core's index of a resource by name (a new device kind is interned)."""
        if name == "cpu":
            return RESOURCE_CPU
        if name == "memory":
            return RESOURCE_MEMORY
        return RESOURCE_KIND + self._kinds.slot(name)

    def line(self, name: str) -> list[str]:
        """The queue and its ancestors, innermost first."""
        parts = name.split("/")
        return ["/".join(parts[:i]) for i in range(len(parts), 0, -1)]

    # -- snapshot

    def save(self) -> list[tuple[str, int, QueueSpec]]:
        return [(name, slot, self.spec[name]) for name, slot in self.slot.items()]

    def load(self, saved: list[tuple[str, int, QueueSpec]]) -> None:
        for name, slot, spec in saved:
            self._enter(name, slot)
            self.spec[name] = spec
