"""The weighted order: 0.4 urgency + 0.3 match + 0.3 historical efficiency."""

from __future__ import annotations

from hetsched import _core
from hetsched._core import Core

from .world import World

SECOND_NS = 10**9


def world() -> World:
    world = World()
    world.do("set_order", _core.ORDER_WEIGHTED)
    world.node(cpu=1, memory=64)
    return world


def order_of(world: World, *tasks: int) -> list[int]:
    """In which order they get the one core."""
    got: list[int] = []
    for _ in tasks:
        world.tick()
        world.place()
        now = next(task for task in tasks if world.where(task) is not None and task not in got)
        got.append(now)
        world.core.ended(now, _core.SUCCEEDED, 0)
    return got


def test_little_time_left_goes_first_whatever_the_priority() -> None:
    here = world()
    shape = here.shape(cpu=1)
    calm = here.task("calm", shape, priority=900)
    soon = here.task("soon", shape, deadline_ns=here.now_ns + 5 * SECOND_NS)
    later = here.task("later", shape, deadline_ns=here.now_ns + 50 * SECOND_NS)
    assert order_of(here, calm, soon, later) == [soon, later, calm]


def ran(here: World, template: int, efficiency_milli: int) -> None:
    here.do("set_expectation", template, efficiency_milli=efficiency_milli)
    here.do("set_template", template, expectation=template)


def test_what_ran_efficiently_goes_first_and_the_unknown_count_as_eight_tenths() -> None:
    here = world()
    ran(here, 1, 900)
    ran(here, 2, 700)
    tasks = [
        here.task(name, here.shape(cpu=1, memory=0), template=template)
        for name, template in (("poor", 2), ("unknown", 0), ("good", 1))
    ]
    assert order_of(here, *tasks) == [tasks[2], tasks[1], tasks[0]]


def test_urgency_outweighs_efficiency_only_when_it_is_great() -> None:
    here = world()
    ran(here, 1, 1000)
    far = here.task("far", here.shape(cpu=1), deadline_ns=here.now_ns + 100 * SECOND_NS)
    good = here.task("good", here.shape(cpu=1), template=1)
    assert order_of(here, far, good) == [good, far]


def test_levels_stay_levels() -> None:
    here = world()
    shape = here.shape(cpu=1)
    low = here.task("low", shape, qos=2, deadline_ns=here.now_ns)
    high = here.task("high", shape, qos=1)
    assert order_of(here, low, high) == [high, low]


def test_the_order_is_changed_in_a_running_core_and_kept_in_its_dump() -> None:
    here = World()
    shape = here.shape(cpu=1)
    for at in range(20):
        here.task(f"task-{at}", shape, priority=at % 3, deadline_ns=here.now_ns + (at * 7 % 5) * SECOND_NS)
    here.do("set_order", _core.ORDER_WEIGHTED)
    here.core.check()
    here.tick()
    loaded = Core.load(here.core.dump(), checked=True)
    assert loaded.digest() == here.core.digest() == here.replay().digest()
