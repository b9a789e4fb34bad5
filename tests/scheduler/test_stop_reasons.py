"""Told to stop, a task may end in many ways within its grace: the reason for which it was told stays the reason of its end."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.scheduler import messages as m
from tests.scheduler.build import Story, node, task

ENDS = ["exit 1", "signal 15", "lease", "lost_shim", "node_rebooted", "never started", "cannot_start: policy", ""]


def running(**extra: Any) -> Story:
    """A task `t` that runs on one of two devices."""
    story = Story([node("n1", gpus=2)])
    story.submit(task("t", resources={"gpu": 1}, qos="best_effort", retries=3, **extra))
    story.wait(1)
    assert story.state("t") == "running"
    return story


def told_to_stop(reason: str) -> Story:
    story = running(**({"time_limit": 5} if reason == "time_limit" else {}))
    if reason == "time_limit":
        story.wait(6)
    elif reason == "cancelled":
        story.ask(m.Cancel(ids=("t",)))
    elif reason == "operator":
        story.ask(m.Operate(verb="requeue", task="t"))
    elif reason == "device_failed":
        device = story.task("t")["placement"]["devices"][0]["id"]
        story.step(m.DeviceHealth(node="n1", device=device, health="failed"))
    elif reason == "preempted":
        story.submit(task("urgent", resources={"gpu": 2}, qos="critical"))
    assert story.state("t") == "stopping"
    return story


def last(story: Story) -> tuple[str, str]:
    event = [
        event for event in story.events if event.task == "t" and event.event not in ("queued", "placed", "running")
    ][-1]
    return event.event, event.data["reason"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("reason", "event"),
    [
        ("time_limit", "failed"),
        ("cancelled", "cancelled"),
        ("operator", "requeued"),
        ("device_failed", "requeued"),
        ("preempted", "requeued"),
    ],
)
def test_however_it_ends_in_its_grace_the_reason_is_that_of_the_stop(reason: str, event: str, end: str) -> None:
    story = told_to_stop(reason)
    story.end("t", ok=False, reason=end)
    assert last(story) == (event, reason)
    told = story.task("t")
    assert told["attempts"][0]["reason"] == reason
    assert "backoff" not in story.names("t"), "no retry is used up"
    if event == "failed":
        assert (told["state"], told["reason"]) == ("failed", "time_limit")
    assert story.replayed().digest() == story.scheduler.digest()


@pytest.mark.parametrize("reason", ["time_limit", "operator", "device_failed", "preempted"])
def test_who_has_done_its_work_when_the_stop_comes_has_succeeded(reason: str) -> None:
    story = told_to_stop(reason)
    story.end("t")
    assert story.state("t") == "succeeded"


@pytest.mark.parametrize("end", ["exit 1", "time_limit"])
def test_over_its_limit_it_is_tried_again_for_that_where_it_wants(end: str) -> None:
    story = running(time_limit=5, retry_on=["time_limit"])
    story.wait(6)
    story.end("t", ok=False, reason=end)
    assert last(story) == ("backoff", "time_limit")


@pytest.mark.parametrize("reason", ["operator", "device_failed", "preempted"])
def test_who_was_over_its_limit_before_its_stop_came_fails_for_that(reason: str) -> None:
    """The shim looks at the limit itself, and it may be first."""
    story = told_to_stop(reason)
    story.end("t", ok=False, reason="time_limit")
    assert last(story) == ("failed", "time_limit")


def test_who_is_cancelled_while_it_stops_for_something_else_is_cancelled() -> None:
    story = told_to_stop("time_limit")
    assert story.ask(m.Cancel(ids=("t",)))["cancelled"] == ["t"]
    story.end("t", ok=False, reason="time_limit")
    assert last(story) == ("cancelled", "cancelled")


def test_who_stops_already_is_not_told_another_reason() -> None:
    story = told_to_stop("time_limit")
    device = story.task("t")["placement"]["devices"][0]["id"]
    story.step(m.DeviceHealth(node="n1", device=device, health="failed"))
    story.submit(task("urgent", resources={"gpu": 1}, qos="critical"))
    story.wait(1)
    story.end("t", ok=False, reason="exit 1")
    assert last(story) == ("failed", "time_limit")


def test_a_node_that_is_lost_takes_its_tasks_with_it_whatever_they_were_told() -> None:
    story = told_to_stop("time_limit")
    story.step(m.NodeLost(node="n1"))
    assert last(story) == ("requeued", "node_lost")


def test_a_drain_stops_nobody_and_a_failure_then_is_the_tasks_own() -> None:
    story = running()
    story.ask(m.OperateNode(verb="drain", node="n1"))
    assert story.state("t") == "running"
    story.end("t", ok=False, reason="exit 1")
    assert last(story) == ("backoff", "exit 1")


def test_an_attempt_that_ended_with_its_lease_is_queued_again() -> None:
    story = running()
    story.end("t", ok=False, reason="lease")
    assert last(story) == ("requeued", "lost_attempt")


@pytest.mark.parametrize("retry_on", [[], ["time_limit"]])
def test_members_of_a_gang_that_are_all_over_their_limit_all_fail_for_that(retry_on: list[str]) -> None:
    """The first that fails for good cancels the others, but for those that fail for the same reason anyway."""
    story = Story([node("n1")])
    body = {"gang": {"id": "g", "size": 3}, "time_limit": 5, "retries": 0, "retry_on": retry_on}
    story.submit([task(f"g-{at}", **body) for at in range(3)])
    story.wait(7)
    for at in range(3):
        assert story.state(f"g-{at}") == "stopping"
        story.end(f"g-{at}", ok=False, reason="exit 1")
    others = ("cancelled", "cancelled") if retry_on else ("failed", "failed")
    assert tuple(story.state(f"g-{at}") for at in range(3)) == ("failed", *others)
    assert story.task("g-0")["attempts"][0]["reason"] == "time_limit"
    if not retry_on:
        assert {story.task(f"g-{at}")["reason"] for at in range(3)} == {"time_limit"}


def test_who_stops_for_its_limit_when_its_gang_ends_does_not_go_on_alone_where_its_node_is_lost() -> None:
    """Found by simulation (calm, seed 63019): a member was cancelled meanwhile, and the other one was queued again without it."""
    story = Story([node("n1", cpu=1), node("n2", cpu=1)])
    story.submit([task(f"g-{at}", resources={"cpu": 1}, gang={"id": "g", "size": 2}, time_limit=5) for at in range(2)])
    story.wait(7)
    place = story.node_of("g-0")
    assert place is not None and place != story.node_of("g-1")
    story.ask(m.Cancel(ids=("g-1",)))
    story.end("g-1", ok=False, reason="exit 1")
    assert (story.state("g-0"), story.state("g-1")) == ("stopping", "cancelled")
    story.step(m.NodeLost(node=place))
    assert story.state("g-0") == "cancelled"


def test_members_of_a_gang_that_are_lost_with_their_node_all_fail_for_that_where_they_are_to() -> None:
    story = Story([node("n1")])
    story.submit([task(f"g-{at}", gang={"id": "g", "size": 3}, on_lost="fail") for at in range(3)])
    story.wait(1)
    story.step(m.NodeLost(node="n1"))
    assert {(story.state(f"g-{at}"), story.task(f"g-{at}")["reason"]) for at in range(3)} == {("failed", "node_lost")}


def test_a_gang_below_its_least_is_queued_again_for_that_however_its_members_end() -> None:
    story = Story([node("n1", cpu=1), node("n2", cpu=1), node("n3", cpu=1)], config={"gang": {"repair": 10}})
    story.submit([task(name, gang={"id": "g", "size": 3, "min_size": 2}) for name in ("t", "u", "v")])
    story.wait(1)
    homes = {story.node_of(name): name for name in ("u", "v")}
    for home in homes:
        story.step(m.NodeLost(node=str(home)))
    story.wait(12)
    assert story.state("t") == "stopping"
    story.end("t", ok=False, reason="exit 1")
    assert last(story) == ("requeued", "gang")
