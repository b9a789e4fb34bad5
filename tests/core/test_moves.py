"""Moves: victims with room elsewhere are told so, are preferred at equal cost, and, where it is allowed, may be of the newcomer's own level."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched import _core
from hetsched._core import Core

from .test_gangs import gang_of
from .test_random_worlds import Chaos
from .world import BACKGROUND, BEST_EFFORT, CRITICAL, World

SOFT: dict[str, Any] = {"qos": BEST_EFFORT, "flags": _core.PREEMPTIBLE}
SECOND_NS = 10**9


def scattered(moves: int, each: int = 1) -> tuple[World, list[int]]:
    """Two nodes of four devices with so many best-effort tasks of one device on each, which run."""
    world = World(policy=_core.POLICY_SPREAD)
    world.do("set_consolidate", moves)
    world.node(gpus=4)
    world.node(gpus=4)
    soft = world.tasks([f"soft-{at}" for at in range(2 * each)], world.shape(gpus=1), **SOFT)
    world.place()
    assert [sum(world.where(task) == node for task in soft) for node in (0, 1)] == [each, each]
    world.run(*soft)
    world.tick(10 * SECOND_NS)
    return world, soft


def stopped(world: World) -> dict[int, int]:
    """Who was told to go, and why."""
    return {fact[1]: fact[3] for fact in world.facts() if fact[0] == _core.F_STOPPING}


def leave(world: World, tasks: Any) -> None:
    for task in tasks:
        world.core.requeue(task, _core.REASON_CONSOLIDATE, preempted=True)


@pytest.mark.parametrize(
    ("moves", "each", "reason"),
    [
        (_core.MOVE_NEVER, 1, _core.REASON_PREEMPTED),
        (_core.MOVE_LOWER, 1, _core.REASON_CONSOLIDATE),
        (_core.MOVE_LOWER, 3, _core.REASON_PREEMPTED),
    ],
)
def test_who_has_room_elsewhere_is_moved(moves: int, each: int, reason: int) -> None:
    world, _ = scattered(moves, each)
    world.task("boss", world.shape(gpus=4), qos=CRITICAL)
    world.place()
    gone = stopped(world)
    assert len(gone) == each and set(gone.values()) == {reason}


def test_the_moved_are_placed_at_once_and_the_newcomer_starts() -> None:
    world, _ = scattered(_core.MOVE_LOWER)
    boss = world.task("boss", world.shape(gpus=4), qos=CRITICAL)
    world.place()
    gone = stopped(world)
    leave(world, gone)
    assert world.state(boss) == _core.PLACED
    assert world.place() == len(gone)


def test_of_two_sets_that_cost_the_same_the_one_that_can_be_moved_goes() -> None:
    """Only those on the second node have room on the third; the first node would else be taken, being the lower one."""
    world = World()
    world.do("set_consolidate", _core.MOVE_LOWER)
    for gpus in (2, 2, 1):
        world.node(gpus=gpus)
    tied, free = world.shape(gpus=2), world.shape(gpus=1)
    world.do("set_shape_node", tied, 1, 0)
    world.do("set_shape_node", free, 0, 0)
    world.task("tied", tied, **SOFT)
    light = world.task("free", free, **SOFT)
    world.do("set_shape_node", free, 2, 0)
    world.place()
    world.do("set_shape_node", free, 2, 1)
    boss = world.shape(gpus=2)
    world.do("set_shape_node", boss, 2, 0)
    world.task("boss", boss, qos=CRITICAL)
    world.place()
    assert stopped(world) == {light: _core.REASON_CONSOLIDATE}


def test_equals_are_let_be_unless_it_is_allowed() -> None:
    for moves, count in ((_core.MOVE_LOWER, 0), (_core.MOVE_EQUAL, 1)):
        world, _ = scattered(moves)
        world.task("large", world.shape(gpus=4), qos=BEST_EFFORT)
        world.place()
        assert len(stopped(world)) == count


def test_a_gang_may_have_equals_moved_too() -> None:
    world, _ = scattered(_core.MOVE_EQUAL, each=2)
    _, members = gang_of(world, 2, 2, world.shape(gpus=2, cpu=1), column=8, qos=BEST_EFFORT)
    world.place()
    gone = stopped(world)
    assert len(gone) == 2 and set(gone.values()) == {_core.REASON_CONSOLIDATE}
    leave(world, gone)
    assert len({world.where(member) for member in members}) == 1
    assert world.place() == 2


def test_an_equal_without_room_elsewhere_stays() -> None:
    world, _ = scattered(_core.MOVE_EQUAL, each=3)
    world.task("large", world.shape(gpus=4), qos=BEST_EFFORT)
    world.place()
    assert stopped(world) == {}


def test_only_what_is_smaller_is_moved_and_nobody_twice() -> None:
    world, _ = scattered(_core.MOVE_EQUAL)
    large = world.task("large", world.shape(gpus=4), qos=BEST_EFFORT)
    world.place()
    (gone,) = stopped(world)
    leave(world, [gone])
    world.place()
    world.run(gone, large)
    world.core.ended(large, _core.SUCCEEDED, 0)
    spare = world.task("spare", world.shape(gpus=1), qos=BEST_EFFORT, flags=_core.PREEMPTIBLE)
    world.do("set_shape_node", 0, 0, 1)
    world.place()
    world.task("wide", world.shape(gpus=4), qos=BEST_EFFORT)
    world.tick()
    world.place()
    assert gone not in stopped(world)
    assert world.state(spare) in (_core.PLACED, _core.STOPPING)


def test_background_tasks_may_move_each_other_though_nobody_is_below_them() -> None:
    world = World(policy=_core.POLICY_SPREAD)
    world.do("set_consolidate", _core.MOVE_EQUAL)
    world.node(gpus=2)
    world.node(gpus=2)
    soft = world.tasks(["a", "b"], world.shape(gpus=1), qos=BACKGROUND, flags=_core.PREEMPTIBLE)
    world.place()
    world.run(*soft)
    world.task("pair", world.shape(gpus=2), qos=BACKGROUND)
    world.place()
    assert len(stopped(world)) == 1


@pytest.mark.parametrize("seed", range(300, 306))
def test_random_worlds_with_moves_keep_every_promise(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.world.do("set_consolidate", _core.MOVE_LOWER)
    for _ in range(160):
        chaos.step()
    assert chaos.world.replay().digest() == chaos.core.digest()


@pytest.mark.parametrize("seed", range(310, 316))
def test_random_worlds_in_which_equals_are_moved_keep_their_invariants(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.world.do("set_consolidate", _core.MOVE_EQUAL)
    chaos.decide = lambda: chaos.core.decide(15, True)  # type: ignore[method-assign]  # the rules know of no equals
    for _ in range(160):
        chaos.step()
    chaos.core.check()
    assert chaos.world.replay().digest() == chaos.core.digest()
    assert Core.load(chaos.core.dump(), checked=True).digest() == chaos.core.digest()
