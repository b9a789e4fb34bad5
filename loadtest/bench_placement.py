"""How full does the cluster get by each preset, how long do tasks wait, and what does a decision cost?

    python loadtest/bench_placement.py [--nodes NODES.csv --tasks TASKS.csv[,MORE.csv]] [--policies price,fgd,first-fit]
                                       [--departures] [--loads 0.85,0.95,1.1] [--seeds 42-51] [--arrivals N]

Core and prices alone, without a journal and without reservations. Without --departures tasks come one by one and never leave, what does
not fit is dropped (the FGD protocol). With it they come as a Poisson stream, run as long as the trace says (`--cut` at most) and leave, at
each load twice: what does not fit waits, and what does not fit is lost. Several files of tasks: the mix drifts from one to the next.
Another cluster: --nodes. Without files: 400 made nodes and made tasks. Differences to `price` are paired by seed, with 95 % confidence.
"""

from __future__ import annotations

import argparse
import heapq
import math
import time
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from hetsched import _core
from hetsched.model import NodeSpec, Resources
from hetsched.policy import Pricer
from hetsched.scheduler import PRESETS
from loadtest.worlds import (
    DAY_S,
    Flow,
    Pool,
    departures,
    devices_of,
    inflation,
    made_nodes,
    made_pool,
    milli_of,
    read_nodes,
    read_pool,
    shuffled,
)

GPU = 0
NS = 1_000_000_000
BY_DEPARTURES = "price,fgd,first-fit,best-fit"
BY_INFLATION = "price,fragment,pack,first-fit,best-fit,packing,clustering,fgd"
T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


class Run:
    """One preset from the empty cluster on. What does not fit waits if `keeps`, else it is lost.

    `allocated`: percent of the devices, the mean over what is measured (where nothing leaves, at its end); `wait_s`: mean over the tasks that
    came meanwhile, those that still wait as long as they did; `lost`: percent of these tasks; `decide_us`, `pricing_us`: processor time a task.
    """

    def __init__(
        self, preset: str, nodes: Sequence[NodeSpec], flow: Flow, *, keeps: bool, patience_s: float = 0
    ) -> None:
        self.core = _core.Core(policy=PRESETS[preset])
        self.core.set_patience(round(patience_s * NS) if keeps else 0)
        self.flow, self.keeps = flow, keeps
        self.models = {name: at for at, name in enumerate(sorted({d.model or "" for n in nodes for d in n.devices}))}
        for node in nodes:
            row = [(GPU, self.models[device.model or ""], -1, -1, -1) for device in node.devices]
            self.core.add_node(node.cpu_milli, node.memory_bytes, row)
        self.queue = self.core.add_queue(_core.NONE, 1)
        self.shapes = {task: self._shape(task) for task in dict.fromkeys(flow.tasks)}
        if preset == "fgd":  # defined by a mix known beforehand
            for task, times in Counter(flow.tasks).items():
                self.core.know(self.shapes[task], times)
            self.core.set_policy(PRESETS[preset])
        self.pricer = Pricer(self.core) if preset == "price" else None
        self.milli = np.array([milli_of(task) for task in flow.tasks])
        self.placed_s = np.full(len(flow.tasks), -1.0)
        self._running: dict[int, int] = {}
        self._ends: list[tuple[float, int]] = []
        self._decide_s = self._price_s = 0.0
        self._used = self._area = self._last_s = 0.0
        self._go()
        self._tell(1000 * devices_of(nodes))

    def _shape(self, task: Resources) -> int:
        asks = [
            (
                GPU,
                ask.whole,
                ask.parts,
                ask.part_milli,
                0,
                frozenset(self.models[name] for name in ask.models if name in self.models),
            )
            for ask in task.devices
        ]
        return self.core.add_shape(task.cpu_milli, task.memory_bytes, asks, 0)

    # -- the run

    def _go(self) -> None:
        for number, came_s in enumerate(self.flow.arrivals_s):
            while self._ends and self._ends[0][0] <= came_s:
                self._leave()
            self._pass(came_s)
            self._arrive(number)
        while self._ends and self._ends[0][0] <= self.flow.until_s:
            self._leave()
        self._pass(self.flow.until_s)

    def _pass(self, now_s: float) -> None:
        """Until now it was as full as it was."""
        self._area += self._used * max(0.0, now_s - max(self._last_s, self.flow.from_s))
        self._last_s = now_s

    def _leave(self) -> None:
        end_s, slot = heapq.heappop(self._ends)
        self._pass(end_s)
        self._used -= self.milli[self._running.pop(slot)]
        self.core.begin(round(end_s * NS) + 1)
        self.core.ended(slot, _core.SUCCEEDED, 0)
        self.core.forget(slot)
        if self.keeps and self.core.waiting(0b1111):
            self._decide(end_s)
        self.core.take_facts()

    def _arrive(self, number: int) -> None:
        came_s = self.flow.arrivals_s[number]
        shape = self.shapes[self.flow.tasks[number]]
        self.core.begin(round(came_s * NS) + 1)
        began = time.thread_time()
        (slot,) = self.core.accept(
            [b"%d" % number], template=0, shape=shape, queue=self.queue, qos=1, flags=0, submitted_ns=0
        )
        self._decide_s += time.thread_time() - began
        self._running[slot] = number
        self._decide(came_s)
        if not self.keeps and self.placed_s[number] < 0:
            del self._running[slot]
            self.core.ended(slot, _core.CANCELLED, 0)
            self.core.forget(slot)
        self.core.take_facts()

    def _decide(self, now_s: float) -> None:
        began = time.thread_time()
        if self.pricer is not None:
            self.pricer.turn()
        priced = time.thread_time()
        self.core.time_told()
        placed = self.core.decide(0b1111, False)
        self._price_s += priced - began
        self._decide_s += time.thread_time() - priced
        if placed:
            for fact in self.core.peek_facts(0)[0]:
                if fact[0] == _core.F_PLACED:
                    slot = fact[1]
                    assert isinstance(slot, int)
                    self._placed(slot, now_s)

    def _placed(self, slot: int, now_s: float) -> None:
        number = self._running[slot]
        self.placed_s[number] = now_s
        self._used += self.milli[number]
        if math.isfinite(self.flow.durations_s[number]):
            heapq.heappush(self._ends, (now_s + self.flow.durations_s[number], slot))

    def _tell(self, capacity_milli: int) -> None:
        flow, count = self.flow, len(self.flow.tasks)
        came = flow.arrivals_s >= flow.from_s
        waited = np.where(self.placed_s >= 0, self.placed_s, flow.until_s) - flow.arrivals_s
        leave = bool(np.isfinite(flow.durations_s).any())
        used = self._area / (flow.until_s - flow.from_s) if leave else self._used
        self.allocated = 100 * used / capacity_milli
        self.wait_s = float(waited[came].mean())
        self.lost = 100 * float((self.placed_s[came] < 0).mean())
        self.decide_us, self.pricing_us = 1e6 * self._decide_s / count, 1e6 * self._price_s / count


# ---------------------------------------------------------------- tables


def compared(
    name: str,
    flows: Sequence[tuple[Sequence[NodeSpec], Flow]],
    policies: Sequence[str],
    *,
    keeps: bool,
    patience_s: float = 0,
) -> None:
    """A row a preset: the means, and by how much `price` differs, paired."""
    runs = {
        policy: [Run(policy, nodes, flow, keeps=keeps, patience_s=patience_s) for nodes, flow in flows]
        for policy in policies
    }
    what = "wait_s" if keeps else "lost"
    print(f"{name}, {'what does not fit waits' if keeps else 'what does not fit is lost'}:")
    for policy, own in runs.items():
        full, other = [run.allocated for run in own], [getattr(run, what) for run in own]
        cost = np.mean([run.decide_us for run in own]), np.mean([run.pricing_us for run in own])
        line = f"  {policy:12}{np.mean(full):8.2f} %   {what} {np.mean(other):9.2f}   {cost[0]:5.1f} + {cost[1]:.1f} µs"
        if policy != "price" and "price" in runs:
            more = [mine.allocated - run.allocated for mine, run in zip(runs["price"], own, strict=True)]
            less = [getattr(run, what) - getattr(mine, what) for mine, run in zip(runs["price"], own, strict=True)]
            line += f"   price: {interval(more)} points, {what} {interval(less)} less"
        print(line, flush=True)


def interval(differences: Sequence[float]) -> str:
    """Mean ± half of the 95 % confidence interval (Student's t)."""
    if len(differences) < 2:
        return f"{differences[0]:+.2f}"
    half = student(len(differences) - 1) * np.std(differences, ddof=1) / math.sqrt(len(differences))
    return f"{np.mean(differences):+.2f} ± {half:.2f}"


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: from a table below 10, then two terms of its expansion in 1 / freedom (good to 0.003)."""
    z = 1.959964
    return (
        T_95[freedom - 1]
        if freedom < 10
        else z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    )


def seeds_of(text: str) -> list[int]:
    """ "`42-51` or `1,2`."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if last else [int(one) for one in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=Path, help="CSV, as for hetsched simulate, or of Alibaba's spot cluster")
    parser.add_argument("--tasks", help="CSV likewise; several with commas: the mix drifts")
    parser.add_argument("--policies")
    parser.add_argument("--departures", action="store_true", help="tasks leave")
    parser.add_argument("--loads", default="0.85,0.95,1.1", help="with --departures")
    parser.add_argument("--arrivals", type=int, default=20_000, help="with --departures: after the beginning")
    parser.add_argument(
        "--cut", type=float, default=DAY_S, help="with --departures: seconds that a task runs at most; inf: as recorded"
    )
    parser.add_argument("--patience", type=float, default=0, help="with --departures: policy.patience, seconds")
    parser.add_argument("--seeds", type=seeds_of, default=[42])
    given = parser.parse_args()
    policies = (given.policies or (BY_DEPARTURES if given.departures else BY_INFLATION)).split(",")
    nodes, pools = world_of(given.nodes, given.tasks, given.cut)
    print(f"{len(nodes):,} nodes, {devices_of(nodes):,} devices, seeds {given.seeds[0]} to {given.seeds[-1]}")
    if not given.departures:
        flows = [(shuffled(nodes, seed), inflation(pools, nodes, 1.3, seed)) for seed in given.seeds]
        return compared("nothing leaves, 130 % asked for", flows, policies, keeps=False)
    if not all(np.isfinite(pool.durations_s).all() for pool in pools):
        parser.error(f"--departures: {given.tasks} does not say for how long tasks ran")
    for load, keeps in product(map(float, given.loads.split(",")), (True, False)):
        flows = [(shuffled(nodes, seed), departures(pools, nodes, load, given.arrivals, seed)) for seed in given.seeds]
        compared(f"load {100 * load:.0f} %", flows, policies, keeps=keeps, patience_s=given.patience)


def world_of(nodes: Path | None, tasks: str | None, cut_s: float) -> tuple[list[NodeSpec], list[Pool]]:
    """What was given, or what is made."""
    if nodes is None or tasks is None:
        return made_nodes(), [made_pool()]
    pools: list[Pool] = []
    for name in tasks.split(","):
        pools.append(read_pool(Path(name), cut_s=cut_s, like=pools[0] if pools else None))
    return read_nodes(nodes), pools


if __name__ == "__main__":
    main()
