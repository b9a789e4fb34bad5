"""The simulated fleet's books: what begins twice and what is given away twice is seen, however it is told."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hetsched import wire
from hetsched.model.ids import Ids
from loadtest.ledger import Batch, Begun, Names, Shares, batch_of, batch_of_one, joined

DEVICES = ("gpu-0", "gpu-1")


def starts(*tasks: tuple[str, int, list[tuple[int, int]]], likes: list[int] | None = None) -> wire.Starts:
    """(id, attempt, (device, share) pairs) of each."""
    like = wire.Start(0, 1, "", 0, (), 1000, 1, duration_s=1.0)
    return wire.Starts(
        1,
        1,
        DEVICES,
        (like, like),
        np.array(likes or [0] * len(tasks), np.uint16).tobytes(),
        Ids.of([task for task, _, _ in tasks]),
        np.array([attempt for _, attempt, _ in tasks], np.uint16).tobytes(),
        b"".join(bytes([len(held)]) + b"".join(struct.pack("<BH", *one) for one in held) for _, _, held in tasks),
    )


def batch(*tasks: tuple[str, int, list[tuple[int, int]]], likes: list[int] | None = None) -> Batch:
    return batch_of(starts(*tasks, likes=likes), NAMES)[0]


NAMES = Names("run")


def test_an_attempt_begins_once() -> None:
    begun = Begun()
    first = batch(("run.0.1", 1, []), ("run.0.2", 1, []), ("other", 1, []), ("run.1.1", 1, []))
    assert not begun.begin(first.keys, first.attempts).any()
    assert begun.begin(first.keys, first.attempts).all()
    later = batch(("run.0.1", 2, []), ("run.0.9", 1, []), ("run.0.9", 1, []), ("other", 1, []))
    assert begun.begin(later.keys, later.attempts).tolist() == [False, False, True, True]
    stale = batch(("run.0.1", 1, []))
    assert begun.begin(stale.keys, stale.attempts).all()


def test_devices_are_given_away_once_over_and_no_more() -> None:
    shares = Shares(2)
    halves = batch(("run.0.1", 1, [(0, 500)]), ("run.0.2", 1, [(0, 500)]), ("run.0.3", 1, [(1, 500)]))
    assert shares.take(halves) == 0
    assert shares.take(batch(("run.0.4", 1, [(1, 501)]))) == 1
    shares.give(halves.part(np.array([0, 2])))
    assert shares.take(batch(("run.0.5", 1, [(0, 500)]))) == 0
    assert shares.take(batch_of_one(wire.Start(1, 1, "x", 1, (("gpu-0", 1),), 1, 1), DEVICES, NAMES)) == 1


def test_tasks_with_and_without_devices_share_an_order() -> None:
    mixed = batch(
        ("a-1", 1, []),
        ("a-2", 1, [(0, 1000), (1, 1000)]),
        ("a-3", 1, []),
        ("b", 1, [(1, 7), (0, 9)]),
        likes=[0, 1, 0, 1],
    )
    assert mixed.owners.tolist() == [1, 1, 3, 3]
    assert list(zip(mixed.devices.tolist(), mixed.shares.tolist(), strict=True)) == [
        (0, 1000),
        (1, 1000),
        (1, 7),
        (0, 9),
    ]
    some = mixed.part(np.array([0, 3]))
    assert (list(some.ids.each()), some.owners.tolist(), some.shares.tolist()) == (["a-1", "b"], [1, 1], [7, 9])


def test_one_is_taken_out_of_many() -> None:
    many = batch(("a-1", 1, [(0, 10)]), ("a-2", 1, [(0, 20)]), ("a-3", 2, [(1, 30)]))
    (key,) = NAMES.keys(Ids.of(["a-2"])).tolist()
    assert many.without(key, 2) is None
    parted = many.without(key, 1)
    assert parted is not None
    rest, one = parted
    assert (list(rest.ids.each()), rest.shares.tolist(), rest.owners.tolist()) == (["a-1", "a-3"], [10, 30], [0, 1])
    assert (list(one.ids.each()), one.shares.tolist()) == (["a-2"], [20])


@pytest.mark.parametrize("heads", [["a-"], ["a-", "b-"], ["x", "a-", "c-"]])
def test_what_was_apart_is_told_together(heads: list[str]) -> None:
    batches = [batch(*((f"{head}{at}", at + 1, []) for at in range(3))) for head in heads]
    ids, attempts = joined([*batches, batches[0]])
    wanted = [f"{head}{at}" for head in [*heads, heads[0]] for at in range(3)]
    assert list(ids.each()) == wanted
    assert np.frombuffer(attempts, np.uint16).tolist() == [1, 2, 3] * (len(heads) + 1)
