"""Prices come in checked, and what they are made of goes out counted."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched import _core
from hetsched._core import Core

from .world import GIB, GPU, World

PLAIN = list(range(1001))


@pytest.mark.parametrize(
    ("sentence", "arguments"),
    [
        ("kind 16", (16, PLAIN, {}, 0, 0)),
        ("never fall", (GPU, PLAIN[:-1], {}, 0, 0)),
        ("never fall", (GPU, [1, *PLAIN[1:]], {}, 0, 0)),
        ("never fall", (GPU, [*PLAIN[:500], 0, *PLAIN[501:]], {}, 0, 0)),
        ("never fall", (GPU, [*PLAIN[:-1], 1001], {}, 0, 0)),
        ("premium", (GPU, PLAIN, {64: 1}, 0, 0)),
        ("premium", (GPU, PLAIN, {1: 1001}, 0, 0)),
        ("rate", (GPU, PLAIN, {}, -1, 0)),
        ("never rise", (GPU, PLAIN, {}, 0, 0, [1, 2])),
        ("never rise", (GPU, PLAIN, {}, 0, 0, [4001])),
        ("never rise", (GPU, PLAIN, {}, 0, 0, [-1])),
        ("never rise", (GPU, PLAIN, {}, 0, 0, [1] * 66)),
        ("wide", (GPU, PLAIN, {}, 0, 0, [], [2, 1])),
        ("wide", (GPU, PLAIN, {}, 0, 0, [], [4001])),
        ("wide", (GPU, PLAIN, {}, 0, 0, [], [-1, 0])),
        ("wide", (GPU, PLAIN, {}, 0, 0, [], [1] * 66)),
        ("rate", (GPU, PLAIN, {}, 0, (1 << 30) + 1)),
    ],
)
def test_prices_that_make_no_sense_are_refused(sentence: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=sentence):
        Core(policy=_core.POLICY_PRICE).set_prices(*arguments)


def test_demand_is_what_was_asked_placed_or_not_and_survives_a_dump() -> None:
    world = World(policy=_core.POLICY_PRICE)
    world.node(gpus=1, model=2)
    whole, part = world.shape(gpus=1, models=(2, 5)), world.shape(cpu=3, memory=8, parts=2, part=300)
    world.tasks(["a", "b", "c"], whole)
    world.task("d", part)
    world.task("e", world.shape(cpu=1))
    world.place()
    asked = [(3, 1000, 0, ((GPU, 1, 0, 0, 0b100100),)), (1, 3000, 8 * GIB, ((GPU, 0, 2, 300, 0),))]
    assert (world.core.demand(), world.core.asked) == (asked, 4)
    loaded = Core.load(world.core.dump())
    assert (loaded.demand(), loaded.asked) == (asked, 4)


def test_supply_is_what_could_be_used() -> None:
    world = World()
    world.node(gpus=2, model=1)
    world.node(gpus=4)
    closed = world.node(gpus=8, model=1)
    world.do("open_node", closed, False)
    world.do("set_device_usable", 0, 1, False)
    assert world.core.supply() == {(GPU, 1): 1000, (GPU, -1): 4000}


def test_history_counts_as_asked() -> None:
    world = World()
    shape = world.shape(gpus=1)
    world.do("know", shape, 70)
    assert (world.core.asked, world.core.demand()[0][0]) == (70, 70)
