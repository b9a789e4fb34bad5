"""What the cluster has and what of it is taken, resource by resource: both of the same nodes and devices, those that may take new attempts.

Promises: of a device kind never more is used than there is, so `capacity - used` is what is free. What attempts still hold on closed
nodes, and of devices that are not usable, is told apart.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hetsched import _core
from hetsched.scheduler.books import Books
from hetsched.scheduler.cluster import Node


class Total(NamedTuple):
    """Milli cores, bytes, or thousandths of a device. `used` of `capacity`; `aside`: held where nothing new is placed."""

    capacity: int
    used: int
    aside: int


def totals(books: Books) -> list[Total]:
    """By the core's index of the resource."""
    aside: Counter[int] = Counter()
    for node in books.cluster.by_name.values():
        if not node.is_open:
            _count_host(books, node, aside)
        if not node.is_open or any(health != "healthy" for health in node.health):
            _count_devices(books, node, aside)
    return [
        Total(capacity, held - aside[resource], aside[resource])
        for resource, (capacity, held) in enumerate(books.core.totals())
    ]


def _count_host(books: Books, node: Node, aside: Counter[int]) -> None:
    for task in books.core.tasks_on(node.slot):
        asked = books.body(task).resources
        aside[_core.RESOURCE_CPU] += asked.cpu_milli
        aside[_core.RESOURCE_MEMORY] += asked.memory_bytes


def _count_devices(books: Books, node: Node, aside: Counter[int]) -> None:
    """All of a closed node; of an open one those that are not usable."""
    for index, spec in enumerate(node.spec.devices):
        used_milli, _, usable = books.core.device_state(node.slot, index)
        if not (node.is_open and usable):
            aside[_core.RESOURCE_KIND + books.kinds.known(spec.kind)] += used_milli
