"""Whoever is stopped loses the least of all who could be: over random small clusters against every set that there is."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from hetsched import _core

from .world import BACKGROUND, BEST_EFFORT, PRODUCTION, World

SECOND_NS = 1_000_000_000
SOFT: dict[str, Any] = {"qos": BEST_EFFORT, "flags": _core.PREEMPTIBLE}


class Ask(NamedTuple):
    """What a task asks for: cores, and whole devices or thousandths of one."""

    cpu: int
    whole: int = 0
    part: int = 0

    def milli(self) -> int:
        return self.whole * 1000 + self.part or self.cpu * 1000


class Unit(NamedTuple):
    """Who can only be stopped together: a task, or a gang."""

    tasks: tuple[int, ...]
    qos: int
    lost: int


class Board:
    """One node whose tasks, of one level, began at different times; `urgent` is who comes last."""

    def __init__(self, gpus: int) -> None:
        self.world = World()
        self.world.node(gpus=gpus)
        self.names: dict[int, str] = {}

    def begin(self, seconds: int, *names: str, gang: bool = False, **asked: int) -> None:
        named: dict[str, Any] = {"gang": self.world.do("add_gang", len(names), len(names), -1, -1)} if gang else {}
        tasks = self.world.tasks(list(names), self.world.shape(**asked), **SOFT, **named)
        self.world.place()
        self.world.run(*tasks)
        self.world.tick(seconds * SECOND_NS)
        self.names.update(zip(tasks, names, strict=True))

    def stopped_for(self, count: int = 1, **asked: int) -> set[str]:
        shape = self.world.shape(**asked)
        named: dict[str, Any] = {"gang": self.world.do("add_gang", count, count, -1, -1)} if count > 1 else {}
        self.world.tasks([f"urgent-{at}" for at in range(count)], shape, qos=PRODUCTION, **named)
        self.world.place()
        return {self.names[fact[1]] for fact in self.world.facts() if fact[0] == _core.F_STOPPING}


def test_one_on_a_whole_device_goes_and_not_two_on_halves_who_lose_more_together() -> None:
    board = Board(2)
    board.begin(50, "half", "other-half", parts=1, part=500)
    board.begin(150, "whole", gpus=1)
    assert board.stopped_for(gpus=1) == {"whole"}


@pytest.mark.parametrize("count", (1, 2))
def test_a_pair_goes_and_not_two_who_lose_more_together_for_a_task_and_for_a_gang(count: int) -> None:
    board = Board(4)
    board.begin(40, "one", "other", gpus=1)
    board.begin(60, "pair", gpus=2)
    assert board.stopped_for(count, gpus=2 // count) == {"pair"}


def test_a_gang_goes_as_one_where_it_loses_less_than_two_who_are_cheaper_each() -> None:
    board = Board(4)
    board.begin(40, "one", "other", gpus=1)
    board.begin(60, "crew", "crew-too", gang=True, gpus=1)
    assert board.stopped_for(gpus=2) == {"crew", "crew-too"}


def test_of_sets_that_lose_the_same_the_one_of_fewest_goes() -> None:
    board = Board(4)
    tasks = [
        *board.world.tasks(["pair"], board.world.shape(gpus=2), **SOFT),
        *board.world.tasks(["one", "other"], board.world.shape(gpus=1), **SOFT),
    ]
    board.names.update(zip(tasks, ("pair", "one", "other"), strict=True))
    board.world.place()
    board.world.run(*tasks)
    board.world.tick(10 * SECOND_NS)
    assert board.stopped_for(gpus=2) == {"pair"}


class Cluster:
    """One to three nodes of cores or of devices with soft tasks, some of them gangs, that began one after the other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.blast_radius = self.random.choice((0, 0, 1))
        self.world = World(blast_radius=self.blast_radius)
        self.by_cpu = self.random.random() < 0.25
        self.nodes: list[tuple[int, int]] = []
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self.nodes.append((self.random.randint(5, 12), 0) if self.by_cpu else (64, self.random.choice((2, 3, 4))))
            self.world.node(cpu=self.nodes[-1][0], gpus=self.nodes[-1][1])
        self.newcomer: dict[str, Any] = {"qos": PRODUCTION}
        if self.random.random() < 0.2:  # takes back from equals
            self.newcomer = {"qos": BEST_EFFORT, "queue": self.world.do("add_queue", _core.NONE, 1)}
            owed = (_core.RESOURCE_CPU if self.by_cpu else _core.RESOURCE_KIND, 1_000_000)
            self.world.do("set_queue", self.newcomer["queue"], 1, (owed,), ())
        self.ask: dict[int, Ask] = {}
        self.units: list[Unit] = []
        self.fill()

    def some_ask(self) -> Ask:
        if self.by_cpu:
            return Ask(self.random.randint(1, 5))
        return Ask(1, *self.random.choice(((1, 0), (1, 0), (2, 0), (0, 500), (0, 500), (0, 250), (0, 700))))

    def submit(self, key: str, ask: Ask, size: int, **named: Any) -> list[int]:
        if size > 1:
            named["gang"] = self.world.do("add_gang", size, size, -1, -1)
        shape = self.world.shape(cpu=ask.cpu, gpus=ask.whole, parts=ask.part > 0, part=ask.part)
        tasks = self.world.tasks([f"{key}-{at}" for at in range(size)], shape, **named)
        self.ask.update((task, ask) for task in tasks)
        return tasks

    def fill(self) -> None:
        units = []
        for at in range(self.random.randint(3, 11)):
            qos = self.random.choice((BEST_EFFORT, BEST_EFFORT, BACKGROUND))
            size = self.random.choice((1, 1, 1, 1, 1, 2))
            tasks = self.submit(f"soft-{at}", self.some_ask(), size, qos=qos, flags=_core.PREEMPTIBLE)
            self.world.place(preempt=False)
            if all(self.world.where(task) is not None for task in tasks):
                units.append((tasks, qos))
            else:
                for task in tasks:
                    self.world.core.ended(task, _core.CANCELLED, 0)
        self.random.shuffle(units)
        for tasks, _ in units:
            self.world.tick(self.random.randint(1, 40) * SECOND_NS)
            self.world.run(*tasks)
        self.world.tick(self.random.randint(1, 40) * SECOND_NS)
        for tasks, qos in units:
            self.units.append(Unit(tuple(tasks), qos, sum(map(self.lost, tasks))))

    def lost(self, task: int) -> int:
        placement = self.world.core.placement(task)
        assert placement is not None
        return self.ask[task].milli() * ((self.world.now_ns - placement.started_ns) // 1_000_000) // 1000

    # ---------------------------------------------------------------- every set that there is

    def seats(self, ask: Ask, gone: tuple[Unit, ...]) -> int:
        """How many that ask for this find room without these."""
        cores = [cpu for cpu, _ in self.nodes]
        free = [[1000] * gpus for _, gpus in self.nodes]
        for unit in self.units:
            for task in unit.tasks if unit not in gone else ():
                node = self.world.where(task)
                assert node is not None
                cores[node] -= self.ask[task].cpu
                for device, milli in self.world.devices(task):
                    free[node][device] -= milli
        return sum(
            min(
                cpu // ask.cpu,
                devices.count(1000) // ask.whole
                if ask.whole
                else sum(share // ask.part for share in devices)
                if ask.part
                else cpu,
            )
            for cpu, devices in zip(cores, free, strict=True)
        )

    def cheapest(self, ask: Ask, needed: int) -> tuple[int, int] | None:
        """Level and lost work of the best set: the least urgent level that suffices first."""
        sets = [some for size in range(1, len(self.units) + 1) for some in combinations(self.units, size)]
        for some in sorted(sets, key=key_of):
            held = sum(self.ask[task].whole * 1000 + self.ask[task].part for unit in some for task in unit.tasks)
            asked = max(1000, needed * (ask.whole * 1000 + ask.part))
            if (not self.blast_radius or held <= self.blast_radius * asked) and self.seats(ask, some) >= needed:
                if all(self.seats(ask, tuple(u for u in some if u is not unit)) < needed for unit in some):
                    return key_of(some)
        return None


def key_of(units: tuple[Unit, ...]) -> tuple[int, int]:
    return -min(unit.qos for unit in units), sum(unit.lost for unit in units)


def judge(seed: int) -> bool:
    """One cluster, one newcomer. True if somebody was stopped."""
    cluster = Cluster(seed)
    ask, needed = cluster.some_ask(), cluster.random.choice((1, 1, 1, 2, 3))
    if cluster.seats(ask, ()) >= needed:
        return False
    best = cluster.cheapest(ask, needed)
    boss = cluster.submit("boss", ask, needed, **cluster.newcomer)
    cluster.world.place()
    claims = [claim for task in boss if (claim := cluster.world.core.claim(task)) is not None]
    gone = {victim for _, _, victims in claims for victim in victims}
    if best is None:
        assert not gone
        return False
    units = tuple(unit for unit in cluster.units if gone & set(unit.tasks))
    assert gone == {task for unit in units for task in unit.tasks}
    assert units and key_of(units) == best
    return True


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_nobody_could_be_stopped_for_less(first: int) -> None:
    assert sum(judge(seed) for seed in range(first, first + 50)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(150, 3150, 100))
def test_nobody_could_be_stopped_for_less_in_many_clusters(first: int) -> None:
    for seed in range(first, first + 100):
        judge(seed)
