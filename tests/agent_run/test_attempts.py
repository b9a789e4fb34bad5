"""The table of attempts: orders and news in, effects out."""

from __future__ import annotations

from hetsched import wire
from hetsched.agent.attempts import Attempt, Attempts, Begin, Bury, Forget, Halt, Hold, Key, Outcome, Phase, Say
from tests.agent_run.bench import order

T1 = Key("t", 1)
GOOD = Outcome(True, 0, "")


def running() -> Attempts:
    table = Attempts()
    table.start(order("t", "true"))
    table.started(T1, pid=42, at=1.0)
    return table


def test_a_start_begins_once_however_often_it_comes() -> None:
    table = Attempts()
    first = order("t", "true")
    assert table.start(first) == [Begin(first)]
    assert table.start(first) == []
    assert table.started(T1, pid=42, at=1.0) == [Say(wire.Started("t", 1, 42))]
    assert table.start(first) == [Say(wire.Started("t", 1, 42))]
    table.ended(T1, GOOD)
    assert table.start(first) == [Say(wire.Ended("t", 1, True, 0, ""))]


def test_a_stop_of_an_unknown_attempt_leaves_a_tombstone_that_refuses_a_late_start() -> None:
    table = Attempts()
    never = wire.Ended("t", 1, False, None, "never started")
    assert table.stop(T1, "cancelled", 5.0) == [Bury(T1, Outcome(False, None, "never started")), Say(never)]
    assert table.start(order("t", "true")) == [Say(never)]


def test_a_stop_of_a_running_attempt_goes_to_its_shim() -> None:
    assert running().stop(T1, "preempted", 3.0) == [Halt(T1, "preempted", 3.0)]


def test_an_end_is_said_until_it_is_settled_and_settled_once() -> None:
    table = running()
    assert table.ended(T1, GOOD) == [Say(wire.Ended("t", 1, True, 0, ""))]
    assert table.ended(T1, Outcome(False, 1, "exit 1")) == []
    assert table.unsettled() == [wire.Ended("t", 1, True, 0, "")]
    assert [state.state for state in table.states()] == ["ended"]
    assert table.settle(T1) == [Forget(T1)]
    assert table.settle(T1) == []
    assert table.unsettled() == [] and table.states() == ()


def test_news_of_a_start_after_the_end_changes_nothing() -> None:
    table = Attempts()
    table.start(order("t", "true"))
    table.ended(T1, GOOD)
    assert table.started(T1, pid=42, at=1.0) == []


def test_attempts_of_one_task_are_different_attempts() -> None:
    table = running()
    table.start(order("t", "true", attempt=2))
    assert table.latest("t") == Key("t", 2)
    assert table.latest("other") is None
    assert {(s.attempt, s.state) for s in table.states()} == {(1, "running"), (2, "running")}


def test_a_held_attempt_succeeds_when_its_time_is_over() -> None:
    table = Attempts()
    first = order("t", duration_s=10.0)
    assert table.start(first) == [Hold(first)]
    table.held(T1, until_ns=1000, at=1.0)
    assert table.wake_ns(5000) == 1000
    assert table.tick(999, 5000) == []
    assert table.tick(1000, 5000) == [Bury(T1, Outcome(True)), Say(wire.Ended("t", 1, True, None, ""))]
    assert table.wake_ns(5000) is None


def test_a_held_attempt_ends_with_the_lease_unless_its_time_was_over_before() -> None:
    table = Attempts()
    table.start(order("long", duration_s=10.0))
    table.start(order("short", duration_s=1.0))
    table.start(order("open"))
    table.held(Key("long", 1), until_ns=9000, at=1.0)
    table.held(Key("short", 1), until_ns=1000, at=1.0)
    table.held(Key("open", 1), until_ns=None, at=1.0)
    assert table.wake_ns(5000) == 1000
    ended = {effect.message.task: effect.message.reason for effect in table.tick(9500, 5000) if isinstance(effect, Say)}
    assert ended == {"long": "lease", "short": "", "open": "lease"}


def test_a_held_attempt_stops_at_once() -> None:
    table = Attempts()
    table.start(order("t"))
    table.held(T1, until_ns=None, at=1.0)
    assert table.stop(T1, "cancelled", 5.0) == [
        Bury(T1, Outcome(False, None, "cancelled")),
        Say(wire.Ended("t", 1, False, None, "cancelled")),
    ]


def test_what_is_adopted_is_told_in_the_next_hello() -> None:
    table = Attempts()
    table.adopt(Attempt(T1, Phase.running, pid=5))
    table.adopt(Attempt(Key("u", 3), Phase.ended, outcome=Outcome(False, 1, "exit 1")))
    assert [(s.task, s.state, s.reason) for s in table.states()] == [("t", "running", ""), ("u", "ended", "exit 1")]
    table.check()
