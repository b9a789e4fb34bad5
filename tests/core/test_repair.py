"""A gang that lost members: room is kept for them against strangers, until the time for its repair is over."""

from __future__ import annotations

import random

import pytest

from hetsched import _core
from hetsched._core import Core

from .test_gangs import gang_of
from .test_random_worlds import Chaos
from .world import ALL, BEST_EFFORT, CRITICAL, PRODUCTION, World

SECOND_NS = 10**9


def broken_gang(least: int = 3) -> tuple[World, list[int], int]:
    """Three members fill a node; the last one failed and pauses. A stranger of equal urgency waits, from before."""
    world = World()
    world.do("set_repair", 60 * SECOND_NS)
    world.node(gpus=3)
    shape = world.shape(gpus=1)
    _, members = gang_of(world, 3, least, shape)
    world.place()
    world.run(*members)
    stranger = world.task("stranger", shape, priority=100)
    world.place()
    world.core.back_off(members[2], 6)
    return world, members, stranger


@pytest.mark.parametrize("least", [1, 3])
def test_a_stranger_does_not_take_the_place_of_a_member_that_pauses(least: int) -> None:
    world, members, stranger = broken_gang(least)
    assert world.place() == 0
    world.tick(3 * SECOND_NS)
    assert world.place() == 0
    world.core.ready(members[2])
    assert world.place() == 1
    assert world.state(members[2]) == _core.PLACED and world.state(stranger) == _core.QUEUED


def test_it_is_kept_until_the_time_for_the_repair_is_over() -> None:
    world, _, stranger = broken_gang()
    world.place()
    assert world.core.next_ns() == world.now_ns + 60 * SECOND_NS
    world.tick(60 * SECOND_NS)
    assert world.core.time_told()
    assert world.place() == 1
    assert world.state(stranger) == _core.PLACED
    assert world.core.next_ns() is None


def test_who_is_more_urgent_comes_before() -> None:
    world, _, _ = broken_gang()
    boss = world.task("boss", 0, qos=CRITICAL)
    world.place()
    assert world.state(boss) == _core.PLACED


def test_lost_members_go_before_everybody_of_their_level() -> None:
    world = World()
    world.do("set_repair", 60 * SECOND_NS)
    nodes = [world.node(gpus=1), world.node(gpus=1)]
    shape = world.shape(gpus=1)
    _, members = gang_of(world, 2, 2, shape)
    world.place()
    world.run(*members)
    stranger = world.task("stranger", shape, priority=100)
    world.do("open_node", nodes[1], False)
    world.core.requeue(members[1], 2)
    world.place()
    world.do("open_node", nodes[1], True)
    world.place()
    assert world.where(members[1]) == nodes[1] and world.state(stranger) == _core.QUEUED


def test_room_for_some_is_kept_until_there_is_room_for_all_that_are_missing() -> None:
    world = World()
    world.do("set_repair", 60 * SECOND_NS)
    first, second, third = [world.node(gpus=gpus) for gpus in (1, 1, 2)]
    shape = world.shape(gpus=1)
    _, members = gang_of(world, 4, 4, shape)
    world.place()
    world.run(*members)
    world.task("stranger", shape, priority=100)
    lost = [member for member in members if world.where(member) in (first, second)]
    for node in (first, second):
        world.do("open_node", node, False)
    for member in lost:
        world.core.requeue(member, 2)
    assert world.place() == 0
    world.do("open_node", first, True)
    assert world.place() == 0
    world.do("open_node", second, True)
    assert world.place() == 2
    assert {world.where(member) for member in members} == {first, second, third}


def test_nobody_is_stopped_beside_room_that_is_kept() -> None:
    """He need not have gone, had the room been given away."""
    world = World()
    world.do("set_repair", 60 * SECOND_NS)
    world.node(gpus=3)
    shape = world.shape(gpus=1)
    _, members = gang_of(world, 2, 2, shape)
    soft = world.task("soft", shape, qos=BEST_EFFORT, flags=_core.PREEMPTIBLE)
    world.place()
    world.run(*members, soft)
    world.core.back_off(members[1], 6)
    world.task("boss", shape, qos=PRODUCTION)
    world.place()
    assert world.state(soft) == _core.RUNNING
    world.tick(60 * SECOND_NS)
    world.core.time_told()
    assert world.place() == 1


def test_an_evicted_member_has_no_such_claim() -> None:
    world = World()
    world.do("set_repair", 60 * SECOND_NS)
    world.node(gpus=3)
    shape = world.shape(gpus=1)
    _, members = gang_of(world, 3, 2, shape, qos=BEST_EFFORT, flags=_core.PREEMPTIBLE)
    world.place()
    world.run(*members)
    boss = world.task("boss", shape, qos=CRITICAL)
    world.place()
    (victim,) = world.core.claim(boss)[2]  # type: ignore[index]
    world.core.requeue(victim, 1, preempted=True)
    world.core.ended(boss, _core.SUCCEEDED, 0)
    other = world.task("other", shape, qos=BEST_EFFORT, priority=9)
    world.place()
    assert world.state(other) == _core.PLACED


@pytest.mark.parametrize("seed", range(200, 208))
def test_random_worlds_with_repair_and_delay_keep_their_invariants_and_their_story(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.world.do("set_repair", 30 * SECOND_NS)
    chaos.world.do("set_preemption_delay", seed % 2 * 5 * SECOND_NS)
    chaos.world.do("set_preemption_delay", 0, 1)
    chance = random.Random(seed)

    def decide() -> None:
        chaos.core.time_told()
        chaos.core.decide(chance.choice((ALL, ALL, 1, 14)), True)

    chaos.decide = decide  # type: ignore[method-assign]  # who judges knows nothing of room that is kept
    for _ in range(160):
        chaos.step()
    chaos.core.check()
    assert chaos.world.replay().digest() == chaos.core.digest()
    assert Core.load(chaos.core.dump(), checked=True).digest() == chaos.core.digest()
