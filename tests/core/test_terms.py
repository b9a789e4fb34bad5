"""Scores that are blended of terms: what is told of a node, and what the tables know."""

from __future__ import annotations

import random

import pytest

from hetsched import _core
from hetsched._core import TERM_NAMES

from .world import World

TOLD, PRESET, FRAGMENT, PACK, SPREAD, LOAD = (
    tuple(1000 if name == wanted else 0 for name in TERM_NAMES) for wanted in TERM_NAMES
)
NOTHING = (0,) * len(TERM_NAMES)


def test_the_best_told_node_goes_first_and_ties_go_to_the_lowest_slot() -> None:
    world = World(policy=_core.POLICY_FIRST_FIT)
    nodes = [world.node(cpu=2) for _ in range(4)]
    shape = world.shape(cpu=2)
    assert world.core.set_shape_scores(shape, bytes([10, 200, 10, 90]), TOLD)
    tasks = world.tasks(["a", "b", "c", "d"], shape)
    world.place()
    assert [world.where(task) for task in tasks] == [nodes[1], nodes[3], nodes[0], nodes[2]]


def test_telling_the_same_again_changes_nothing_and_no_weights_give_the_preset_back() -> None:
    world = World(policy=_core.POLICY_FIRST_FIT)
    first, second = world.node(cpu=8), world.node(cpu=8)
    shape = world.shape(cpu=1)
    assert world.core.set_shape_scores(shape, bytes([0, 255]), TOLD)
    assert not world.core.set_shape_scores(shape, bytes([0, 255]), TOLD)
    told, free = world.core.shape_terms(shape, second)
    assert (told, free) == (255, 1000)
    liked = world.task("liked", shape)
    world.place()
    assert world.core.set_shape_scores(shape, b"", NOTHING)
    plain = world.task("plain", shape)
    world.place()
    assert (world.where(liked), world.where(plain)) == (second, first)


def test_scores_that_change_while_a_task_waits_count() -> None:
    world = World(policy=_core.POLICY_FIRST_FIT)
    first, second = world.node(cpu=4), world.node(cpu=4)
    shape = world.shape(cpu=4)
    busy = [world.task(f"busy-{at}", shape) for at in range(2)]
    world.place()
    late = world.task("late", shape)
    assert world.place() == 0
    world.core.set_shape_scores(shape, bytes([0, 255]), TOLD)
    for task in busy:
        world.core.ended(task, _core.SUCCEEDED, 0)
    world.place()
    assert world.where(late) == second != first


def test_the_least_loaded_node_counts_all_that_it_has() -> None:
    """The second node has more free cores but its devices are taken."""
    world = World(policy=_core.POLICY_FIRST_FIT)
    devices_free, devices_taken = world.node(cpu=10, gpus=2), world.node(cpu=12, gpus=2)
    holder = world.shape(cpu=1, gpus=2)
    world.core.set_shape_scores(holder, bytes([0, 255]), TOLD)
    world.task("holder", holder)
    world.place()
    shape = world.shape(cpu=1)
    world.core.set_shape_scores(shape, b"", LOAD)
    task = world.task("t", shape)
    world.place()
    assert world.core.shape_terms(shape, devices_taken)[1] < world.core.shape_terms(shape, devices_free)[1]
    assert world.where(task) == devices_free


def test_weights_blend_told_scores_with_packing() -> None:
    """A little liking does not outweigh packing; a lot does."""
    for told, expected in ((60, 0), (255, 1)):
        world = World(policy=_core.POLICY_FIRST_FIT)
        used, empty = world.node(cpu=8), world.node(cpu=8)
        shape = world.shape(cpu=2)
        world.task("before", shape)
        world.place()
        blend = world.shape(cpu=2)
        world.core.set_shape_scores(blend, bytes([0, told]), (1000, 0, 0, 2000, 0, 0))
        task = world.task("t", blend)
        world.place()
        assert world.where(task) == (used, empty)[expected]


def test_without_devices_asked_equal_scores_go_to_the_node_without_any() -> None:
    world = World(policy=_core.POLICY_FIRST_FIT)
    with_devices, plain = world.node(gpus=1), world.node()
    for told, expected in (((200, 200), plain), ((255, 0), with_devices)):
        shape = world.shape(cpu=1, memory=told[0])
        world.core.set_shape_scores(shape, bytes(told), TOLD)
        task = world.task(f"t{told}", shape)
        world.place()
        assert world.where(task) == expected


def test_the_preset_s_own_score_is_a_term() -> None:
    """Alone it ranks as the preset does; beside a told term it can be outweighed."""
    for weights, expected in ((PRESET, 0), ((1000, 10, 0, 0, 0, 0), 1)):
        world = World(policy=_core.POLICY_PACK)
        used, empty = world.node(cpu=8), world.node(cpu=8)
        world.task("before", world.shape(cpu=2))
        world.place()
        shape = world.shape(cpu=2)
        world.core.set_shape_scores(shape, bytes([0, 255]), weights)
        task = world.task("t", shape)
        world.place()
        assert world.where(task) == (used, empty)[expected]


def test_levels_above_the_top_count_as_the_top() -> None:
    """Told that levels end at 3, the node of level 4 has only its score to go by."""
    for top, expected in ((7, 0), (3, 1)):
        world = World(policy=_core.POLICY_FIRST_FIT)
        nodes = [world.node(), world.node()]
        shape = world.shape(cpu=1)
        world.do("set_shape_nodes", shape, bytes([4, 3]))
        world.core.set_shape_scores(shape, bytes([100, 150]), TOLD, top)
        task = world.task("t", shape)
        world.place()
        assert world.where(task) == nodes[expected]


def test_what_is_told_is_derived_and_forgotten_with_the_node() -> None:
    world = World(policy=_core.POLICY_FIRST_FIT)
    node = world.node()
    shape = world.shape(cpu=1)
    before = world.core.digest()
    world.core.set_shape_scores(shape, bytes([77]), TOLD)
    assert world.core.digest() == before
    world.do("remove_node", node)
    again = world.node()
    assert again == node and world.core.shape_terms(shape, again)[0] == 0


def test_hostile_weights_are_refused() -> None:
    world = World()
    shape = world.shape(cpu=1)
    for weights in ((1, 2), (-1, 0, 0, 0, 0, 0), (1_000_001, 0, 0, 0, 0, 0)):
        with pytest.raises(ValueError, match="weights"):
            world.core.set_shape_scores(shape, b"", weights)
    with pytest.raises(ValueError, match="level_top"):
        world.core.set_shape_scores(shape, b"", TOLD, 9)
    with pytest.raises(IndexError):
        world.core.set_shape_scores(shape + 1, b"", TOLD)


@pytest.mark.parametrize("seed", range(5))
def test_random_blends_keep_every_invariant(seed: int) -> None:
    """Checked builds look at every leaf after every door."""
    chance = random.Random(seed)
    policies = (
        _core.POLICY_PACK,
        _core.POLICY_FRAGMENT,
        _core.POLICY_BEST_FIT,
        _core.POLICY_SPREAD,
        _core.POLICY_FIRST_FIT,
    )
    world = World(policy=policies[seed])
    nodes = [world.node(cpu=chance.randint(4, 64), gpus=chance.choice((0, 2, 8)), model=at % 3) for at in range(12)]
    shapes = [world.shape(cpu=at + 1, gpus=at % 3, part=0) for at in range(6)] + [world.shape(parts=1, part=250)]
    live: list[int] = []
    for step in range(60):
        shape = chance.choice(shapes)
        weights = [chance.choice((0, 0, 300, 1000)) for _ in TERM_NAMES]
        world.core.set_shape_scores(shape, chance.randbytes(chance.randint(0, len(nodes))), weights)
        live.append(world.task(f"t{step}", chance.choice(shapes)))
        world.place()
        world.core.check()
        if step % 3 == 2:
            task = live.pop(chance.randrange(len(live)))
            world.core.ended(task, _core.SUCCEEDED, 0)
