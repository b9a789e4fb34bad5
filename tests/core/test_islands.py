"""Devices of one board that belong together, and gangs that would like to: against a reader who tries everything."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from hetsched import _core

from .world import GIB, GPU, World

NUMA, NVLINK, PCIE = 1, 2, 3
Groups = tuple[int, int, int]  # NUMA node, NVLink island, PCIe switch of a device; -1: none


def board(world: World, devices: list[Groups], model: int = -1) -> int:
    slot: int = world.do("add_node", 64000, 256 * GIB, [(GPU, model, 40 * GIB, *groups) for groups in devices])
    return slot


def order(wished: int = 0) -> list[int]:
    """Levels as they are looked at, as indices into Groups."""
    return [level - 1 for level in dict.fromkeys([*([wished] if wished else []), NVLINK, NUMA, PCIE])]


def islands(devices: list[Groups], chosen: tuple[int, ...], level: int) -> dict[Any, int]:
    """Devices chosen by island of the level; one without an island is alone."""
    found: dict[Any, int] = {}
    for index in chosen:
        island = devices[index][level]
        key = island if island >= 0 else ("alone", index)
        found[key] = found.get(key, 0) + 1
    return found


def worth(devices: list[Groups], free: list[int], chosen: tuple[int, ...], wished: int) -> tuple[list[int], list[int]]:
    """Least best: levels at which the choice is split, in order; then how many are free on its island at those at which it is not."""
    split, left = [], []
    for level in order(wished):
        mine = islands(devices, chosen, level)
        split.append(int(len(mine) > 1))
        if len(mine) == 1:
            left.append(islands(devices, tuple(free), level)[next(iter(mine))])
    return split, left


def random_board(source: random.Random) -> list[Groups]:
    """Sides with switches in them, islands across or along; now and then nothing makes sense."""
    size = source.choice((4, 6, 8))
    if source.random() < 0.3:
        return [(source.randint(-1, 1), source.randint(-1, 2), source.randint(-1, 3)) for _ in range(size)]
    link = source.choice((0, 2, size // 2))
    return [
        (at * 2 // size, at // link if link else -1, at // 2 if source.random() < 0.9 else -1) for at in range(size)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_whole_devices_are_the_choice_that_nothing_beats(seed: int) -> None:
    """Never split where one choice is not, and the fullest island that suffices: the most is left whole."""
    source = random.Random(seed)
    for _ in range(6):
        world = World(policy=source.choice((_core.POLICY_PACK, _core.POLICY_PRICE, _core.POLICY_FRAGMENT)))
        devices = random_board(source)
        node = board(world, devices)
        free = [at for at in range(len(devices)) if source.random() < 0.75]
        for gone in set(range(len(devices))) - set(free):
            world.do("set_device_usable", node, gone, False)
        wanted, wished = source.randint(1, 4), source.choice((0, NUMA, NVLINK, PCIE))
        task = world.task("t", world.shape(gpus=wanted, same=wished, is_wish=True))
        assert world.place() == (len(free) >= wanted)
        if len(free) >= wanted:
            chosen = tuple(sorted(index for index, _ in world.devices(task)))
            best = min(worth(devices, free, choice, wished) for choice in itertools.combinations(free, wanted))
            assert worth(devices, free, chosen, wished) == best, (devices, free, wanted, wished, chosen)


@pytest.mark.parametrize("seed", range(12))
def test_where_no_island_suffices_few_are_taken_and_the_largest_are_left(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(6):
        sizes = [source.randint(1, 3) for _ in range(source.randint(2, 4))]
        devices = [(island, -1, -1) for island, size in enumerate(sizes) for _ in range(size)]
        world = World()
        board(world, devices)
        free = range(len(devices))
        wanted = source.randint(max(sizes), len(devices))
        task = world.task("t", world.shape(gpus=wanted))
        world.place()

        def taken(choice: tuple[int, ...], devices: list[Groups] = devices, sizes: list[int] = sizes) -> Any:
            mine = islands(devices, choice, 0)
            left = sorted((size - mine.get(island, 0) for island, size in enumerate(sizes)), reverse=True)
            return len(mine), [-count for count in left]

        chosen = tuple(index for index, _ in world.devices(task))
        assert taken(chosen) == min(map(taken, itertools.combinations(free, wanted)))


@pytest.mark.parametrize("same", [NUMA, NVLINK, PCIE])
def test_what_is_required_is_a_wall_at_every_level(same: int) -> None:
    world = World()
    board(world, [(0, 0, 0), (0, 0, 0), (1, 1, 1), (1, 1, 1), (-1, -1, -1), (-1, -1, -1)])
    pairs = world.tasks(["a", "b", "c"], world.shape(gpus=2, same=same))
    anywhere = world.task("anywhere", world.shape(gpus=2))
    world.place()
    assert [{index for index, _ in world.devices(task)} for task in pairs[:2]] == [{0, 1}, {2, 3}]
    assert world.where(pairs[2]) is None
    assert {index for index, _ in world.devices(anywhere)} == {4, 5}
    assert world.core.verdict(world.core.task(pairs[2]).shape)["devices"] == 1


def test_a_wish_goes_before_a_better_ranked_node_and_never_makes_anybody_wait() -> None:
    world = World(policy=_core.POLICY_PACK)
    scattered = board(world, [(0, -1, -1), (1, -1, -1)])
    together = board(world, [(0, -1, -1), (0, -1, -1), (1, -1, -1), (1, -1, -1)])
    shape = world.shape(gpus=2, same=NUMA, is_wish=True)
    plain, *tasks = world.tasks(["plain"], world.shape(gpus=2)) + world.tasks(["a", "b", "c"], shape)
    world.place()
    assert world.where(plain) == scattered, "the fuller node, without a wish"
    assert [world.where(task) for task in tasks] == [together, together, None]
    world.core.ended(plain, _core.SUCCEEDED, 0)
    world.place()
    assert world.where(tasks[2]) == scattered


def test_of_nodes_that_split_a_wish_the_one_that_splits_it_least() -> None:
    world = World()
    board(world, [(0, -1, -1), (1, -1, -1), (2, -1, -1)])
    two_sides = board(world, [(0, -1, -1), (0, -1, -1), (1, -1, -1), (2, -1, -1)])
    task = world.task("t", world.shape(gpus=3, same=NUMA, is_wish=True))
    world.place()
    assert world.where(task) == two_sides


def test_what_a_node_is_worth_for_a_wish_is_the_same_whenever_it_is_asked() -> None:
    """Where chance chooses the devices, too: three parts on pairs lie on two islands or on three."""
    world = World(policy=_core.POLICY_RANDOM)
    for _ in range(2):
        board(world, [(at // 2, -1, -1) for at in range(6)])
    elsewhere = world.node()
    world.task("wish", world.shape(parts=3, part=600, same=NUMA, is_wish=True))
    world.place()
    for is_open in (False, True) * 10:
        world.do("open_node", elsewhere, is_open)
        world.core.check()


def test_a_part_begins_a_device_where_an_island_is_broken_already() -> None:
    world = World()
    board(world, [(at // 4, -1, -1) for at in range(8)])
    one = world.task("one", world.shape(gpus=1))
    world.place()
    ((first, _),) = world.devices(one)
    parts = world.tasks(["a", "b"], world.shape(parts=1, part=600))
    four = world.task("four", world.shape(gpus=4))
    world.place()
    assert all(index // 4 == first // 4 for task in parts for index, _ in world.devices(task))
    assert {index // 4 for index, _ in world.devices(four)} == {1 - first // 4}


def test_models_are_taken_best_first_and_together_among_equals() -> None:
    world = World()
    rows = [(GPU, 0, -1, 0, -1, -1), (GPU, 1, -1, 0, -1, -1), (GPU, 1, -1, 1, -1, -1), (GPU, 1, -1, 1, -1, -1)]
    world.do("add_node", 64000, 0, rows)
    best = world.task("best", world.shape(gpus=1, models=(0, 1)))
    pair = world.task("pair", world.shape(gpus=2, models=(0, 1)))
    world.place()
    assert world.devices(best) == ((0, 1000),)
    assert world.devices(pair) == ((2, 1000), (3, 1000))


def test_a_task_without_a_list_takes_the_devices_that_its_shape_likes() -> None:
    world = World()
    world.do("add_node", 64000, 0, [(GPU, model, -1, -1, -1, -1) for model in (1, 1, 0, 0)])
    shape, plain = world.shape(gpus=1), world.shape(gpus=1, cpu=2)
    world.core.set_shape_scores(shape, b"", (0,) * 6, models=(0, 1))
    liked = world.tasks(["a", "b", "c"], shape)
    other = world.task("plain", plain)
    world.place()
    assert [world.devices(task)[0][0] for task in liked] == [2, 3, 0]
    assert world.devices(other) == ((1, 1000),)


# ---------------------------------------------------------------- gangs


@pytest.mark.parametrize("seed", range(15))
def test_a_gang_with_a_wish_lies_in_one_rack_if_one_holds_it_else_in_few(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(4):
        world = World(policy=source.choice((_core.POLICY_SPREAD, _core.POLICY_PRICE)))
        room: dict[int, int] = {}
        rack_of = {}
        for _ in range(source.randint(3, 7)):
            rack, gpus = source.randint(-1, 2), source.randint(1, 3)
            node = world.node(gpus=gpus, column0=rack)
            rack_of[node] = rack if rack >= 0 else 100 + node
            room[rack_of[node]] = room.get(rack_of[node], 0) + gpus
        size = source.randint(2, 6)
        gang = world.do("add_gang", size, size, -1, 0)
        members = world.tasks([f"m{at}" for at in range(size)], world.shape(gpus=1), gang=gang)
        assert world.place() == (size if sum(room.values()) >= size else 0)
        if sum(room.values()) < size:
            continue
        racks = {rack_of[world.where(member)] for member in members}  # type: ignore[index]
        labelled = sorted((count for rack, count in room.items() if rack < 100), reverse=True)
        needed = next((n for n in range(1, len(labelled) + 1) if sum(labelled[:n]) >= size), None)
        assert needed is None or len(racks) == needed, (room, size, racks)


def test_a_late_member_goes_where_the_others_are_if_there_is_room() -> None:
    world = World(policy=_core.POLICY_SPREAD)
    nodes = [world.node(gpus=2, column0=rack) for rack in (0, 1, 1)]
    gang = world.do("add_gang", 4, 1, -1, 0)
    shape = world.shape(gpus=1)
    first = world.task("first", shape, gang=gang)
    world.place()
    assert world.where(first) == nodes[0]
    late = world.tasks(["a", "b", "c"], shape, gang=gang)
    world.place()
    assert [world.where(task) for task in late] == [nodes[0], *[world.where(task) for task in late[1:]]]
    assert {world.where(task) for task in late[1:]} <= {nodes[1], nodes[2]}


def test_a_gang_that_wishes_for_one_node_gets_it_before_a_better_ranked_pair() -> None:
    world = World(policy=_core.POLICY_SPREAD)
    world.node(gpus=2)
    world.node(gpus=2)
    whole = world.node(gpus=8)
    world.tasks([f"fill{at}" for at in range(4)], world.shape(gpus=1))
    world.place()
    gang = world.do("add_gang", 3, 3, -1, 8)
    members = world.tasks(["a", "b", "c"], world.shape(gpus=1), gang=gang)
    assert world.place() == 3
    assert {world.where(member) for member in members} == {whole}
