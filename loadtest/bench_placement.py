"""What does a decision cost by each preset, and how full does the cluster get?

    python loadtest/bench_placement.py [--nodes NODES.csv --tasks TASKS.csv] [--policies price,fgd,first-fit]

Core and prices alone, tasks one by one as in the FGD protocol: accept, price when due, decide; what does not fit is dropped. Processor time,
so that a busy machine does not count. Without files: 400 made nodes and made tasks for 130 % of them. With those of the openb
trace the figures of README.md.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hetsched import _core
from hetsched.model import DeviceAsk, DeviceSpec, NodeSpec, Rejection, Resources
from hetsched.policy import Pricer
from hetsched.scheduler import PRESETS
from hetsched.sim.read_trace import read_trace

GIB = 1 << 30
GPU = 0
MADE = (
    (1, 8, 1, 1000),
    (4, 30, 1, 1000),
    (11, 46, 1, 470),
    (9, 30, 1, 650),
    (3, 6, 1, 220),
    (48, 180, 4, 1000),
    (90, 380, 8, 1000),
    (8, 16, 0, 0),
)
TIMED = ("accept, decide", "pricing")


def made() -> tuple[list[NodeSpec], list[Resources]]:
    """Nodes and tasks of the kind that openb has, in random order."""
    rng = random.Random(1)
    nodes = []
    for number in range(400):
        cpu, count = rng.choice(((96, 8), (96, 8), (104, 2), (16, 1), (64, 4)))
        devices = tuple(DeviceSpec(id=f"gpu-{at}", kind="gpu", model="T4") for at in range(count))
        nodes.append(NodeSpec(name=f"n{number}", cpu_milli=cpu * 1000, memory_bytes=cpu * 4 * GIB, devices=devices))
    tasks = []
    total = 1300 * sum(len(node.devices) for node in nodes)
    while total > 0:
        cpu, memory, count, milli = rng.choices(MADE, weights=(20, 25, 15, 10, 10, 3, 2, 15))[0]
        whole = count if milli == 1000 else 0
        ask = DeviceAsk(kind="gpu", whole=whole, parts=count - whole, part_milli=0 if whole else milli)
        tasks.append(Resources(cpu_milli=cpu * 1000, memory_bytes=memory * GIB, devices=(ask,) if count else ()))
        total -= count * milli
    return nodes, tasks


def read(nodes: Path, tasks: Path) -> tuple[list[NodeSpec], list[Resources]]:
    """Those of a trace."""
    world = read_trace(nodes, tasks, tick_s=0.001, policy=None, seed=None)
    items = [item for one in world.happenings for item in one.what.submission.items]
    return list(world.nodes), [item.resources for item in items if not isinstance(item, Rejection)]


class Run:
    """One preset from the empty cluster on. `seconds`: processor time by TIMED."""

    def __init__(self, preset: str, nodes: list[NodeSpec], tasks: list[Resources]) -> None:
        self.core = _core.Core(policy=PRESETS[preset])
        self.models = {
            model: at for at, model in enumerate(sorted({device.model or "" for device in devices_of(nodes)}))
        }
        for node in nodes:
            row = [(GPU, self.models[device.model or ""], -1, -1, -1) for device in node.devices]
            self.core.add_node(node.cpu_milli, node.memory_bytes, row)
        self.queue = self.core.add_queue(_core.NONE, 1)
        self.shapes = {task: self._shape(task) for task in dict.fromkeys(tasks)}
        if preset == "fgd":  # defined by a mix known beforehand
            for task, times in Counter(tasks).items():
                self.core.know(self.shapes[task], times)
            self.core.set_policy(PRESETS[preset])
        self.pricer = Pricer(self.core) if preset == "price" else None
        self.seconds = dict.fromkeys(TIMED, 0.0)
        self.placed_milli = 0
        for number, task in enumerate(tasks):
            self._decide(number, task)
        self.allocated = self.placed_milli / (10 * sum(len(node.devices) for node in nodes))

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

    def _decide(self, number: int, task: Resources) -> None:
        self.core.begin(number + 1)
        began = time.thread_time()
        (slot,) = self.core.accept(
            [b"%d" % number], template=0, shape=self.shapes[task], queue=self.queue, qos=1, flags=0, submitted_ns=0
        )
        priced = time.thread_time()
        if self.pricer is not None:
            self.pricer.turn()
        decides = time.thread_time()
        placed = self.core.decide(0b1111, False)
        ended = time.thread_time()
        self.seconds["accept, decide"] += priced - began + ended - decides
        self.seconds["pricing"] += decides - priced
        if placed:
            self.placed_milli += sum(ask.total_milli for ask in task.devices)
        else:
            self.core.ended(slot, _core.CANCELLED, 0)
            self.core.forget(slot)
        self.core.take_facts()


def devices_of(nodes: list[NodeSpec]) -> Iterator[DeviceSpec]:
    """All of them."""
    for node in nodes:
        yield from node.devices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=Path, help="CSV, as for hetsched simulate")
    parser.add_argument("--tasks", type=Path, help="likewise")
    parser.add_argument("--policies", default="price,fragment,pack,first-fit,best-fit,packing,clustering,fgd")
    given = parser.parse_args()
    nodes, tasks = read(given.nodes, given.tasks) if given.nodes and given.tasks else made()
    print(f"{len(tasks):,} tasks on {len(nodes):,} nodes, {len(set(tasks))} shapes; µs of processor time a task:")
    print(f"  {'preset':12}{'accept, decide':>16}{'pricing':>10}{'allocated':>12}")
    for preset in given.policies.split(","):
        run = Run(preset, nodes, tasks)
        decide, pricing = (1e6 * run.seconds[name] / len(tasks) for name in TIMED)
        print(f"  {preset:12}{decide:16.1f}{pricing:10.1f}{run.allocated:11.2f}%")


if __name__ == "__main__":
    main()
