"""A task that waits rather than spoil a device says so, for how long, and is woken when that is over."""

from __future__ import annotations

from tests.scheduler.build import SECOND, Story

NODES = [
    {"name": "big", "cpu": 64, "labels": {"size": "big"}, "devices": [{"kind": "gpu", "count": 20}]},
    {"name": "last", "cpu": 8, "devices": [{"kind": "gpu", "count": 1}]},
]


def scarce() -> Story:
    """`big` is full, capacity is priced, and `wide` would leave 0.3 of the last device to nobody."""
    story = Story(NODES, config={"batch": {"max_wait": 0, "size": 1}, "policy": {"patience": 60}})
    half = {"id": "half", "node_selector": {"size": "big"}, "resources": {"gpu": 0.5}}
    story.submit({"template": half, "count": 40})
    story.submit({"template": {"id": "never", "resources": {"gpu": 30}}, "count": 10})
    story.submit({"id": "wide", "resources": {"gpu": 0.7}})
    return story


def test_it_says_that_it_waits_by_choice_and_for_how_long() -> None:
    story = scarce()
    story.wait(20)
    told = story.scheduler.view.explain("wide")
    assert (told["reason"], told["numbers"]) == ("patience", {"seconds": 40.0, "patience": 60.0})
    assert "40 s more" in told["detail"]


def test_it_is_woken_when_patience_is_over() -> None:
    story = scarce()
    story.wait(59.9)
    assert story.state("wide") == "queued"
    story.wait(0.1)
    assert story.node_of("wide") == "last"


def test_a_restart_starts_no_new_wait() -> None:
    story = scarce()
    story.wait(20)
    again = story.replayed()
    again.step([], story.now_ns + 39 * SECOND)
    assert again.view.task("wide")["state"] == "queued"
    again.step([], story.now_ns + 40 * SECOND)
    assert again.view.task("wide")["placement"]["node"] == "last"
