"""Gangs of unlike members: what fits at once is found, whoever was asked for first. A slow reader tries every way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache

import pytest

from hetsched import _core

from .world import BEST_EFFORT, CRITICAL, World

Need = tuple[int, int, int, frozenset[int]]  # cores, whole devices, milli of a part, nodes that it may go to


@dataclass
class Puzzle:
    """Nodes (cores, free milli of each device, rack) and what the members of one gang need."""

    nodes: list[tuple[int, tuple[int, ...], int]]
    members: list[Need]
    column: int = -1
    least: int = 0
    running: list[tuple[int, int, int]] = field(default_factory=list)  # node, cores, devices: who may be stopped

    def seats(self, nodes: list[tuple[int, tuple[int, ...], int]]) -> int:
        """The most members that fit at once."""
        if self.column < 0:
            return seats(tuple(self.members), tuple(node[:2] for node in nodes), tuple(range(len(nodes))))
        racks = (
            [{at} for at in range(len(nodes))]
            if self.column == 8
            else [{at for at, node in enumerate(nodes) if node[2] == rack} for rack in {node[2] for node in nodes}]
        )
        return max(seats(tuple(self.members), tuple(n[:2] for n in nodes), tuple(sorted(rack))) for rack in racks)


@lru_cache(maxsize=200_000)
def seats(members: tuple[Need, ...], nodes: tuple[tuple[int, tuple[int, ...]], ...], allowed: tuple[int, ...]) -> int:
    if not members:
        return 0
    (cores, whole, part, may), rest = members[0], members[1:]
    most = 0
    for at in allowed:
        free, devices = nodes[at]
        unused = [which for which, milli in enumerate(devices) if milli == 1000]
        if at not in may or free < cores or len(unused) < whole:
            continue
        left = [0 if which in unused[:whole] else milli for which, milli in enumerate(devices)]
        ways = {tuple(sorted(left))}
        if part:
            ways = {
                tuple(sorted((*left[:which], milli - part, *left[which + 1 :])))
                for which, milli in enumerate(left)
                if milli >= part
            }
        for way in ways:
            found = 1 + seats(rest, (*nodes[:at], (free - cores, way), *nodes[at + 1 :]), allowed)
            if found == len(members):
                return found
            most = max(most, found)
    return max(most, seats(rest, nodes, allowed))


def puzzle(seed: int, size: int = 6, nodes: int = 4) -> Puzzle:
    """Tight: what a random way of filling the nodes leaves over is little; often nothing fits."""
    chance = random.Random(seed)
    has_devices = chance.random() < 0.6
    rows = [
        (
            chance.choice((2, 4, 4, 8, 9)),
            (1000,) * (chance.choice((1, 2, 4)) if has_devices else 0),
            chance.randint(0, 1),
        )
        for _ in range(chance.randint(1, nodes))
    ]
    selectors = [frozenset(range(nodes))] * 2 + [
        frozenset(chance.sample(range(len(rows)), chance.randint(1, len(rows)))) for _ in range(3)
    ]
    kinds: list[Need] = []
    for _ in range(chance.randint(2, 4)):
        whole, part = (
            chance.choice(((0, 0), (1, 0), (2, 0), (0, 500), (0, 300), (0, 400), (0, 600))) if has_devices else (0, 0)
        )
        kinds.append((chance.choice((0, 1, 2, 3, 4)) or 1, whole, part, chance.choice(selectors)))
    members = [chance.choice(kinds) for _ in range(chance.randint(2, size))]
    column = chance.choice((-1, -1, -1, 0, 8))
    least = len(members) if chance.random() < 0.7 else chance.randint(1, len(members))
    return Puzzle(rows, members, column, least)


def world_of(asked: Puzzle, policy: int) -> tuple[World, dict[Need, int]]:
    world = World(policy=policy)
    for cores, devices, rack in asked.nodes:
        world.node(cpu=cores, gpus=len(devices), column0=rack)
    shapes: dict[Need, int] = {}
    for need in asked.members:
        if need not in shapes:
            cores, whole, part, may = need
            shapes[need] = world.shape(cpu=cores, gpus=whole, parts=1 if part else 0, part=part)
            for at in set(range(len(asked.nodes))) - may:
                world.do("set_shape_node", shapes[need], at, 0)
    return world, shapes


def submit(world: World, asked: Puzzle, shapes: dict[Need, int], **named: int) -> tuple[int, list[int]]:
    gang = world.do("add_gang", len(asked.members), asked.least, asked.column)
    return gang, [world.task(f"m{at}", shapes[need], gang=gang, **named) for at, need in enumerate(asked.members)]


def judge_empty(seed: int, size: int, nodes: int) -> None:
    asked = puzzle(seed, size, nodes)
    world, shapes = world_of(asked, seed % 11)
    most = asked.seats(asked.nodes)
    gang, members = submit(world, asked, shapes)
    assert (world.core.gang_room(gang)[0] >= asked.least) == (most >= asked.least), f"gang_room of {asked}"
    assert (world.place() >= asked.least) == (most >= asked.least), f"{most} of {asked}"
    running = [member for member in members if world.state(member) == _core.PLACED]
    if asked.column >= 0 and running:
        places = {
            world.where(member) if asked.column == 8 else asked.nodes[world.where(member) or 0][2] for member in running
        }
        assert len(places) == 1
    world.core.check()


def judge_claims(seed: int, size: int, nodes: int) -> None:
    """Every core and device is somebody's who may be stopped; in the end the gang starts, and nobody went for nothing."""
    asked = puzzle(seed, size, nodes)
    world, shapes = world_of(asked, seed % 11)
    most = asked.seats(asked.nodes)
    soft: dict[int, tuple[int, int, int]] = {}
    for at, (cores, devices, _) in enumerate(asked.nodes):
        parts = max(len(devices), 1)
        for which in range(parts):
            share = cores // parts + (0 if which else cores % parts)
            shape = world.shape(cpu=share, gpus=1 if devices else 0)
            for other in set(range(len(asked.nodes))) - {at}:
                world.do("set_shape_node", shape, other, 0)
            task = world.task(f"s{at}-{which}", shape, qos=BEST_EFFORT, flags=_core.PREEMPTIBLE)
            soft[task] = (at, share, len(devices) > 0)
    world.place()
    assert all(world.state(task) == _core.PLACED for task in soft)
    world.run(*soft)
    world.tick(100 * 10**9)
    gang, members = submit(world, asked, shapes, qos=CRITICAL)
    assert (world.core.gang_room(gang)[1] >= asked.least) == (most >= asked.least)
    world.place()
    gone = {task for task in soft if world.state(task) == _core.STOPPING}
    if most < asked.least:
        assert not gone
        return
    if not gone:
        assert any(world.state(member) == _core.PLACED for member in members) or blocked_by_radius(asked)
        return
    claiming = [member for member in members if world.core.claim(member) is not None]
    assert len(claiming) == asked.least
    needs = [asked.members[members.index(member)] for member in claiming]
    for task in gone:
        kept = Puzzle(asked.nodes, needs, asked.column, asked.least)
        assert (
            kept.seats(without(asked, [soft[one] for one in soft if one not in gone or one == task])) < asked.least
        ), f"{task} need not go of {asked}"
    for task in gone:
        world.core.ended(task, _core.CANCELLED, 0)
    world.place(False)
    assert sum(world.state(member) == _core.PLACED for member in members) >= asked.least
    world.core.check()


def without(asked: Puzzle, held: list[tuple[int, int, int]]) -> list[tuple[int, tuple[int, ...], int]]:
    """What they leave of the nodes."""
    rows = []
    for at, (cores, devices, rack) in enumerate(asked.nodes):
        mine = [row for row in held if row[0] == at]
        taken = sum(row[2] for row in mine)
        left = tuple(0 if which < taken else 1000 for which in range(len(devices)))
        rows.append((cores - sum(row[1] for row in mine), left, rack))
    return rows


def blocked_by_radius(asked: Puzzle) -> bool:
    """More devices would have to go than eight for each that is asked for."""
    return sum(len(devices) for _, devices, _ in asked.nodes) > 8


# ---------------------------------------------------------------- every way


@pytest.mark.parametrize("seeds", [range(at, at + 60) for at in range(0, 300, 60)])
def test_what_fits_at_once_is_placed_at_once(seeds: range) -> None:
    for seed in seeds:
        judge_empty(seed, size=6, nodes=4)


@pytest.mark.parametrize("seeds", [range(at, at + 40) for at in range(0, 120, 40)])
def test_a_gang_claims_if_it_fits_without_those_who_may_go(seeds: range) -> None:
    for seed in seeds:
        judge_claims(seed, size=5, nodes=3)


@pytest.mark.parametrize("seed", [2273, 2410, 2872, 3971, 5680])
def test_what_once_went_wrong(seed: int) -> None:
    """No domain was chosen, and one was read of; more members claimed than had to begin."""
    judge_empty(seed, size=8, nodes=5)
    judge_claims(seed, size=6, nodes=4)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(at, at + 500) for at in range(1000, 9000, 500)])
def test_what_fits_at_once_is_placed_at_once_larger(seeds: range) -> None:
    for seed in seeds:
        judge_empty(seed, size=8, nodes=5)
        judge_claims(seed, size=6, nodes=4)


# ---------------------------------------------------------------- stories


def shape_on(world: World, *nodes: int, of: int, cpu: int) -> int:
    """That only these of so many nodes take."""
    shape = world.shape(cpu=cpu)
    for node in set(range(of)) - set(nodes):
        world.do("set_shape_node", shape, node, 0)
    return shape


def test_the_member_with_the_least_choice_goes_first() -> None:
    world = World()
    for _ in range(3):
        world.node(cpu=4)
    gang = world.do("add_gang", 3, 3, -1)
    shapes = [world.shape(cpu=4), shape_on(world, 0, 1, of=3, cpu=4), shape_on(world, 0, of=3, cpu=4)]
    members = [world.task(f"m{at}", shape, gang=gang) for at, shape in enumerate(shapes)]
    assert world.place() == 3
    assert [world.where(member) for member in members] == [2, 1, 0]


@pytest.mark.parametrize("nodes", [2, 5, 12, 16])
def test_who_is_seated_moves_where_another_is_left_without_a_seat(nodes: int) -> None:
    """4 + 3 + 2 on each node of nine; the largest first would put two fours together."""
    world = World()
    for _ in range(nodes):
        world.node(cpu=9)
    gang = world.do("add_gang", 3 * nodes, 3 * nodes, -1)
    for cpu in (4, 3, 2):
        world.tasks([f"m{cpu}-{at}" for at in range(nodes)], world.shape(cpu=cpu), gang=gang)
    assert world.place() == 3 * nodes


def test_as_many_start_as_fit_in_any_order() -> None:
    """One may begin without the other, and both need not wait for each other's end."""
    world = World()
    for _ in range(2):
        world.node(cpu=4)
    gang = world.do("add_gang", 2, 1, -1)
    world.task("any", world.shape(cpu=4), gang=gang)
    world.task("picky", shape_on(world, 0, of=2, cpu=4), gang=gang)
    assert world.place() == 2


def test_a_reservation_knows_every_way() -> None:
    """Both nodes are free at 60: the gang has a start then, and a task that runs longer does not go in front of it."""
    world = World()
    for _ in range(2):
        world.node(cpu=4)
    world.do("set_template", 1, said_ns=60 * 10**9)
    world.do("set_template", 2, said_ns=900 * 10**9)
    for at in range(2):
        world.task(f"long{at}", shape_on(world, at, of=2, cpu=3 + at), template=1)
    world.place()
    gang = world.do("add_gang", 2, 2, -1)
    members = [
        world.task("m0", world.shape(cpu=4), gang=gang),
        world.task("m1", shape_on(world, 0, of=2, cpu=4), gang=gang),
    ]
    world.tick()
    world.task("late", world.shape(cpu=1), template=2)
    assert world.place() == 0
    assert world.core.reservation() is not None
    for task in world.core.page(-1, 9, 1 << _core.PLACED):
        world.core.ended(task, _core.SUCCEEDED, 0)
    world.place()
    assert [world.where(member) for member in members] == [1, 0]


def test_a_large_gang_tries_other_orders() -> None:
    """A thousand members are more than are searched."""
    world = World(checked=False)
    for _ in range(27):
        world.node(cpu=40)
    world.do("open_node", 26, False)
    gang = world.do("add_gang", 1000, 1000, -1)
    chief = world.task("chief", shape_on(world, 0, of=27, cpu=20), gang=gang)
    rival = world.task("rival", world.shape(cpu=40), gang=gang)
    world.tasks([f"m{at}" for at in range(998)], world.shape(cpu=1), gang=gang)
    assert world.place() == 0
    world.do("open_node", 26, True)
    assert world.place() == 1000
    assert world.where(chief) == 0 and world.where(rival) != 0
