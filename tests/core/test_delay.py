"""A task that has to wait before it may evict."""

from __future__ import annotations

from hetsched import _core

from .test_gang_claims import full_world, victims
from .world import CRITICAL

SECOND_NS = 10**9


def test_nobody_is_stopped_before_the_delay_is_over() -> None:
    world, _ = full_world()
    world.do("set_preemption_delay", 30 * SECOND_NS)
    world.task("boss", world.shape(gpus=2), qos=CRITICAL)
    world.place()
    assert victims(world) == []
    assert world.core.next_ns() == world.now_ns + 30 * SECOND_NS
    assert not world.core.time_told()
    world.tick(30 * SECOND_NS)
    assert world.core.time_told()
    world.place()
    assert len(victims(world)) == 2


def test_room_that_comes_by_itself_is_taken_at_once() -> None:
    world, soft = full_world()
    world.do("set_preemption_delay", 30 * SECOND_NS)
    boss = world.task("boss", world.shape(gpus=1), qos=CRITICAL)
    world.place()
    world.core.ended(soft[0], _core.SUCCEEDED, 0)
    assert world.place() == 1
    assert world.state(boss) == _core.PLACED


def test_a_queue_may_say_another_and_those_below_it_inherit_it() -> None:
    world, _ = full_world()
    world.do("set_preemption_delay", 30 * SECOND_NS)
    above = world.do("add_queue", _core.NONE, 1)
    below = world.do("add_queue", above, 1)
    world.do("set_preemption_delay", 0, above)
    world.task("patient", world.shape(gpus=1), qos=CRITICAL)
    world.task("boss", world.shape(gpus=1), qos=CRITICAL, queue=below)
    world.place()
    assert len(victims(world)) == 1


def test_a_gang_waits_from_its_last_member_on() -> None:
    world, _ = full_world()
    world.do("set_preemption_delay", 30 * SECOND_NS)
    shape = world.shape(gpus=1)
    gang = world.do("add_gang", 2, 2, -1)
    world.task("first", shape, qos=CRITICAL, gang=gang)
    world.tick(20 * SECOND_NS)
    world.task("second", shape, qos=CRITICAL, gang=gang)
    world.place()
    world.tick(20 * SECOND_NS)
    world.place()
    assert victims(world) == []
    world.tick(10 * SECOND_NS)
    world.core.time_told()
    world.place()
    assert len(victims(world)) == 2
