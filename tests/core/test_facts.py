"""Facts: the same records, the same tables; a dump is the tables."""

from __future__ import annotations

import random

import pytest

from hetsched import _core
from hetsched._core import Core, split_facts

from .world import CRITICAL, World


def test_a_turn_is_the_first_record_and_only_of_turns_that_have_one() -> None:
    core = Core()
    core.begin(5)
    core.begin(7)
    assert core.take_facts() == b""
    core.words(3, b"hello")
    core.words(4, b"")
    facts = core.take_facts()
    assert [record for _, _, record in split_facts(facts)] == [
        (_core.F_TURN, 7),
        (_core.F_WORDS, 3, b"hello"),
        (_core.F_WORDS, 4, b""),
    ]


def test_facts_are_compact() -> None:
    world = World()
    world.node(gpus=1)
    task = world.task("t", world.shape(gpus=1))
    world.tick()
    sizes = []
    for happens in (lambda: world.place(), lambda: world.run(task), lambda: world.core.ended(task, _core.SUCCEEDED, 0)):
        before = world.core.peek_facts(0)[1]
        happens()
        sizes.append(world.core.peek_facts(0)[1] - before)
    assert sizes[0] - 9 <= 24 and sizes[1] <= 12 and sizes[2] <= 12


def story() -> World:
    """One of everything."""
    world = World()
    world.node(gpus=2)
    soft = world.tasks(["a", "b", "c"], world.shape(gpus=1), qos=2, flags=_core.PREEMPTIBLE)
    world.place()
    world.run(soft[0])
    boss = world.task("boss", world.shape(gpus=1), qos=CRITICAL)
    world.place()
    world.core.unclaim(boss)
    world.core.set_priority(boss, -3)
    world.place()
    world.tick()
    for victim in world.core.page(-1, 9, 1 << _core.STOPPING):
        world.core.requeue(victim, 1, preempted=True, hold=_core.HELD_OPERATOR)
    world.place()
    world.core.ended(soft[2], _core.CANCELLED, 4)
    world.core.forget(soft[2])
    if world.core.placement(boss):
        world.core.back_off(boss, 2)
        world.core.ready(boss)
        world.core.hold(boss, _core.HELD_OPERATOR)
    return world


def test_every_fact_is_replayed() -> None:
    world = story()
    replayed = world.replay()
    codes = {record[0] for frame in world.frames for _, _, record in split_facts(frame)}
    assert codes == set(range(_core.F_TURN, _core.F_FORGOTTEN + 1))
    assert replayed.digest() == world.core.digest()


def test_replay_writes_and_triggers_nothing() -> None:
    world = story()
    replayed = world.replay()
    assert replayed.take_facts() == b""
    assert not replayed.replaying


@pytest.mark.parametrize("cut", range(1, 16))
def test_a_frame_that_is_cut_off_is_refused_by_offset(cut: int) -> None:
    world = World()
    world.node(gpus=1)
    world.task("t", world.shape(gpus=1))
    world.tick()
    world.place()
    facts = world.core.take_facts()
    with pytest.raises(ValueError, match="offset 9"):
        split_facts(facts[:-cut] if cut < 16 else facts)


def test_records_that_contradict_the_tables_are_refused_by_offset() -> None:
    world = World()
    world.node(gpus=1)
    task = world.task("t", world.shape(gpus=1))
    world.place()
    world.core.started(task, 1)
    frame = world.core.take_facts()
    (*_, placed, started) = split_facts(frame)
    other = world.replay()
    for record in (placed, started):
        with pytest.raises(ValueError, match="offset 0"):
            Core().apply(frame[record[0] : record[1]], lambda kind, payload: None)
    with pytest.raises(ValueError, match=r"offset 0.*only a queued task"):
        world.core.apply(frame[placed[0] : placed[1]], lambda kind, payload: None)
    assert other.counts()[_core.QUEUED] == 0


def test_random_bytes_are_refused_and_do_no_harm() -> None:
    rng = random.Random(1)
    world = story()
    for _ in range(3000):
        junk = bytes([rng.randrange(16), rng.randrange(5), 0, 0, 0]) + rng.randbytes(rng.randrange(30))
        try:
            world.core.apply(junk, lambda kind, payload: None)
        except ValueError:
            continue
        world.core.check()


def test_a_dump_is_refused_if_it_is_damaged_or_foreign() -> None:
    dump = story().core.dump()
    with pytest.raises(ValueError, match="no dump"):
        Core.load(b"something else")
    with pytest.raises(ValueError, match="checksum"):
        Core.load(dump[:-9] + b"x" + dump[-8:])
    with pytest.raises(ValueError, match="checksum"):
        Core.load(dump[:-1])


def test_an_empty_core_dumps_and_loads() -> None:
    empty = Core(policy=_core.POLICY_SPREAD, blast_radius=3)
    assert Core.load(empty.dump()).digest() == empty.digest()
