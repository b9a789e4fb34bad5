"""Worlds for `bench_placement.py`: nodes and tasks as they are made or read, and the ways in which tasks come and go.

A `Flow` says when which task comes and how long it stays. Promises: the same seed, the same flow, whatever preset runs it.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetsched.model import DeviceAsk, DeviceSpec, NodeSpec, Resources
from hetsched.sim.read_trace import read_pods

GIB = 1 << 30
DAY_S = 86_400.0
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


@dataclass(frozen=True)
class Pool:
    """Tasks to draw from, and for how long each runs, seconds."""

    tasks: Sequence[Resources]
    durations_s: np.ndarray

    def device_s(self) -> np.ndarray:
        """Device-seconds of each."""
        milli = np.array([milli_of(task) for task in self.tasks], dtype=float)
        return np.asarray(milli / 1000 * self.durations_s)


@dataclass(frozen=True)
class Flow:
    """In order of arrival. `from_s`, `until_s`: what is measured."""

    tasks: Sequence[Resources]
    arrivals_s: np.ndarray
    durations_s: np.ndarray
    from_s: float
    until_s: float


def milli_of(task: Resources) -> int:
    """Thousandths of devices that it asks for."""
    return sum(ask.total_milli for ask in task.devices)


def devices_of(nodes: Sequence[NodeSpec]) -> int:
    """How many there are."""
    return sum(len(node.devices) for node in nodes)


# ---------------------------------------------------------------- what there is


def made_nodes(count: int = 400) -> list[NodeSpec]:
    """Of the kind that openb has."""
    rng = random.Random(1)
    nodes = []
    for number in range(count):
        cpu, devices = rng.choice(((96, 8), (96, 8), (104, 2), (16, 1), (64, 4)))
        nodes.append(_node(f"n{number}", cpu, cpu * 4, devices, "T4"))
    return nodes


def made_pool(count: int = 2000) -> Pool:
    """Of the kind that openb has; run times spread over three orders of magnitude, 10 s to about 3 hours."""
    rng = random.Random(2)
    tasks = []
    for _ in range(count):
        cpu, memory, devices, milli = rng.choices(MADE, weights=(20, 25, 15, 10, 10, 3, 2, 15))[0]
        whole = devices if milli == 1000 else 0
        ask = DeviceAsk(kind="gpu", whole=whole, parts=devices - whole, part_milli=0 if whole else milli)
        tasks.append(Resources(cpu_milli=cpu * 1000, memory_bytes=memory * GIB, devices=(ask,) if devices else ()))
    return Pool(tasks, np.array([10 * 10 ** (3 * rng.random()) for _ in range(count)]))


def read_pool(tasks: Path, *, cut_s: float = DAY_S, like: Pool | None = None) -> Pool:
    """Those of a trace and what they ran for (`deletion_time` less `creation_time`), at most `cut_s`; where it does not say, as those of `like`
    ran, drawn at random, and without `like` for ever."""
    asked = [pod.task.resources for pod in read_pods(tasks)]
    with tasks.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    if "deletion_time" in rows[0]:
        ran = np.array([float(row["deletion_time"]) - float(row["creation_time"]) for row in rows])
        return Pool(asked, np.clip(ran, 1.0, cut_s))
    if like is None:
        return Pool(asked, np.full(len(asked), np.inf))
    return Pool(asked, np.random.default_rng(3).choice(like.durations_s, len(asked)))


def read_nodes(path: Path) -> list[NodeSpec]:
    """Of a file in the columns of openb, or in those of Alibaba's spot cluster (which says no memory: 8 GiB a core)."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    if "gpu_capacity_num" in rows[0]:
        return [
            _node(
                row["node_name"],
                int(row["cpu_num"]),
                int(row["cpu_num"]) * 8,
                int(row["gpu_capacity_num"]),
                row["gpu_model"],
            )
            for row in rows
        ]
    return [
        _node(row["sn"], int(row["cpu_milli"]) / 1000, int(row["memory_mib"]) / 1024, int(row["gpu"]), row["model"])
        for row in rows
    ]


def _node(name: str, cores: float, gib: float, count: int, model: str) -> NodeSpec:
    devices = tuple(DeviceSpec(id=f"gpu-{at}", kind="gpu", model=model or None) for at in range(count))
    return NodeSpec(name=name, cpu_milli=round(cores * 1000), memory_bytes=round(gib * GIB), devices=devices)


# ---------------------------------------------------------------- how they come


def inflation(pools: Sequence[Pool], nodes: Sequence[NodeSpec], ratio: float, seed: int) -> Flow:
    """Tasks for `ratio` of the devices, which never leave; several pools one after the other, for an equal part each."""
    rng = np.random.default_rng(seed)
    tasks: list[Resources] = []
    total = 0
    for number, pool in enumerate(pools, 1):
        order = list(rng.permutation(len(pool.tasks)))
        while total < 1000 * ratio * devices_of(nodes) * number / len(pools):
            at = order.pop() if order else int(rng.integers(len(pool.tasks)))
            tasks.append(pool.tasks[at])
            total += milli_of(tasks[-1])
    ticks = np.arange(len(tasks), dtype=float)
    return Flow(tasks, ticks, np.full(len(tasks), np.inf), 0.0, float(len(tasks)))


def departures(pools: Sequence[Pool], nodes: Sequence[NodeSpec], load: float, arrivals: int, seed: int) -> Flow:
    """A Poisson stream that asks for `load` of the devices, drawn from each pool in turn for an equal number of arrivals. At the beginning the
    cluster is as such a stream leaves it: those who are there are drawn by how long they run, and have a part of it, drawn evenly, before
    them. What is measured begins after three tenths of the arrivals."""
    rng = np.random.default_rng(seed)
    first = pools[0]
    rate = load * devices_of(nodes) / first.device_s().mean()
    there = rng.poisson(rate * first.durations_s.mean())
    drawn = rng.choice(len(first.tasks), there, p=first.durations_s / first.durations_s.sum())
    tasks = [first.tasks[at] for at in drawn]
    durations_s = [first.durations_s[drawn] * rng.random(there)]
    arrivals_s = [np.zeros(there)]
    begins_s = 0.0
    for pool in pools:
        rate = load * devices_of(nodes) / pool.device_s().mean()
        drawn = rng.integers(len(pool.tasks), size=arrivals // len(pools))
        tasks += [pool.tasks[at] for at in drawn]
        durations_s.append(pool.durations_s[drawn])
        arrivals_s.append(begins_s + np.cumsum(rng.exponential(1 / rate, len(drawn))))
        begins_s = float(arrivals_s[-1][-1])
    came_s = np.concatenate(arrivals_s)
    return Flow(
        tasks, came_s, np.concatenate(durations_s), float(came_s[there + (len(came_s) - there) * 3 // 10]), begins_s
    )


def shuffled(nodes: Sequence[NodeSpec], seed: int) -> list[NodeSpec]:
    """The fixed order of ties is drawn anew."""
    order = np.random.default_rng(1000 + seed).permutation(len(nodes))
    return [nodes[at] for at in order]
