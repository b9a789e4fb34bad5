"""Bytes that are computed for 64 shapes at once are those that one shape alone gets, whatever the amounts: check() compares them."""

from __future__ import annotations

import random

import pytest

from hetsched import _core
from hetsched._core import Core

PLAIN = {
    "fragment": _core.POLICY_FRAGMENT,
    "pack": _core.POLICY_PACK,
    "spread": _core.POLICY_SPREAD,
    "first-fit": _core.POLICY_FIRST_FIT,
    "best-fit": _core.POLICY_BEST_FIT,
}
CORES = (0, 1, 999, 1000, 3000, 96_000, 1 << 30, 1 << 53)  # millicores
BYTES = (0, 1, (1 << 20) - 1, 1 << 20, 3 << 29, 385 << 30, (1 << 53) - 1, 1 << 53)


def amounts(chance: random.Random, of: tuple[int, ...]) -> int:
    amount = chance.choice(of)
    return chance.choice((amount, amount, amount // 2, amount // 3))


def made(preset: str, chance: random.Random, kinds: int) -> Core:
    """Nodes of all sizes, some without devices, and more shapes than one tree has columns."""
    core = Core(policy=PLAIN[preset])
    queue = core.add_queue(_core.NONE, 1)
    core.begin(1)
    for _ in range(30):
        devices = [(chance.randrange(kinds), -1, -1, -1, -1) for _ in range(chance.choice((0, 1, 2, 8, 64)))]
        core.add_node(amounts(chance, CORES), amounts(chance, BYTES), devices)
    for number in range(70):
        kind, part = chance.randrange(kinds), chance.randint(1, 999)
        asks = chance.choice(([], [(kind, chance.choice((1, 1, 2, 8, 70)), 0, 0, 0, ())], [(kind, 0, 1, part, 0, ())]))
        shape = core.add_shape(amounts(chance, CORES[:6]), amounts(chance, BYTES[:6]), asks, 0)
        keys = [b"%d-%d" % (number, at) for at in range(chance.randint(1, 4))]
        core.accept(
            keys,
            template=0,
            shape=shape,
            queue=queue,
            qos=chance.randrange(4),
            flags=0,
            submitted_ns=1,
            deadline_ns=_core.NEVER_NS,
        )
    return core


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("preset", PLAIN)
def test_shapes_scored_side_by_side_get_the_bytes_that_each_gets_alone(preset: str, kinds: int) -> None:
    for seed in range(12):
        core = made(preset, random.Random(seed), kinds)
        assert core.decide(15, False) > 0
        core.check()
        for task in core.page(-1, 1000, 1 << _core.PLACED)[::2]:
            core.ended(task, _core.SUCCEEDED, 0)
        core.decide(15, False)
        core.check()


def prices(core: Core, kind: int, chance: random.Random) -> None:
    values = sorted(chance.choices(range(1001), k=1000))
    apart = sorted(chance.choices(range(4001), k=chance.randint(0, 65)), reverse=True)
    rates = [chance.choice((0, 1, 100, 95_000, 1 << 20, 1 << 30)) for _ in range(2)]
    wide = sorted(chance.choices(range(4001), k=chance.choice((0, 1, 9, 65))))
    core.set_prices(kind, [0, *values], [(chance.randrange(3), chance.randrange(1001))], *rates, apart, wide)


def priced(chance: random.Random) -> Core:
    """Models that are wanted, kinds asked for together, parts beside wholes, a limit on what may strand."""
    core = Core(policy=_core.POLICY_PRICE)
    core.set_strand_limit(chance.choice((0, 0, 1, 40, 1000)))
    queue = core.add_queue(_core.NONE, 1)
    core.begin(1)
    for _ in range(30):
        devices = [
            (chance.randrange(2), chance.randrange(-1, 3), -1, -1, -1) for _ in range(chance.choice((0, 1, 2, 8, 64)))
        ]
        core.add_node(amounts(chance, CORES), amounts(chance, BYTES), devices)
    for number in range(70):
        whole, parts = chance.choice(((1, 0), (1, 0), (4, 0), (0, 1), (0, 1), (0, 3), (2, 1)))
        kinds = chance.choice(([], [0], [0], [1], [0, 1]))
        asks = [
            (
                kind,
                whole,
                parts,
                chance.randint(1, 999) if parts else 0,
                0,
                frozenset(chance.choice(((), (), (1,), (0, 2)))),
            )
            for kind in kinds
        ]
        shape = core.add_shape(amounts(chance, CORES[:6]), amounts(chance, BYTES[:6]), asks, 0)
        keys = [b"%d-%d" % (number, at) for at in range(chance.randint(1, 4))]
        core.accept(keys, template=0, shape=shape, queue=queue, qos=chance.randrange(4), flags=0, submitted_ns=1)
    return core


def test_prices_are_the_same_side_by_side_and_one_by_one() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        core = priced(chance)
        assert core.decide(15, False) > 0
        for _ in range(3):
            core.check()
            for kind in range(2):
                prices(core, kind, chance)
            for task in core.page(-1, 1000, 1 << _core.PLACED)[::2]:
                core.ended(task, _core.SUCCEEDED, 0)
            core.decide(15, False)
        core.check()


def test_columns_are_told_that_another_preset_decides() -> None:
    """What is plain to one is not to another."""
    for seed in range(8):
        chance = random.Random(seed)
        core = priced(chance)
        core.decide(15, False)
        for policy in (_core.POLICY_PACK, _core.POLICY_PRICE, _core.POLICY_FRAGMENT):
            core.set_policy(policy)
            for task in core.page(-1, 1000, 1 << _core.PLACED)[::2]:
                core.ended(task, _core.SUCCEEDED, 0)
            core.decide(15, False)
            core.check()


def test_a_level_of_nought_rules_a_node_out_for_a_shape_that_is_plain_otherwise() -> None:
    core = Core(policy=_core.POLICY_PACK)
    core.begin(1)
    queue = core.add_queue(_core.NONE, 1)
    nodes = [core.add_node(4000, 1 << 30, []) for _ in range(2)]
    shape = core.add_shape(1000, 0, [], 0)
    core.set_shape_node(shape, nodes[0], 0)
    core.accept([b"a", b"b"], template=0, shape=shape, queue=queue, qos=1, flags=0, submitted_ns=1)
    assert core.decide(15, False) == 2
    core.check()
    assert [core.placement(task).node for task in core.page(-1, 10, 1 << _core.PLACED)] == [nodes[1]] * 2  # type: ignore[union-attr]


def test_the_next_of_those_who_are_blocked_goes_first_once_shares_have_moved() -> None:
    """Without backfill: the queue that got nothing goes before the one that just got a task, though neither head is new."""
    core = Core(policy=_core.POLICY_PACK)
    core.set_backfill(False)
    core.begin(1)
    one, other = core.add_queue(_core.NONE, 1), core.add_queue(_core.NONE, 1)
    core.add_node(3000, 1 << 30, [])
    small, large = core.add_shape(1000, 0, [], 0), core.add_shape(3000, 0, [], 0)
    core.accept(
        [b"holds"], template=0, shape=small, queue=core.add_queue(_core.NONE, 1), qos=1, flags=0, submitted_ns=1
    )
    assert core.decide(15, False) == 1
    core.accept([b"a", b"b"], template=0, shape=small, queue=one, qos=2, flags=0, submitted_ns=1)
    core.accept([b"wide"], template=0, shape=large, queue=other, qos=2, flags=0, submitted_ns=1)
    assert core.decide(15, False) == 1  # the first of `one`; then `other` has less, and what it asks for is kept for it
    core.check()
    assert core.decide(15, False) == 0
