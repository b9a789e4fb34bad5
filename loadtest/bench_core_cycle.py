"""How far is the core's cycle (accept, decide, start, end) from the least that any ordered queue costs, a push and a pop of C's heap?

    python loadtest/bench_core_cycle.py [TASKS] [NODES]

One thread, no journal, no network. A wave fills the cluster to about half, so that deciding always has a choice; waves
repeat until TASKS have gone through. The last figures are in README.md.
"""

from __future__ import annotations

import heapq
import random
import sys
import time

from hetsched import _core

GIB = 1 << 30
GPU, MODEL = 0, 0
SHAPES = (  # (cpu_milli, whole, parts, part_milli)
    (1000, 0, 0, 0),
    (2000, 0, 0, 0),
    (1000, 0, 1, 250),
    (1000, 0, 1, 500),
    (4000, 1, 0, 0),
)


def cluster(nodes: int) -> _core.Core:
    core = _core.Core(policy=_core.POLICY_FRAGMENT)
    for _ in range(nodes):
        core.add_node(64_000, 512 * GIB, [(GPU, MODEL, 40 * GIB, number // 4, -1) for number in range(8)])
    return core


class Stopwatch:
    """Seconds per step: `lap(name)` counts the time since the last lap."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str | None = None) -> None:
        """None: the time since the last lap belongs to nobody."""
        now = time.perf_counter()
        if name is not None:
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


def cycle(tasks: int, nodes: int) -> dict[str, float]:
    """µs a task for each step."""
    core = cluster(nodes)
    queue = core.add_queue(_core.NONE, 1)
    shapes = [
        core.add_shape(cpu, GIB, [(GPU, whole, parts, part, 0, ())] if whole or parts else [], 0)
        for cpu, whole, parts, part in SHAPES
    ]
    per_shape = max(1, min(nodes * 4, tasks) // len(shapes))
    watch = Stopwatch()
    done = placed = 0
    for turn in range(1, 1 + -(-tasks // (per_shape * len(shapes)))):
        core.begin(turn * 1_000_000)
        slots: list[int] = []
        for shape in shapes:
            keys = [b"%d" % number for number in range(done, done + per_shape)]
            done += per_shape
            watch.lap()
            slots += core.accept(
                keys, template=0, shape=shape, queue=queue, qos=1, flags=0, submitted_ns=turn * 1_000_000
            )
            watch.lap("accept")
        placed += core.decide(0b1111)
        watch.lap("decide")
        _live(core, slots)
        watch.lap("start, end")
        core.take_facts()
        watch.lap("facts taken")
    assert placed == done, f"{placed} of {done} placed: the cluster is too small for a wave"
    return {name: seconds * 1e6 / done for name, seconds in watch.seconds.items()}


def _live(core: _core.Core, slots: list[int]) -> None:
    for slot in slots:
        core.started(slot, 1)
    for slot in slots:
        core.ended(slot, _core.SUCCEEDED, 0)
        core.forget(slot)


def heap_limit(tasks: int) -> float:
    """µs for a push and a pop of heapq on a heap of that many."""
    values = [random.random() for _ in range(tasks)]
    heap: list[float] = []
    began = time.perf_counter()
    for value in values:
        heapq.heappush(heap, value)
    while heap:
        heapq.heappop(heap)
    return (time.perf_counter() - began) * 1e6 / tasks


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    steps = cycle(tasks, nodes)
    limit = heap_limit(min(tasks, 200_000))
    total = sum(steps.values())
    print(f"{tasks:,} tasks of {len(SHAPES)} shapes on {nodes:,} nodes, µs a task:")
    for name, micros in steps.items():
        print(f"  {name:12}{micros:8.3f}")
    print(f"  {'cycle':12}{total:8.3f}   {1e6 / total:,.0f} tasks/s")
    print(f"  {'C heap':12}{limit:8.3f}   the cycle is {total / limit:.1f} times the limit")


if __name__ == "__main__":
    main()
