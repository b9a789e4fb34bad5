"""By what a waiting task stands where it does: the numbers that the configured order compares, each with its weight and whose formula it is.

Promises: numbers are of now and say what the core compares, computed anew from what it tells. One is not to be had from it exactly: the age
is in whole minutes from the task's submission, there from the beginning of its group.
"""

from __future__ import annotations

from typing import Any

from hetsched import _core
from hetsched._core import TaskRow
from hetsched.model import Task
from hetsched.policy.profiles import class_of
from hetsched.scheduler.rendering import iso
from hetsched.scheduler.world import World

MINUTE_NS = 60_000_000_000
AGE_MOST = 100  # points of priority, one a minute
UNKNOWN_EFFICIENCY = 0.8

FORMULAS = {
    "drf": "qos, then guaranteed before borrowing, then the queue's dominant share over weight (smallest first), then priority "
    "with age (largest first), then deadline, then sequence",
    "weighted": "qos, then 0.4 urgency + 0.3 match + 0.3 efficiency (largest first), then deadline, priority with age, sequence",
    "fifo": "qos, then sequence, whatever queue, priority and deadline",
}
SOURCES = {
    "drf": "Ghodsi et al., Dominant Resource Fairness, NSDI 2011; docs/rules/order.md",
    "weighted": "the weighted sum that the requirements' design document gives; docs/rules/weighted.md",
    "fifo": "docs/rules/order.md",
}


def order_json(world: World, task: int, row: TaskRow, body: Task) -> dict[str, Any]:
    """`order` of explain."""
    name = world.config.order
    age = min(AGE_MOST, max(0, world.now_ns - row.submitted_ns) // MINUTE_NS)
    told: dict[str, Any] = {
        "name": name,
        "formula": FORMULAS[name],
        "source": SOURCES[name],
        "qos": str(body.qos),
        "priority": {"own": row.priority, "age": age, "lifted": row.priority + age},
        "deadline": None if row.deadline_ns == _core.NEVER_NS else iso(row.deadline_ns),
        "sequence": row.sequence,
    }
    if name == "drf":
        told["is_owed"] = world.core.is_owed(task)
        told["queues"] = queue_shares(world, world.books.queues.name[row.queue])
    if name == "weighted":
        terms = weighted_terms(world, row, body)
        told["terms"] = terms
        told["score"] = sum(one["weight"] * one["value"] for one in terms)
    return told


# ---------------------------------------------------------------------- fair share


def queue_shares(world: World, queue: str) -> list[dict[str, Any]]:
    """The queue and those above it, innermost first: of two tasks those of their queues are compared that are siblings."""
    return [_share(world, name) for name in world.books.queues.line(queue)]


def _share(world: World, queue: str) -> dict[str, Any]:
    books = world.books
    names = ("cpu", "memory", *books.kinds.words)
    amounts = zip(names, books.core.queue_used(books.queues.slot[queue]), books.core.totals(), strict=False)
    shares = {name: _part(used, capacity) for name, used, (capacity, _) in amounts if used > 0}
    dominant = max(shares, key=lambda name: shares[name], default=None)
    share = 0.0 if dominant is None else shares[dominant]
    weight = books.queues.spec[queue].weight
    return {"queue": queue, "share": share, "resource": dominant, "weight": weight, "share_over_weight": share / weight}


def _part(used: int, capacity: int) -> float:
    """At most 4, as in the core: of a cluster that has no such resource any more all is more than there is."""
    return min(used / capacity, 4.0) if capacity > 0 else 4.0


# ---------------------------------------------------------------------- the weighted order


def weighted_terms(world: World, row: TaskRow, body: Task) -> list[dict[str, Any]]:
    """Weight, value (0 to 1) and what it is, as `_core/weighted.pxi` counts."""
    milli = world.books.profiles.expectation(class_of(body)).efficiency_milli
    said = "mean learned speed over the device models known, of the fastest"
    return [
        _term("urgency", 0.4, _urgency(world, row), "1 / (1 + seconds to the deadline); 0 without one"),
        _term(
            "match",
            0.3,
            world.core.match(row.shape) / 2**30,
            "how well the best node suits now; 0 where none can take it",
        ),
        _term(
            "efficiency",
            0.3,
            UNKNOWN_EFFICIENCY if milli < 0 else milli / 1000,
            f"{said}: nobody knows yet, so {UNKNOWN_EFFICIENCY}" if milli < 0 else said,
        ),
    ]


def _term(name: str, weight: float, value: float, what: str) -> dict[str, Any]:
    return {"term": name, "weight": weight, "value": value, "what": what, "source": SOURCES["weighted"]}


def _urgency(world: World, row: TaskRow) -> float:
    if row.deadline_ns == _core.NEVER_NS:
        return 0.0
    return 1 / (1 + max(0, row.deadline_ns - world.now_ns) / 1e9)
