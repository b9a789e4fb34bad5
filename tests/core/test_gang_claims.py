"""A gang that claims: a proof for all the seats that it needs at once, or nobody is stopped; and nothing of it starts before all can."""

from __future__ import annotations

from typing import Any

from hetsched import _core

from .test_gangs import gang_of, placed
from .world import BACKGROUND, BEST_EFFORT, CRITICAL, World

SOFT: dict[str, Any] = {"qos": BEST_EFFORT, "flags": _core.PREEMPTIBLE}


def full_world(nodes: int = 2, gpus: int = 2, column: int | None = None, **options: Any) -> tuple[World, list[int]]:
    """Nodes full of best-effort tasks of one device, which run; `column`: each node is a domain of its own there."""
    world = World(**options)
    for at in range(nodes):
        world.node(gpus=gpus, **({} if column is None else {f"column{column}": at}))
    soft = world.tasks([f"soft-{at}" for at in range(nodes * gpus)], world.shape(gpus=1), **SOFT)
    world.place()
    world.run(*soft)
    return world, soft


def victims(world: World) -> list[int]:
    return [fact[1] for fact in world.facts() if fact[0] == _core.F_STOPPING]


def end(world: World, tasks: list[int]) -> None:
    for task in tasks:
        world.core.requeue(task, 1, preempted=True)


def test_a_gang_stops_as_many_as_it_needs_and_starts_in_one_instant() -> None:
    world, _ = full_world()
    _, members = gang_of(world, 3, 3, world.shape(gpus=1), qos=CRITICAL)
    assert world.place() == 0
    gone = victims(world)
    assert len(gone) == 3
    for victim in gone[:-1]:
        end(world, [victim])
        assert placed(world, members) == 0
    world.facts()
    end(world, gone[-1:])
    assert [fact[0] for fact in world.facts()] == [_core.F_REQUEUED] + [_core.F_PLACED] * 3


def test_free_room_counts_and_is_kept_until_the_victims_are_gone() -> None:
    world, soft = full_world(gpus=2)
    world.core.ended(soft[0], _core.SUCCEEDED, 0)
    _, members = gang_of(world, 2, 2, world.shape(gpus=1), qos=CRITICAL)
    world.place()
    gone = victims(world)
    assert len(gone) == 1
    thief = world.task("thief", world.shape(gpus=1), qos=CRITICAL)
    world.core.decide(1, False)
    assert world.state(thief) == _core.QUEUED
    end(world, gone)
    assert placed(world, members) == 2


def test_nobody_is_stopped_where_the_whole_gang_would_not_fit() -> None:
    world, _ = full_world()
    gang_of(world, 5, 5, world.shape(gpus=1), qos=CRITICAL)
    gang_of(world, 2, 2, world.shape(gpus=3), qos=CRITICAL)
    assert world.place() == 0
    assert victims(world) == []


def test_min_size_is_what_somebody_is_stopped_for() -> None:
    world, _ = full_world()
    _, members = gang_of(world, 4, 2, world.shape(gpus=1), qos=CRITICAL)
    world.place()
    gone = victims(world)
    assert len(gone) == 2
    end(world, gone)
    assert placed(world, members) == 2
    world.place()
    assert victims(world) == []


def test_the_least_urgent_and_then_the_least_lost_go() -> None:
    world = World()
    for _ in range(2):
        world.node(gpus=2)
    shape = world.shape(gpus=1)
    old = world.tasks(["old-0", "old-1"], shape, **SOFT)
    world.place()
    world.run(*old)
    world.tick(100 * 10**9)
    young = world.task("young", shape, **SOFT)
    low = world.task("low", shape, qos=BACKGROUND, flags=_core.PREEMPTIBLE)
    world.place()
    world.run(young, low)
    world.tick()
    gang_of(world, 2, 2, shape, qos=CRITICAL)
    world.place()
    assert sorted(victims(world)) == sorted([young, low])


def test_a_checkpoint_makes_a_victim_cheap() -> None:
    world = World()
    world.node(gpus=2)
    world.node(gpus=2)
    shape = world.shape(gpus=1)
    wary = world.tasks(["w0", "w1"], shape, checkpoint_ns=10 * 10**9, **SOFT)
    bold = world.tasks(["b0", "b1"], shape, **SOFT)
    world.place()
    world.run(*wary, *bold)
    world.tick(101 * 10**9)
    gang_of(world, 2, 2, shape, qos=CRITICAL)
    world.place()
    assert sorted(victims(world)) == wary


def test_a_required_domain_is_kept_and_the_cheapest_one_taken() -> None:
    world, soft = full_world(nodes=3, column=0)
    world.tick()
    world.core.ended(soft[2], _core.SUCCEEDED, 0)  # on the second node: one seat is free there
    _, members = gang_of(world, 2, 2, world.shape(gpus=1), column=0, qos=CRITICAL)
    world.place()
    gone = victims(world)
    assert gone == [soft[3]]
    end(world, gone)
    assert {world.where(member) for member in members} == {1}


def test_a_gang_that_is_a_victim_goes_as_a_whole_and_its_other_seats_are_used() -> None:
    world = World()
    for _ in range(2):
        world.node(gpus=1)
    shape = world.shape(gpus=1)
    _, herd = gang_of(world, 2, 2, shape, **SOFT)
    world.place()
    world.run(*herd)
    _, members = gang_of(world, 2, 2, shape, qos=CRITICAL)
    world.place()
    gone = victims(world)
    assert sorted(gone) == herd
    end(world, gone)
    assert placed(world, members) == 2


def test_the_blast_radius_is_that_of_the_whole_request() -> None:
    for radius, stopped in ((1, 0), (2, 2)):
        world = World(blast_radius=radius)
        world.node(gpus=4)
        world.node(gpus=4)
        whole = world.tasks(["w0", "w1"], world.shape(gpus=4), **SOFT)
        world.place()
        world.run(*whole)
        gang_of(world, 2, 2, world.shape(gpus=2, cpu=40), qos=CRITICAL)
        world.place()
        assert len(victims(world)) == stopped


def test_two_gangs_never_share_a_victim() -> None:
    world, _ = full_world(nodes=2, gpus=3)
    shape = world.shape(gpus=1)
    gang_of(world, 3, 3, shape, qos=CRITICAL)
    gang_of(world, 3, 3, shape, qos=CRITICAL)
    gang_of(world, 3, 3, shape, qos=CRITICAL)
    world.place()
    gone = victims(world)
    assert len(gone) == len(set(gone)) == 6
    end(world, gone)
    assert world.core.counts()[_core.PLACED] == 6


def test_a_lost_node_gives_all_seats_up_and_the_gang_claims_anew() -> None:
    world, _ = full_world(nodes=3)
    _, members = gang_of(world, 3, 3, world.shape(gpus=1), qos=CRITICAL)
    world.place()
    victims(world)
    node = world.core.claim(members[0])[0]  # type: ignore[index]
    world.do("open_node", node, False)
    assert all(world.core.claim(member) is None for member in members)
    assert [fact[0] for fact in world.facts()] == [_core.F_UNCLAIMED] * 3
    world.place()
    assert victims(world) == []  # for one who was told to go has not gone yet, and another need not go then
    for task in world.core.page(-1, 9, 1 << _core.STOPPING):
        end(world, [task])
    world.place()
    assert all(world.core.claim(member) is not None for member in members)


def test_who_is_gone_of_a_claiming_gang_takes_its_claims_along() -> None:
    world, _ = full_world()
    _, members = gang_of(world, 2, 2, world.shape(gpus=1), qos=CRITICAL)
    world.place()
    world.core.ended(members[1], _core.CANCELLED, 3)
    assert world.core.claim(members[0]) is None


def test_a_gang_waits_for_those_who_leave_anyhow() -> None:
    """The herd falls as one for the boss and leaves a device over: that is what the gang takes, the single one is let be."""
    world = World()
    for _ in range(3):
        world.node(gpus=1)
    shape = world.shape(gpus=1)
    _, herd = gang_of(world, 2, 2, shape, **SOFT)
    single = world.task("single", shape, **SOFT)
    world.place()
    world.run(*herd, single)
    world.tick()
    world.core.started(single, 1)
    boss = world.task("boss", shape, qos=CRITICAL, priority=9)
    world.tick(100 * 10**9)
    world.do("set_shape_node", shape, 2, 0)
    world.place()
    assert sorted(victims(world)) == herd
    world.do("set_shape_node", shape, 2, 1)
    _, crew = gang_of(world, 1, 1, shape, qos=CRITICAL)
    world.place()
    assert victims(world) == []
    end(world, herd)
    world.place()
    assert placed(world, [boss, *crew]) == 2


def test_a_gang_that_is_partly_there_asks_nobody_to_go() -> None:
    world = World()
    nodes = [world.node(gpus=1), world.node(gpus=1), world.node(gpus=1)]
    shape = world.shape(gpus=1)
    _, members = gang_of(world, 2, 2, shape, qos=CRITICAL)
    soft = world.task("soft", shape, **SOFT)
    world.place()
    world.run(soft)
    world.do("open_node", nodes[1], False)
    world.core.requeue(members[1], 2)
    world.place()
    assert victims(world) == []


def test_members_of_unlike_shapes_find_seats_by_first_fit_where_the_best_ones_do_not_do() -> None:
    """The presets' choice for the first member may leave no room for the second: then nobody is stopped, the first fit is taken."""
    world = World(policy=_core.POLICY_SPREAD)
    world.node(gpus=2, cpu=4)
    world.node(gpus=1, cpu=64)
    gang = world.do("add_gang", 2, 2, -1)
    world.task("first", world.shape(gpus=1, cpu=2), gang=gang)
    world.task("second", world.shape(gpus=1, cpu=1, memory=1), gang=gang)
    assert world.place() == 2


def test_how_many_of_a_gang_would_fit_now_and_ever() -> None:
    world, _ = full_world(nodes=3, gpus=2, column=0)
    shape = world.shape(gpus=1)
    loose, _ = gang_of(world, 8, 8, shape)
    tight, _ = gang_of(world, 3, 3, shape, column=0)
    world.place(False)
    digest = world.core.digest()
    assert world.core.gang_room(loose) == (0, 6)
    assert world.core.gang_room(tight) == (0, 2)
    world.do("open_node", 0, False)
    assert world.core.gang_room(loose) == (0, 6)
    world.do("open_node", 0, True)
    assert world.core.digest() == digest
    world.core.check()


def test_parts_are_seated_tightly_whatever_the_preset_likes() -> None:
    """By its prices a half begins a whole device rather than fill one up; then none is left for the second member. Nobody goes for that."""
    world = World(policy=_core.POLICY_PRICE)
    world.do("set_prices", 0, [0] + [500] * 1000, [], 0, 0)
    world.node(gpus=4)
    halves = world.tasks(["h0", "h1"], world.shape(parts=1, part=500), **SOFT)
    world.place()
    world.run(*halves)
    assert world.devices(halves[0]) != world.devices(halves[1])
    _, members = gang_of(world, 2, 2, world.shape(gpus=1, parts=1, part=500), qos=CRITICAL)
    world.place()
    assert victims(world) == []
    assert placed(world, members) == 2
