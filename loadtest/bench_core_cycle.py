"""What does a bulk task cost the core from accept to finish, against the least that any ordered queue costs, a C heap?

    python -m loadtest.bench_core_cycle [--presets pack,first-fit,best-fit,fragment,price] [--nodes 1000] [--queued 0,1000000]
                                        [--tasks 20000] [--rounds 5] [--trace NODES.csv TASKS.csv]
    python -m loadtest.bench_core_cycle --growth       10,000 nodes against 1,000; a million queued against ten thousand
    python -m loadtest.bench_core_cycle --memory       bytes a pending task, and whether they stay the same over ten million tasks

The 100 commonest shapes of a trace (without one: made ones), 8 queues, 4 levels, nine tenths of the devices in use, frames of a thousand: what
has ended, what is new, placing, the facts and their checksum. One thread, processor time, no journal. `bare`: the same design in C with none of
the rules (bare_cycle.c). `lines`: what it costs to move the cache lines of it alone (lines.c). The last figures are in README.md.
"""

from __future__ import annotations

import argparse
import array
import random
import statistics
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hetsched import _core
from hetsched.model import NodeSpec, Resources
from hetsched.policy import Pricer
from hetsched.scheduler import PRESETS
from loadtest.bare_cycle import BareCycle
from loadtest.heap import Heap
from loadtest.lines import Lines
from loadtest.worlds import made_nodes, made_pool, milli_of, read_nodes, read_pool

FRAME = 1000
SHAPES, QUEUES, LEVELS = 100, 8, 4
OCCUPIED = 0.9
QUEUED_MOST = HEAP = 1_000_000
STEPS = ("finish", "accept", "place", "facts")
TARGETS = {("pack", 0): 1.5, ("pack", 1): 2.2, ("fragment", 0): 2.8, ("fragment", 1): 3.2}
"""Most that a cycle may cost, in heaps: with a short queue, with a long one."""


class Mix:
    """Shapes, and how often each is asked."""

    def __init__(self, tasks: Sequence[Resources]) -> None:
        self.tasks, self.weights = zip(*Counter(tasks).most_common(SHAPES), strict=True)


class World:
    """A cluster, nine tenths full, and `queued` tasks that wait."""

    def __init__(self, preset: str, nodes: Sequence[NodeSpec], mix: Mix, queued: int, seed: int) -> None:
        self.core = core = _core.Core(policy=PRESETS[preset])
        self.random = random.Random(seed)
        self.seconds = dict.fromkeys(STEPS, 0.0)
        self.bytes = self.done = self._named = self._turn = 0
        self._pricer = Pricer(core) if preset == "price" else None
        models = {name: at for at, name in enumerate(sorted({d.model or "" for node in nodes for d in node.devices}))}
        for node in nodes:
            devices = [(0, models[device.model or ""], -1, -1, -1) for device in node.devices]
            core.add_node(node.cpu_milli, node.memory_bytes, devices)
        core.set_backfill(True)
        queues = [core.add_queue(_core.NONE, 1 + number % 2) for number in range(QUEUES)]
        self.heads = []
        for template, task in enumerate(mix.tasks):
            asks = [
                (0, ask.whole, ask.parts, ask.part_milli, 0, frozenset(models[m] for m in ask.models if m in models))
                for ask in task.devices
            ]
            shape = core.add_shape(task.cpu_milli, task.memory_bytes, asks, 0)
            for queue in queues:
                for qos in range(LEVELS):
                    self.heads.append((template, shape, queue, qos, 0, 0, _core.NEVER_NS, 0))
        self._weights = [weight for weight in mix.weights for _ in range(QUEUES * LEVELS)]
        self._milli = [milli_of(task) for task in mix.tasks]
        self.running: list[int] = []
        self._fill(OCCUPIED * 1000 * sum(len(node.devices) for node in nodes))
        while core.waiting(0b1111) < queued:
            self._turn_of([], FRAME * 10, is_timed=False)

    def _fill(self, milli: float) -> None:
        """Until so much of the devices is in use."""
        while core_used(self.core) < milli and self.core.waiting(0b1111) < FRAME:
            self._turn_of([], 100, is_timed=False)

    def frame(self) -> None:
        """A thousand end, a thousand come."""
        leaving = [self._leave() for _ in range(min(FRAME, len(self.running)))]
        self._turn_of(leaving, FRAME, is_timed=True)

    def _leave(self) -> int:
        at = self.random.randrange(len(self.running))
        self.running[at], self.running[-1] = self.running[-1], self.running[at]
        return self.running.pop()

    def _turn_of(self, leaving: list[int], coming: int, *, is_timed: bool) -> None:
        core = self.core
        ended = array.array("I", leaving).tobytes()
        which = array.array("H", self.random.choices(range(len(self.heads)), self._weights, k=coming)).tobytes()
        ids = b"\n".join(b"%d" % number for number in range(self._named, self._named + coming))
        self._named += coming
        self._turn += 1
        now_ns = self._turn * 1_000_000
        core.begin(now_ns)
        marks = [time.thread_time()]
        if leaving:
            core.succeeded(ended)
            core.forget_all(ended)
        marks.append(time.thread_time())
        core.accept_mixed(ids, which, self.heads, now_ns)
        marks.append(time.thread_time())
        if self._pricer is not None:
            self._pricer.turn()
        core.decide(0b1111, False)
        marks.append(time.thread_time())
        facts = core.take_facts()
        zlib.crc32(facts)
        marks.append(time.thread_time())
        for _, _, fact in _core.split_facts(facts):
            if fact[0] == _core.F_PLACED:
                self.running.append(fact[1])  # type: ignore[arg-type]
        if is_timed:
            for step, begin, end in zip(STEPS, marks, marks[1:], strict=False):
                self.seconds[step] += end - begin
            self.bytes += len(facts) + len(ids)
            self.done += len(leaving)

    def cost(self, tasks: int) -> dict[str, float]:
        """µs a task by step, over so many."""
        self.seconds, self.bytes, self.done = dict.fromkeys(STEPS, 0.0), 0, 0
        while self.done < tasks:
            self.frame()
        return {step: seconds * 1e6 / self.done for step, seconds in self.seconds.items()}


def core_used(core: _core.Core) -> int:
    """Milli of devices in use."""
    return core.totals()[_core.RESOURCE_KIND][1]


# ---------------------------------------------------------------- questions


def compare(
    presets: Sequence[str], nodes: int, queued: Sequence[int], source: Source, options: argparse.Namespace
) -> None:
    """Each preset with each queue against the heap of the same round."""
    heap, lines, mix = Heap(HEAP), None, source.mix
    bare = {waiting: BareCycle(source.nodes(nodes), mix.tasks, mix.weights, waiting) for waiting in queued}
    print(
        f"{nodes:,} nodes, {SHAPES} shapes, {QUEUES} queues, {LEVELS} levels, frames of {FRAME:,}; µs of processor time a task"
    )
    print(
        f"{'preset':12}{'waiting':>10}{''.join(f'{step:>9}' for step in STEPS)}{'cycle':>9}{'heap':>8}{'ratio':>7}{'wanted':>8}"
        f"{'bare':>8}{'lines':>8}{'bytes':>7}"
    )
    for preset in presets:
        for waiting in queued:
            world = World(preset, source.nodes(nodes), mix, waiting, seed=1)
            world.cost(options.tasks)  # warms up
            if lines is None:
                lines = Lines(len(world.running), nodes)
            costs, limits = [], []
            for _ in range(options.rounds):
                costs.append(world.cost(options.tasks))
                limits.append((heap.micros(), bare[waiting].micros(), lines.micros()))
            steps = {step: statistics.median(cost[step] for cost in costs) for step in STEPS}
            cycles = [sum(cost.values()) for cost in costs]
            limit, without_rules, least = (statistics.median(column) for column in zip(*limits, strict=True))
            ratio = statistics.median(cycle / of_heap for cycle, (of_heap, _, _) in zip(cycles, limits, strict=True))
            wanted = TARGETS.get((preset, waiting >= QUEUED_MOST))
            print(
                f"{preset:12}{world.core.waiting(0b1111):10,}{''.join(f'{steps[step]:9.3f}' for step in STEPS)}"
                f"{statistics.median(cycles):9.3f}{limit:8.3f}{ratio:7.1f}{'' if wanted is None else f'{wanted:.1f}':>8}"
                f"{without_rules:8.3f}{least:8.3f}{world.bytes / world.done:7.1f}",
                flush=True,
            )
    assert not any(one.broken() for one in bare.values()), "the bare cycle breaks its laws"


def growth(presets: Sequence[str], source: Source, options: argparse.Namespace) -> None:
    """What ten times the nodes, and a hundred times the queue, cost a task."""
    for preset in presets:
        for name, wanted, less, more in (
            ("10,000 nodes against 1,000", 1.5, (1000, 0), (10_000, 0)),
            ("a million waiting against 10,000", 1.6, (1000, 10_000), (1000, QUEUED_MOST)),
        ):
            worlds = [World(preset, source.nodes(nodes), source.mix, queued, seed=1) for nodes, queued in (less, more)]
            ratios = []
            for number in range(options.rounds + 1):
                small, large = (sum(world.cost(options.tasks).values()) for world in worlds)
                if number:
                    ratios.append(large / small)
            print(f"{preset:12}{name:34}{statistics.median(ratios):6.2f} x, wanted at most {wanted}", flush=True)


def memory(preset: str, source: Source, options: argparse.Namespace) -> None:
    """Bytes a pending task at a million of them, and what the tables hold after many tasks have gone through."""
    world = World(preset, source.nodes(1000), source.mix, QUEUED_MOST, seed=1)
    print(
        f"{world.core.memory()['per_waiting_task']} bytes a pending task of {world.core.waiting(0b1111):,}, wanted at most 128"
    )
    world = World(preset, source.nodes(1000), source.mix, 0, seed=1)
    held = []
    for _ in range(10):
        world.cost(options.flow // 10)
        held.append(sum(world.core.memory().values()))
    print(f"tables after each tenth of {options.flow:,} tasks, MB: {', '.join(f'{size / 1e6:.2f}' for size in held)}")


class Source:
    """Nodes and the mix, of a trace or made."""

    def __init__(self, trace: tuple[Path, Path] | None) -> None:
        self._nodes = made_nodes() if trace is None else read_nodes(trace[0])
        self.mix = Mix((made_pool() if trace is None else read_pool(trace[1])).tasks)

    def nodes(self, count: int) -> list[NodeSpec]:
        """So many, in the proportions of the source."""
        return random.Random(3).choices(self._nodes, k=count)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--presets", default="pack,first-fit,best-fit,fragment,price")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--queued", default=f"0,{QUEUED_MOST}")
    parser.add_argument("--tasks", type=int, default=20_000, help="a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--trace", type=Path, nargs=2, metavar=("NODES.csv", "TASKS.csv"), help="as for hetsched simulate"
    )
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--flow", type=int, default=10_000_000, help="with --memory: tasks that go through")
    options = parser.parse_args()
    source = Source(options.trace)
    presets = options.presets.split(",")
    if options.growth:
        growth(presets, source, options)
    elif options.memory:
        memory(presets[0], source, options)
    else:
        compare(presets, options.nodes, [int(one) for one in options.queued.split(",")], source, options)


if __name__ == "__main__":
    main()
