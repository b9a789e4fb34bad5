"""Preemption: a proof or nobody, and what was proved is held until the victims are gone."""

from __future__ import annotations

from typing import Any

from hetsched import _core

from .world import BACKGROUND, BEST_EFFORT, CRITICAL, PRODUCTION, World

SOFT: dict[str, Any] = {"qos": BEST_EFFORT, "flags": _core.PREEMPTIBLE}
SECOND_NS = 1_000_000_000


def full_world(gpus: int = 4) -> tuple[World, list[int]]:
    """One node, all devices with best-effort tasks of one device that run."""
    world = World()
    world.node(gpus=gpus)
    tasks = world.tasks([f"soft-{at}" for at in range(gpus)], world.shape(gpus=1), **SOFT)
    world.place()
    world.run(*tasks)
    return world, tasks


def test_a_claim_names_its_victims_then_orders_them_to_stop() -> None:
    world, soft = full_world()
    world.tick(10 * SECOND_NS)
    boss = world.task("boss", world.shape(gpus=2), qos=CRITICAL)
    world.place()
    victims = tuple(soft[2:])[::-1]
    assert world.facts() == [
        (_core.F_CLAIMED, boss, 0, 20_000, ((2, 1000), (3, 1000)), victims),
        *[(_core.F_STOPPING, victim, 1, 1, boss) for victim in victims],
    ]
    assert world.core.claim(boss) == (0, 20_000, victims)
    assert world.core.task(boss).flags & _core.CLAIMING
    assert world.core.waiting(15) == 0


def test_the_claim_becomes_the_placement_with_the_last_victim() -> None:
    world, _ = full_world()
    boss = world.task("boss", world.shape(gpus=2), qos=CRITICAL)
    world.place()
    first, second = world.core.claim(boss)[2]  # type: ignore[index]
    world.core.requeue(first, 1, preempted=True)
    assert world.state(boss) == _core.QUEUED
    world.facts()
    world.core.requeue(second, 1, preempted=True)
    assert [fact[0] for fact in world.facts()] == [_core.F_REQUEUED, _core.F_PLACED]
    assert world.state(boss) == _core.PLACED
    assert world.core.task(first).preemptions == 1
    assert world.place() == 0


def test_nobody_takes_the_hole_while_it_is_made() -> None:
    world, _ = full_world()
    boss = world.task("boss", world.shape(gpus=2), qos=CRITICAL)
    world.place()
    thief = world.task("thief", world.shape(gpus=1), qos=CRITICAL)
    world.core.requeue(world.core.claim(boss)[2][0], 1, preempted=True)  # type: ignore[index]
    world.core.decide(1, False)
    assert world.state(thief) == _core.QUEUED


def two_claims() -> tuple[World, int, int]:
    """`first` and `second` ask for the same, each has one of two stopped."""
    world, _ = full_world(2)
    first, second = world.tasks(["first", "second"], world.shape(gpus=1), qos=CRITICAL)
    world.place()
    world.facts()
    return world, first, second


def end_victim_of(world: World, task: int) -> None:
    world.core.requeue(world.core.claim(task)[2][0], 1, preempted=True)  # type: ignore[index]


def test_a_later_claim_waits_for_the_earlier_one_of_the_like() -> None:
    world, first, second = two_claims()
    end_victim_of(world, second)
    world.place()
    assert (world.state(first), world.state(second)) == (_core.QUEUED, _core.QUEUED)
    assert (world.core.claim_before(first), world.core.claim_before(second)) == (None, first)
    end_victim_of(world, first)
    assert world.state(first) == _core.PLACED
    assert world.core.settle()
    assert world.state(second) == _core.PLACED


def test_a_later_claim_goes_on_when_the_earlier_one_is_given_up() -> None:
    world, first, second = two_claims()
    end_victim_of(world, second)
    world.core.unclaim(first)
    world.core.decide(0)
    assert world.state(second) == _core.PLACED


def test_room_that_comes_free_is_for_who_asks_for_something_else_than_who_claims() -> None:
    world, first, _ = two_claims()
    world.node(gpus=1)
    third = world.task("third", world.core.task(first).shape, qos=CRITICAL)
    world.place()
    assert world.state(third) == _core.QUEUED
    assert world.core.claim(third) is None
    other = world.task("other", world.shape(gpus=1, cpu=2), qos=BACKGROUND)
    world.place()
    assert (world.state(third), world.state(other)) == (_core.QUEUED, _core.PLACED)
    assert world.core.claim_before(third) == first


def test_who_has_just_started_by_a_claim_is_not_stopped_in_that_instant() -> None:
    world, _ = full_world(1)
    middle = world.task("middle", world.shape(gpus=1), qos=PRODUCTION, flags=_core.PREEMPTIBLE)
    world.place()
    urgent = world.task("urgent", world.shape(gpus=1, cpu=2), qos=CRITICAL)
    end_victim_of(world, middle)
    world.place()
    assert (world.state(middle), world.state(urgent)) == (_core.PLACED, _core.QUEUED)
    assert world.core.next_ns() is not None
    world.tick()
    assert world.core.time_told()
    world.place()
    assert world.core.claim(urgent)[2] == (middle,)  # type: ignore[index]


def test_equals_critical_and_the_unwilling_are_never_victims() -> None:
    world = World()
    world.node(gpus=3)
    shape = world.shape(gpus=1)
    world.task("equal", shape, qos=PRODUCTION, flags=_core.PREEMPTIBLE)
    world.task("unwilling", shape, qos=BACKGROUND)
    world.task("critical", shape, qos=CRITICAL, flags=_core.PREEMPTIBLE)
    world.place()
    world.task("late", shape, qos=PRODUCTION)
    world.place()
    assert not [fact for fact in world.facts() if fact[0] == _core.F_CLAIMED]


def test_nobody_is_evicted_for_what_fits_nowhere() -> None:
    world, _ = full_world()
    world.task("huge", world.shape(gpus=5), qos=CRITICAL)
    world.task("wide", world.shape(cpu=65, gpus=1), qos=CRITICAL)
    assert world.place() == 0
    assert world.core.counts()[_core.STOPPING] == 0


def test_the_least_urgent_and_then_the_least_lost_go() -> None:
    world = World()
    world.node(gpus=3)
    shape = world.shape(gpus=1)
    old = world.task("old", shape, **SOFT)
    world.place()
    world.run(old)
    world.tick(100 * SECOND_NS)
    young = world.task("young", shape, **SOFT)
    low = world.task("low", shape, qos=BACKGROUND, flags=_core.PREEMPTIBLE)
    world.place()
    world.run(young, low)
    world.tick(SECOND_NS)
    for victim in (low, young, old):
        boss = world.task(f"boss-{victim}", shape, qos=CRITICAL)
        world.place()
        assert world.core.claim(boss)[2] == (victim,)  # type: ignore[index]


def test_a_checkpoint_makes_a_victim_cheap() -> None:
    world = World()
    world.node(gpus=2)
    shape = world.shape(gpus=1)
    saved = world.task("saved", shape, checkpoint_ns=10 * SECOND_NS, **SOFT)
    world.place()
    world.run(saved)
    world.tick(35 * SECOND_NS)
    fresh = world.task("fresh", shape, **SOFT)
    world.place()
    world.run(fresh)
    world.tick(8 * SECOND_NS)
    boss = world.task("boss", shape, qos=CRITICAL)
    world.place()
    assert world.core.claim(boss)[1:] == (3000, (saved,))  # type: ignore[index]


def test_the_cheapest_node_is_taken() -> None:
    world = World()
    nodes = [world.node(gpus=1), world.node(gpus=1)]
    shape = world.shape(gpus=1)
    first = world.task("first", shape, **SOFT)
    world.place()
    world.run(first)
    world.tick(50 * SECOND_NS)
    second = world.task("second", shape, **SOFT)
    world.place()
    world.run(second)
    world.tick()
    boss = world.task("boss", shape, qos=PRODUCTION)
    world.place()
    assert world.core.claim(boss)[0] == nodes[1]  # type: ignore[index]


def test_the_blast_radius_caps_what_is_stopped() -> None:
    """One cpu task would stop four tasks of two devices; with a radius of 4 devices that is too many."""
    for radius, claims in ((8, 1), (4, 0), (0, 1)):
        world = World(blast_radius=radius)
        world.node(cpu=8, gpus=8)
        world.tasks(["a", "b", "c", "d"], world.shape(cpu=2, gpus=2), **SOFT)
        world.place()
        world.task("boss", world.shape(cpu=7), qos=CRITICAL)
        world.place()
        assert sum(fact[0] == _core.F_CLAIMED for fact in world.facts()) == claims


def test_a_limit_is_part_of_the_proof() -> None:
    world, soft = full_world(gpus=2)
    world.do("set_queue", 0, 1, [], [(_core.RESOURCE_KIND, 2000)])
    other = world.do("add_queue", _core.NONE, 1)
    world.do("set_queue", other, 1, [], [(_core.RESOURCE_KIND, 500)])
    world.task("over", world.shape(gpus=1), qos=CRITICAL, queue=other)
    world.place()
    assert world.core.counts()[_core.STOPPING] == 0
    boss = world.task("boss", world.shape(gpus=1), qos=CRITICAL)
    world.place()
    assert len(world.core.claim(boss)[2]) == 1  # type: ignore[index]
    assert soft


def test_a_claim_is_given_up_with_its_task_its_node_and_its_device() -> None:
    def closes(world: World, boss: int) -> None:
        world.do("open_node", 0, False)

    def breaks(world: World, boss: int) -> None:
        world.do("set_device_usable", 0, 3, False)

    def holds(world: World, boss: int) -> None:
        world.core.hold(boss, _core.HELD_OPERATOR)

    def cancels(world: World, boss: int) -> None:
        world.core.ended(boss, _core.CANCELLED, 0)

    def times_out(world: World, boss: int) -> None:
        world.core.unclaim(boss)

    def is_ruled_out(world: World, boss: int) -> None:
        world.do("set_shape_node", world.core.task(boss).shape, 0, 0)

    for happens in (closes, breaks, holds, cancels, times_out, is_ruled_out):
        world, _ = full_world()
        boss = world.task("boss", world.shape(gpus=1), qos=CRITICAL)
        world.place()
        (victim,) = world.core.claim(boss)[2]  # type: ignore[index]
        world.facts()
        happens(world, boss)
        assert world.facts()[0] == (_core.F_UNCLAIMED, boss)
        assert world.core.claim(boss) is None
        world.core.requeue(victim, 1, preempted=True)
        assert world.state(boss) != _core.PLACED
        assert world.replay().digest() == world.core.digest()


def test_another_device_of_the_node_may_break() -> None:
    world, _ = full_world()
    boss = world.task("boss", world.shape(gpus=1), qos=CRITICAL)
    world.place()
    world.do("set_device_usable", 0, 0, False)
    assert world.core.claim(boss) is not None


def test_impossible_tasks_of_one_shape_cost_one_search_and_block_nobody() -> None:
    world, _ = full_world()
    world.tasks([f"huge-{at}" for at in range(300)], world.shape(gpus=5), qos=CRITICAL)
    boss = world.task("boss", world.shape(gpus=1), qos=CRITICAL)
    world.place()
    assert world.core.claim(boss) is not None


def test_no_second_victim_where_the_first_leaves_room() -> None:
    """The first preemptor's victim holds two devices, it takes one: the second waits for the other instead of stopping anybody."""
    world = World()
    world.node(gpus=3)
    world.task("wide", world.shape(gpus=2), qos=BACKGROUND, flags=_core.PREEMPTIBLE)
    world.place()
    world.task("narrow", world.shape(gpus=1), **SOFT)
    world.place()
    bosses = world.tasks(["one", "two"], world.shape(gpus=1), qos=CRITICAL)
    world.place()
    assert world.core.counts()[_core.STOPPING] == 1
    world.core.requeue(world.core.claim(bosses[0])[2][0], 1, preempted=True)  # type: ignore[index]
    world.place()
    assert [world.state(boss) for boss in bosses] == [_core.PLACED, _core.PLACED]
