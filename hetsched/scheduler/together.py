"""In numbers, why devices that must be together are not: the most that one island has free now, and the most that one has at all.

A question of people, asked of one task at a time: it looks at every device of the cluster.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from hetsched.model import DeviceAsk, DeviceSpec, Task
from hetsched.scheduler.books import Books
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.templates import SAME_CODES


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """`sentence` goes behind another; `numbers` beside others. Both empty where nothing is required."""

    sentence: str = ""
    numbers: dict[str, Any] = {}


def said(books: Books, task: Task) -> Apart:
    """Of a task whose devices must share an island: how many it wants of each kind, how many one island has."""
    if task.topology is None or not task.topology.required or task.topology.same not in SAME_CODES:
        return Apart()
    same = task.topology.same
    asks = [ask for ask in task.resources.devices if ask.whole + ask.parts > 1]
    rows = {ask.kind: {"wanted": ask.whole + ask.parts, **most_on_one(books, same, ask)} for ask in asks}
    parts = [
        f"{row['wanted']} {kind} on one {same} are wanted, the most that one has free is {row['free']}, has at all {row['ever']}"
        for kind, row in rows.items()
    ]
    return Apart(
        sentence="".join(f"; {part}" for part in parts), numbers={"same": same, "together": rows} if rows else {}
    )


def most_on_one(books: Books, same: str, ask: DeviceAsk) -> dict[str, int]:
    """Of devices that suit the ask, the most that nobody uses on one island, and the most that there are on one."""
    free, ever = 0, 0
    for node in books.cluster.by_name.values():
        unused: Counter[str] = Counter()
        there: Counter[str] = Counter()
        for index, device in enumerate(node.spec.devices):
            island = getattr(device, same)
            if island is not None and suits(device, ask):
                there[island] += 1
                unused[island] += is_unused(books, node, index)
        free, ever = max([free, *unused.values()]), max([ever, *there.values()])
    return {"free": free, "ever": ever}


def suits(device: DeviceSpec, ask: DeviceAsk) -> bool:
    """Of the kind, an allowed model and memory enough, whoever uses it."""
    return (
        device.kind == ask.kind
        and (not ask.models or device.model in ask.models)
        and (device.memory_bytes is None or device.memory_bytes >= ask.memory_bytes)
    )


def is_unused(books: Books, node: Node, index: int) -> bool:
    """Open to all of it."""
    used_milli, _, usable = books.core.device_state(node.slot, index)
    return node.is_open and usable and used_milli == 0
