"""What is held and not used is lent to soft tasks, firm ones never stand on it, and whoever lent gets it back at once."""

from __future__ import annotations

import random

import pytest

from hetsched import _core
from hetsched._core import Core

from .world import BACKGROUND, BEST_EFFORT, CRITICAL, GIB, PRODUCTION, World


class Farm:
    """One node of 16 cores and 64 GiB that may lend half of it again; `owner` holds 12 cores and uses 3 of them."""

    def __init__(self, over: int = 500) -> None:
        self.world = World()
        self.core = self.world.core
        self.world.do("set_overcommit", over, over)
        self.node = self.world.node(cpu=16, memory=64)
        self.owner = self.firm("owner", 12)
        self.settle()
        self.use(self.owner, 3)

    def firm(self, key: str, cpu: int, memory: int = 0, **named: int) -> int:
        return self.world.task(key, self.world.shape(cpu=cpu, memory=memory), **named)

    def soft(self, key: str, cpu: int, memory: int = 0, **named: int) -> int:
        return self.world.task(key, self.world.shape(cpu=cpu, memory=memory, soft=True), **named)

    def settle(self) -> None:
        self.world.place()
        for task in self.core.page(-1, 1000, 1 << _core.PLACED):
            self.world.run(task)

    def use(self, task: int, cpu: int, memory: int = 0) -> list[int]:
        """It is measured; who is told to stop for that."""
        self.world.do("set_use", task, cpu * 1000, memory * GIB)
        self.world.facts()
        self.core.give_back(self.node, task)
        facts = self.world.facts()
        assert all(fact[0] == _core.F_STOPPING and fact[3:] == (_core.REASON_RECLAIM, task) for fact in facts)
        return [fact[1] for fact in facts]

    def running(self, *tasks: int) -> list[bool]:
        return [self.world.state(task) == _core.RUNNING for task in tasks]


def test_a_soft_task_stands_on_what_is_held_and_not_used() -> None:
    farm = Farm()
    fits, too_big = farm.soft("fits", 12), farm.soft("too-big", 1)
    farm.settle()
    assert farm.running(fits, too_big) == [True, False], "4 cores are free, 9 idle, 8 of those may be lent"


def test_no_more_is_lent_than_the_ratio_allows_nor_than_is_idle() -> None:
    assert Farm(over=500).core.lent(0)[0] == (0, 9000, 8000, 0)
    assert Farm(over=2000).core.lent(0)[0] == (0, 9000, 9000, 0)
    assert Farm(over=0).core.lent(0)[0] == (0, 9000, 0, 0)


def test_a_firm_task_never_stands_on_it() -> None:
    farm = Farm()
    firm = farm.firm("firm", 5)
    farm.settle()
    assert farm.running(firm) == [False]


def test_memory_is_lent_like_cores_and_each_alone_can_be_lacking() -> None:
    farm = Farm()
    holder = farm.firm("holder", 0, 64)
    farm.settle()
    farm.use(holder, 0, 60)
    soft = farm.soft("soft", 1, 5)
    farm.settle()
    assert farm.running(soft) == [False]
    farm.use(holder, 0, 59)
    farm.settle()
    assert farm.running(soft) == [True]


def test_the_owner_gets_its_use_back_in_the_same_breath_from_the_fewest() -> None:
    farm = Farm()
    tasks = [farm.soft(f"s{at}", 3) for at in range(4)]
    farm.settle()
    assert farm.running(*tasks) == [True] * 4
    assert farm.use(farm.owner, 4) == [], "4 + 12 cores are there"
    assert farm.use(farm.owner, 8) == [tasks[3], tasks[2]], "the youngest, as all have lost as much"
    assert farm.use(farm.owner, 9) == [], "who is told to stop already counts as gone"
    assert farm.use(farm.owner, 12) == [tasks[1]]


def test_least_urgent_first_and_nobody_who_does_not_help() -> None:
    farm = Farm()
    holder = farm.firm("holder", 0, 64)
    farm.settle()
    farm.use(holder, 0, 32)
    production = farm.soft("production", 2, 8)
    background = farm.soft("background", 8, 0, qos=BACKGROUND)
    low = farm.soft("low", 1, 8, qos=BEST_EFFORT)
    farm.settle()
    assert farm.running(production, background, low) == [True] * 3
    assert farm.use(holder, 0, 56) == [low], "the background task holds no memory"


def test_a_new_firm_task_takes_real_capacity_from_soft_ones_of_its_level() -> None:
    farm = Farm()
    soft = farm.soft("soft", 10)
    farm.settle()
    firm = farm.firm("firm", 4)
    farm.world.facts()
    farm.settle()
    stops = [fact[1:] for fact in farm.world.facts() if fact[0] == _core.F_STOPPING]
    assert stops == [(soft, 1, _core.REASON_RECLAIM, firm)]
    farm.core.requeue(soft, _core.REASON_RECLAIM, preempted=True)
    farm.settle()
    assert farm.running(firm, soft) == [True, False]


def test_soft_ones_may_move_onto_what_is_lent_instead() -> None:
    farm = Farm()
    soft = farm.soft("soft", 4)
    firm = farm.firm("firm", 4)
    farm.settle()
    assert farm.running(soft, firm) == [True, True]


def test_not_from_more_urgent_ones_not_from_firm_ones_and_not_for_soft_ones() -> None:
    for taker in (
        lambda farm: farm.firm("low", 4, qos=BACKGROUND),
        lambda farm: farm.soft("too", 4, qos=PRODUCTION),
        lambda farm: farm.firm("big", 5, qos=PRODUCTION),
    ):
        farm = Farm()
        farm.soft("soft", 12)
        farm.settle()
        taker(farm)
        farm.settle()
        assert farm.core.counts()[_core.STOPPING] == 0


@pytest.mark.parametrize("column", [-1, 8])
@pytest.mark.parametrize("what", ["cpu", "memory"])
def test_a_firm_gang_takes_real_capacity_from_soft_ones_of_its_level(what: str, column: int) -> None:
    """For all whom it needs at once, and from no more than it takes. `column` 8: on one node."""
    farm = Farm()
    farm.core.ended(farm.owner, _core.SUCCEEDED, 0)
    farm.world.node(cpu=16, memory=64)
    softs = [farm.soft(f"s{at}", 4, 16) for at in range(8)]
    farm.settle()
    assert all(farm.running(*softs)), "both nodes are full"
    gang = farm.world.do("add_gang", 3, 3, column)
    shape = farm.world.shape(cpu=4) if what == "cpu" else farm.world.shape(cpu=0, memory=16)
    members = farm.world.tasks([f"m{at}" for at in range(3)], shape, gang=gang)
    farm.world.facts()
    farm.world.place()
    stops = [fact for fact in farm.world.facts() if fact[0] == _core.F_STOPPING]
    assert [fact[3] for fact in stops] == [_core.REASON_RECLAIM] * 3 and {fact[4] for fact in stops} <= set(members)
    for fact in stops:
        farm.core.requeue(fact[1], _core.REASON_RECLAIM, preempted=True)
    farm.world.place()
    places = [farm.world.where(member) for member in members]
    assert None not in places and (column < 0 or len(set(places)) == 1)


def test_a_gang_takes_nothing_from_more_urgent_ones_nor_from_firm_ones_nor_for_soft_members() -> None:
    for victim, gang_is_soft in (({"qos": PRODUCTION}, False), ({"qos": BEST_EFFORT}, True)):
        farm = Farm()
        farm.core.ended(farm.owner, _core.SUCCEEDED, 0)
        farm.soft("s", 12, **victim), farm.firm("f", 4, qos=BEST_EFFORT)
        farm.settle()
        gang = farm.world.do("add_gang", 2, 2, -1)
        shape = farm.world.shape(cpu=2, soft=gang_is_soft)
        farm.world.tasks(["a", "b"], shape, gang=gang, qos=BEST_EFFORT)
        farm.world.place()
        assert farm.core.counts()[_core.STOPPING] == 0


def test_what_a_gang_took_back_is_in_the_journal() -> None:
    farm = Farm()
    farm.core.ended(farm.owner, _core.SUCCEEDED, 0)
    farm.soft("s", 16)
    farm.settle()
    gang = farm.world.do("add_gang", 2, 2, -1)
    members = farm.world.tasks(["a", "b"], farm.world.shape(cpu=8), gang=gang)
    farm.world.place()
    assert farm.core.counts()[_core.STOPPING] == 1 and all(farm.core.claim(member) for member in members)
    farm.world.tick()
    assert farm.world.replay().digest() == farm.core.digest()


@pytest.mark.parametrize("queues", [(0, 0), (0, 1), (1, 0)])
def test_nobody_is_started_who_would_have_to_give_way_in_the_same_breath(queues: tuple[int, int]) -> None:
    """The soft one has the higher priority, and there is room for one of the two."""
    farm = Farm()
    farm.core.ended(farm.owner, _core.SUCCEEDED, 0)
    farm.world.do("add_queue", _core.NONE, 1)
    soft = farm.soft("soft", 12, queue=queues[0], priority=50)
    firm = farm.firm("firm", 12, queue=queues[1])
    farm.world.place()
    assert (farm.world.where(soft), farm.world.where(firm)) == (None, farm.node)
    assert farm.core.counts()[_core.STOPPING] == 0


def test_without_a_ratio_nobody_is_soft() -> None:
    farm = Farm(over=0)
    soft = farm.soft("soft", 4)
    farm.settle()
    farm.firm("firm", 4)
    farm.settle()
    assert farm.running(soft) == [True]
    assert farm.core.counts()[_core.STOPPING] == 0


def test_devices_are_never_lent_nor_taken_back() -> None:
    farm = Farm()
    farm.world.node(cpu=8, gpus=1)
    soft = farm.world.task("soft", farm.world.shape(cpu=1, gpus=1, soft=True))
    farm.settle()
    firm = farm.world.task("firm", farm.world.shape(cpu=1, gpus=1))
    farm.settle()
    assert farm.running(soft, firm) == [True, False]


def test_what_is_lent_is_the_last_resort() -> None:
    farm = Farm()
    spare = farm.world.node(cpu=8)
    tasks = [farm.soft(f"s{at}", 4) for at in range(5)]
    farm.settle()
    assert [farm.world.where(task) for task in tasks].count(spare) == 2
    assert farm.core.lent(farm.node)[0][0] == 12000


def test_idle_capacity_goes_with_its_owner() -> None:
    farm = Farm()
    soft = farm.soft("soft", 12)
    farm.settle()
    farm.core.ended(farm.owner, _core.SUCCEEDED, 0)
    assert farm.core.lent(farm.node)[0] == (12000, 0, 0, 0)
    assert farm.running(soft) == [True]


def test_a_gang_on_lent_capacity_goes_as_a_whole() -> None:
    farm = Farm()
    gang = farm.world.do("add_gang", 2, 2, -1)
    shape = farm.world.shape(cpu=4, soft=True)
    members = farm.world.tasks(["m0", "m1"], shape, gang=gang)
    farm.settle()
    assert farm.running(*members) == [True, True]
    assert sorted(farm.use(farm.owner, 12)) == members


@pytest.mark.parametrize("seed", range(12))
def test_never_more_firm_than_there_is_and_never_more_than_is_covered(seed: int) -> None:
    """Whatever happens: firm tasks fit, every report is followed by enough stops, the journal tells the same, a dump is the same."""
    chance = random.Random(seed)
    world = World(policy=seed % 5)
    world.do("set_overcommit", 700, 300)
    nodes = [world.node(cpu=16, memory=64, gpus=chance.choice((0, 2))) for _ in range(2)]
    shapes = [
        world.shape(
            cpu=chance.randint(0, 8), memory=chance.randint(0, 24), parts=chance.choice((0, 0, 1)), part=500, soft=soft
        )
        for soft in (False, False, False, True, True, True)
    ]
    for step in range(120):
        which = chance.randrange(6)
        qos = chance.choice((CRITICAL if which < 3 else 1, 1, 2, 3))
        flags = chance.choice((0, 1))
        if chance.random() < 0.2:
            size = chance.randint(2, 3)
            gang = world.do("add_gang", size, chance.randint(1, size), -1)
            keys = [f"t{step}-{at}" for at in range(size)]
            world.tasks(keys, shapes[which], qos=qos, flags=flags, gang=gang)
        else:
            world.task(f"t{step}", shapes[which], qos=qos, flags=flags)
        world.place()
        for task in world.core.page(-1, 1000, 1 << _core.PLACED):
            world.run(task)
        for task in world.core.page(-1, 1000, 1 << _core.RUNNING):
            if chance.random() < 0.3:
                world.do("set_use", task, chance.randint(-1, 8000), chance.randint(-1, 24) * GIB)
                world.core.give_back(world.core.placement(task).node, task)  # type: ignore[union-attr]
            if chance.random() < 0.15:
                world.core.ended(task, _core.SUCCEEDED, 0) if world.state(task) == _core.RUNNING else None
        assert all(covered(world.core, node) for node in nodes)
        for task in world.core.page(-1, 1000, 1 << _core.STOPPING):
            if chance.random() < 0.5:
                world.core.requeue(task, _core.REASON_RECLAIM, preempted=True)
        world.tick()
    assert world.replay().digest() == world.core.digest()
    again = Core.load(world.core.dump(), checked=True)
    assert again.digest() == world.core.digest()
    assert [again.lent(node) for node in nodes] == [world.core.lent(node) for node in nodes]


def covered(core: Core, node: int) -> bool:
    """Without those who are leaving, what is held beyond the node is idle."""
    leaving = [0, 0]
    for task in core.tasks_on(node):
        if core.task(task).state == _core.STOPPING:
            leaving[0] += 8000
            leaving[1] += 24 * GIB
    return all(beyond <= idle + gone for (_, idle, _, beyond), gone in zip(core.lent(node), leaving, strict=True))


def test_a_head_that_has_just_claimed_is_not_asked_to_claim_again() -> None:
    """`firm` is blocked and has `guest` stopped before `later` may start. `later` starts elsewhere, without anybody being parked meanwhile, and
    somebody waits below: the head that goes first is then asked for anew, for the lane of the old one is empty."""
    farm = Farm()
    guest = farm.soft("guest", 12)
    farm.settle()
    small = farm.world.node(cpu=1)
    later = farm.soft("later", 1)
    firm = farm.firm("firm", 4)
    farm.firm("below", 9, qos=BACKGROUND)
    farm.world.facts()
    farm.world.place()
    assert farm.core.claim(firm)[2] == (guest,)  # type: ignore[index]
    assert farm.world.where(later) == small
