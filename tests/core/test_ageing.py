"""Waiting lifts: a point of priority for each whole minute, at most a hundred, never across qos, never between tasks that came together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hetsched._core import Core

from .world import BEST_EFFORT, GIB, PRODUCTION, World

MINUTE_NS = 60 * 10**9
SECOND_NS = 10**9


class Line:
    """One place, taken; who comes waits. `next` frees it and says who got it."""

    def __init__(self) -> None:
        self.world = World()
        self.world.node(cpu=1)
        self.shape = self.world.shape(cpu=1)
        self.names: dict[int, str] = {}
        self.here = self.come("first")
        self.world.place()

    def come(self, name: str, after_ns: int = 0, **named: Any) -> int:
        if after_ns:
            self.world.tick(after_ns)
        task = self.world.task(name, self.shape, **named)
        self.names[task] = name
        return task

    def next(self, after_ns: int = SECOND_NS) -> str:
        self.world.tick(after_ns)
        self.world.core.ended(self.here, 7, 0)
        self.world.place()
        self.here = next(task for task in self.names if self.world.where(task) is not None)
        return self.names[self.here]


def test_a_minute_of_waiting_is_worth_a_point() -> None:
    line = Line()
    line.come("old")
    line.come("better", 5 * MINUTE_NS - 70 * SECOND_NS, priority=5)
    line.come("too late", 100 * SECOND_NS, priority=5)
    assert [line.next(), line.next(), line.next()] == ["better", "old", "too late"]


@pytest.mark.parametrize("apart_s", [1, 20, 35, 45, 55, 59])
@pytest.mark.parametrize("minutes", [0, 1, 30, 99, 300])
def test_less_than_a_minute_apart_the_deadline_decides_however_long_both_wait(apart_s: int, minutes: int) -> None:
    line = Line()
    line.come("none")
    line.come("due", apart_s * SECOND_NS, deadline_ns=10**15)
    assert [line.next(minutes * MINUTE_NS + SECOND_NS), line.next()] == ["due", "none"]


@pytest.mark.parametrize("apart_s", [60, 75, 130])
@pytest.mark.parametrize("minutes", [3, 30, 99])
def test_a_minute_apart_the_older_goes_before_a_deadline(apart_s: int, minutes: int) -> None:
    line = Line()
    line.come("none")
    line.come("due", apart_s * SECOND_NS, deadline_ns=10**15)
    assert [line.next(minutes * MINUTE_NS - apart_s * SECOND_NS), line.next()] == ["none", "due"]


@pytest.mark.parametrize(("priority", "first"), [(1, "old"), (2, "due"), (3, "due")])
def test_of_equal_points_the_deadline_decides_and_then_the_place(priority: int, first: str) -> None:
    line = Line()
    line.come("old")
    line.come("plain", 130 * SECOND_NS, priority=2)
    line.come("due", SECOND_NS, priority=priority, deadline_ns=10**15)
    got = [line.next(5 * MINUTE_NS), line.next(), line.next()]
    assert got[0] == first and got.index("old") < got.index("plain")


def test_a_class_begins_anew_after_a_pause_however_long_the_last_one_was() -> None:
    """Every 50 s somebody: the minute of one is over at the second after it."""
    line = Line()
    for at in range(6):
        line.come(f"task-{at}", 50 * SECOND_NS, deadline_ns=10**15 - at)
    got = [line.next() for _ in range(6)]
    assert got == ["task-0", "task-2", "task-1", "task-4", "task-3", "task-5"]


def test_tasks_that_came_together_keep_their_order_for_ever() -> None:
    line = Line()
    line.come("plain", SECOND_NS)
    line.come("soon", 9 * SECOND_NS, deadline_ns=10**15)
    line.come("better", 9 * SECOND_NS, priority=1)
    assert [line.next(300 * MINUTE_NS), line.next(), line.next()] == ["better", "soon", "plain"]


@pytest.mark.parametrize("pause_s", [1, 3, 7, 9])
def test_a_stream_without_a_pause_turns_neighbours_round_by_a_point_at_most_and_once_a_minute(pause_s: int) -> None:
    line = Line()
    for at in range(400):
        line.come(f"task-{at:03}", pause_s * SECOND_NS, priority=at % 2 * 2)
    got = [line.next() for _ in range(400)]
    place = {name: at for at, name in enumerate(got)}
    for at in range(0, 399, 2):
        assert place[f"task-{at + 1:03}"] < place[f"task-{at:03}"]


@pytest.mark.parametrize("pause_s", [1, 3, 7, 9])
def test_in_a_stream_deadlines_of_neighbours_are_turned_round_once_a_minute(pause_s: int) -> None:
    line = Line()
    for at in range(400):
        line.come(f"task-{at:03}", pause_s * SECOND_NS, deadline_ns=10**15 - at)
    got = [int(line.next()[-3:]) for _ in range(400)]
    starts = [at for before, at in itertools.pairwise(got) if at > before]
    assert len(starts) <= 400 * pause_s // 60
    assert all(sorted(got[:count]) == list(range(count)) for count in range(1, 401) if count - 1 in starts)


def test_the_lift_ends_at_a_hundred() -> None:
    line = Line()
    line.come("old", SECOND_NS)
    line.come("less old", 30 * MINUTE_NS, deadline_ns=10**18)
    line.come("far above", 150 * MINUTE_NS, priority=101)
    line.come("just reached", SECOND_NS, priority=99)
    assert [line.next(), line.next(), line.next(), line.next()] == ["far above", "less old", "old", "just reached"]


def test_no_waiting_lifts_into_another_level() -> None:
    line = Line()
    line.come("humble", qos=BEST_EFFORT)
    line.come("urgent", 1000 * MINUTE_NS, qos=PRODUCTION, priority=-1000)
    assert [line.next(), line.next()] == ["urgent", "humble"]


def test_lanes_of_different_shapes_are_compared_by_the_same_age() -> None:
    line = Line()
    line.come("old")
    line.shape = line.world.do("add_shape", 1000, GIB, [], 0)
    line.come("young", 3 * MINUTE_NS, priority=2)
    line.come("high", SECOND_NS, priority=200)
    assert line.next(400 * MINUTE_NS) == "high"
    assert [line.next(), line.next()] == ["young", "old"]


def test_who_is_loaded_or_replayed_goes_on_in_the_same_order() -> None:
    line = Line()
    for at in range(60):
        line.come(f"task-{at}", (at % 7) * 20 * SECOND_NS + 1, priority=at * 7 % 5, deadline_ns=10**15 + at * 3 % 11)
    line.world.tick(120 * MINUTE_NS)
    line.world.place()
    line.world.tick()
    loaded = Core.load(line.world.core.dump(), checked=True)
    assert loaded.digest() == line.world.core.digest()
    live, again = [core.page(-1, 100, 2) for core in (line.world.core, loaded)]
    assert [line.world.core.ahead(task) for task in live] == [loaded.ahead(task) for task in again]
    assert line.world.replay().digest() == line.world.core.digest()
