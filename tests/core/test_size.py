"""What it costs: bytes a waiting task, and time where a mistake would be a factor of a thousand."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hetsched import _core
from hetsched._core import Core

GIB = 1 << 30

pytestmark = pytest.mark.skipif(_core.CHECKED_BUILD, reason="a checked build recomputes everything after every door")


def cluster(nodes: int, policy: int = _core.POLICY_PACK) -> Core:
    core = Core(policy=policy)
    core.begin(1)
    core.add_queue(_core.NONE, 1)
    for _ in range(nodes):
        core.add_node(64000, 256 * GIB, [(0, 0, 40 * GIB, -1, -1)] * 8)
    return core


def submit(core: Core, name: str, count: int, shape: int, **named: int) -> None:
    arguments: dict[str, Any] = {
        "template": 0,
        "shape": shape,
        "queue": 0,
        "qos": 1,
        "flags": 0,
        "submitted_ns": 1,
        **named,
    }
    core.accept([b"%s-%d" % (name.encode(), at) for at in range(count)], **arguments)


def test_a_waiting_task_costs_at_most_128_bytes() -> None:
    core = cluster(1)
    shape = core.add_shape(0, 0, [(0, 8, 1, 500, 0, ())], 0)
    for batch in range(100):
        submit(core, f"01J9Z3NDEKTSV4RRFFQ69-{batch:03}", 1000, shape, priority=batch % 3)
    core.decide(15)
    assert core.waiting(15) == 100_000
    assert core.memory()["per_waiting_task"] <= 128


def test_a_million_impossible_tasks_cost_one_look() -> None:
    core = cluster(1000)
    shape = core.add_shape(0, 0, [(0, 9, 0, 0, 0, ())], 0)
    for batch in range(10):
        submit(core, f"x{batch}", 100_000, shape)
    begun = time.perf_counter()
    core.decide(15)
    for _ in range(1000):
        core.decide(15)
    assert time.perf_counter() - begun < 1.0


def test_placing_is_a_matter_of_microseconds() -> None:
    """A bound that only a wrong complexity breaks: the honest figures are in the benchmarks."""
    core = cluster(1000)
    for at in range(32):
        submit(core, f"s{at}", 250, core.add_shape(500 + at, GIB, [(0, 0, 1, 300 + at, 0, ())], 0))
    begun = time.perf_counter()
    placed = core.decide(15)
    assert placed == 8000
    assert (time.perf_counter() - begun) / placed < 50e-6


def test_a_column_is_given_back_when_nobody_asks_any_more() -> None:
    core = cluster(8)
    for round_ in range(40):
        for at in range(32):
            submit(core, f"{round_}-{at}", 1, core.add_shape(1 + round_ * 32 + at, 0, [], 0))
        core.decide(15)
        for task in core.page(-1, 10_000, 1 << _core.PLACED):
            core.ended(task, _core.SUCCEEDED, 0)
            core.forget(task)
        for _ in range(300):
            core.decide(15)
    assert core.memory()["trees"] <= 4 * 32 * 64
