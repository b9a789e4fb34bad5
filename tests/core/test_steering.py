"""What feedback turns changes who is tried first and which device is taken, and nothing that fits is kept out."""

from __future__ import annotations

import pytest

from hetsched import _core

from .world import World


def gang(world: World, key: str, count: int, shape: int) -> list[int]:
    slot = world.do("add_gang", count, count, -1)
    return world.tasks([f"{key}{at}" for at in range(count)], shape, gang=slot)


@pytest.mark.parametrize(("share", "first"), [(0, "single"), (1000, "gang"), (500, "gang")])
def test_below_their_share_gangs_go_before_single_tasks(share: int, first: str) -> None:
    world = World()
    world.node(gpus=4)
    world.do("set_steering", share, 0)
    singles = world.tasks([f"s{at}" for at in range(4)], world.shape(gpus=1))
    members = gang(world, "g", 2, world.shape(gpus=1))
    world.place()
    placed = [world.where(task) is not None for task in (*singles, *members)]
    assert placed == ([True] * 4 + [False] * 2 if first == "single" else [True, True, False, False, True, True])


def test_above_it_they_queue_like_everybody() -> None:
    world = World()
    world.node(gpus=4)
    world.do("set_steering", 500, 0)
    first = gang(world, "a", 2, world.shape(gpus=1))
    world.place()
    single = world.task("single", world.shape(gpus=1))
    second = gang(world, "b", 2, world.shape(gpus=1))
    world.place()
    assert [world.where(task) for task in (*first, single, *second)] == [0, 0, 0, None, None]
    assert world.replay().digest() == world.core.digest()


@pytest.mark.parametrize(("most", "used"), [(0, [4]), (2, [2, 2]), (1, [1, 1, 2]), (4, [4])])
def test_so_many_share_a_device_before_another_is_begun(most: int, used: list[int]) -> None:
    world = World()
    world.node(gpus=len(used))
    world.do("set_steering", 0, most)
    tasks = world.tasks([f"p{at}" for at in range(4)], world.shape(parts=1, part=250))
    world.place()
    devices = [world.devices(task)[0][0] for task in tasks]
    assert sorted(devices.count(device) for device in set(devices)) == used


def test_by_price_nodes_are_chosen_by_it_too() -> None:
    world = World(policy=_core.POLICY_PRICE)
    for _ in range(2):
        world.node(gpus=1)
    world.do("set_steering", 0, 1)
    tasks = world.tasks(["a", "b", "c"], world.shape(parts=1, part=250))
    world.place()
    assert all(world.where(task) is not None for task in tasks), "it is a preference: the third shares"
    again = _core.Core.load(world.core.dump(), checked=True)
    assert again.digest() == world.core.digest()
