"""Gangs: all that belong together, or none; later ones join; broken ones gather again."""

from __future__ import annotations

import pytest

from hetsched import _core

from .world import BEST_EFFORT, CRITICAL, World


def gang_of(world: World, size: int, least: int, shape: int, column: int = -1, **named: int) -> tuple[int, list[int]]:
    gang = world.do("add_gang", size, least, column)
    return gang, world.tasks([f"g{gang}-{at}" for at in range(size)], shape, gang=gang, **named)


def placed(world: World, tasks: list[int]) -> int:
    return sum(world.state(task) == _core.PLACED for task in tasks)


def test_a_gang_is_placed_whole_or_holds_nothing() -> None:
    world = World()
    world.node(gpus=2)
    _, members = gang_of(world, 3, 3, world.shape(gpus=1))
    digest = world.core.digest()
    assert world.place() == 0
    assert world.core.digest() == digest
    world.node(gpus=1)
    assert world.place() == 3
    assert placed(world, members) == 3


def test_as_many_as_fit_but_at_least_min_size() -> None:
    world = World()
    world.node(gpus=3)
    _, members = gang_of(world, 5, 2, world.shape(gpus=1))
    assert world.place() == 3
    world.node(gpus=1)
    assert world.place() == 1
    assert placed(world, members) == 4


def test_a_gang_waits_for_its_members() -> None:
    world = World()
    world.node(gpus=4)
    gang = world.do("add_gang", 3, 3, -1)
    shape = world.shape(gpus=1)
    for at in range(2):
        world.task(f"m{at}", shape, gang=gang)
        assert world.place() == 0
    world.task("m2", shape, gang=gang)
    assert world.place() == 3


def test_a_blocked_gang_blocks_nobody() -> None:
    world = World()
    world.node(gpus=2)
    shape = world.shape(gpus=1)
    gang_of(world, 3, 3, shape)
    small = world.task("small", shape)
    assert world.place() == 1
    assert world.state(small) == _core.PLACED


def test_the_hardest_member_goes_first() -> None:
    """Two small ones first would leave no room for the big one."""
    world = World()
    world.node(gpus=2)
    world.node(gpus=1)
    gang = world.do("add_gang", 2, 2, -1)
    small = world.task("small", world.shape(gpus=1), gang=gang)
    big = world.task("big", world.shape(gpus=2), gang=gang)
    assert world.place() == 2
    assert (world.where(big), world.where(small)) == (0, 1)


@pytest.mark.parametrize("column", [0, 8])
def test_a_domain_keeps_members_together(column: int) -> None:
    world = World()
    racks = [world.node(gpus=gpus, column0=rack) for rack, gpus in ((1, 1), (2, 1), (1, 1), (3, 2))]
    _, members = gang_of(world, 2, 2, world.shape(gpus=1), column=column)
    assert world.place() == 2
    assert [world.where(member) for member in members] == (
        [racks[0], racks[2]] if column == 0 else [racks[3], racks[3]]
    )


def test_who_joins_later_joins_in_the_same_domain() -> None:
    world = World()
    world.node(gpus=1, column0=1)
    world.node(gpus=2, column0=2)
    gang = world.do("add_gang", 3, 2, 0)
    shape = world.shape(gpus=1)
    first = world.tasks(["a", "b"], shape, gang=gang)
    world.place()
    late = world.task("late", shape, gang=gang)
    assert world.place() == 0
    world.core.ended(first[0], _core.SUCCEEDED, 0)
    assert world.place() == 1
    assert world.where(late) == 1


def test_members_that_succeeded_count_as_present() -> None:
    world = World()
    world.node(gpus=2)
    _, members = gang_of(world, 3, 2, world.shape(gpus=1))
    world.place()
    for member in members[:2]:
        world.core.ended(member, _core.SUCCEEDED, 0)
    world.core.forget(members[0])
    assert world.place() == 1


def test_a_gang_that_lost_a_node_gathers_again() -> None:
    world = World()
    nodes = [world.node(gpus=1), world.node(gpus=1)]
    _, members = gang_of(world, 2, 2, world.shape(gpus=1))
    world.place()
    world.do("open_node", nodes[1], False)
    world.core.requeue(members[1], 2)
    assert world.place() == 0
    world.core.requeue(members[0], 2)
    assert world.place() == 0
    world.do("open_node", nodes[1], True)
    assert world.place() == 2


def test_new_attempts_do_not_mix_with_old_ones_that_are_stopping() -> None:
    world = World()
    world.node(gpus=4)
    _, members = gang_of(world, 2, 2, world.shape(gpus=1))
    world.place()
    world.core.stop(members[0], 9)
    world.core.requeue(members[1], 9)
    assert world.place() == 0
    world.core.requeue(members[0], 9)
    assert world.place() == 2


def test_a_gang_below_its_least_is_evicted_whole() -> None:
    world = World()
    world.node(gpus=1)
    world.node(gpus=1)
    _, members = gang_of(world, 2, 2, world.shape(gpus=1), qos=BEST_EFFORT, flags=_core.PREEMPTIBLE)
    world.place()
    boss = world.task("boss", world.shape(gpus=1), qos=CRITICAL)
    world.place()
    assert sorted(world.core.claim(boss)[2]) == members  # type: ignore[index]


def test_a_gang_spares_what_it_can() -> None:
    world = World()
    world.node(gpus=3)
    gang_of(world, 3, 2, world.shape(gpus=1), qos=BEST_EFFORT, flags=_core.PREEMPTIBLE)
    world.place()
    bosses = world.tasks(["one", "two"], world.shape(gpus=1), qos=CRITICAL)
    world.place()
    assert [len(world.core.claim(boss)[2]) for boss in bosses] == [1, 2]  # type: ignore[index]


def test_a_gang_with_an_unwilling_member_is_left_alone() -> None:
    world = World()
    world.node(gpus=2)
    gang = world.do("add_gang", 2, 2, -1)
    shape = world.shape(gpus=1)
    world.task("willing", shape, gang=gang, qos=BEST_EFFORT, flags=_core.PREEMPTIBLE)
    world.task("unwilling", shape, gang=gang, qos=BEST_EFFORT)
    world.place()
    world.task("boss", shape, qos=CRITICAL)
    world.place()
    assert world.core.counts()[_core.STOPPING] == 0


def test_a_gang_may_be_removed_when_all_have_ended() -> None:
    world = World()
    gang, members = gang_of(world, 2, 2, world.shape(gpus=1))
    with pytest.raises(ValueError, match="has not ended"):
        world.core.remove_gang(gang)
    for member in members:
        world.core.ended(member, _core.CANCELLED, 0)
    world.do("remove_gang", gang)
    world.core.forget(members[0])
    assert world.do("add_gang", 1, 1, -1) == gang
