"""Feedback in the turn: predicted when placed, judged at the end, turned, written down, and the same after a restart."""

from __future__ import annotations

from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from tests.scheduler.build import Story, node, task

ON = {"feedback": {"enabled": True}, "overcommit": {"cpu": 2}}


def late(story: Story, count: int, *, seconds: float = 20, name: str = "late") -> None:
    """Tasks that said 10 s end after so many."""
    story.submit({"template": task(name, cpu=1, estimate=10), "count": count})
    story.wait(0.1)
    story.wait(seconds)
    for at in range(count):
        story.end(f"{name}-{at}")


def slow() -> Story:
    story = Story([node("n", cpu=200, gpus=4)], config=ON)
    late(story, 100)
    return story


def test_long_runs_turn_the_knobs_and_people_are_told() -> None:
    story = slow()
    (event,) = [event for event in story.events if event.event == "steered"]
    assert event.data == {"error": 0.99, "gang_share": 0.1, "overcommit": 0.75, "sharers": 4} | {
        "error": event.data["error"]
    }
    assert 0.9 < event.data["error"] < 1.1
    seen = story.scheduler.view.cluster()["feedback"]
    assert (seen["judged"], seen["gang_share"], seen["overcommit"]) == (100, 0.1, 0.75)


def test_what_is_lent_follows() -> None:
    story = slow()
    story.submit(task("owner", cpu=200))
    story.wait(1)
    story.step(m.UseReported(node="n", uses=(m.AttemptUse(task="owner", attempt=1, cpu_milli=0),)))
    assert story.scheduler.view.node("n")["overcommit"]["cpu"]["lendable"] == 150.0


def test_gangs_go_first_from_now_on() -> None:
    story = slow()
    story.submit({"template": task("single", resources={"gpu": 1}), "count": 4})
    story.submit({"template": task("member", resources={"gpu": 1}, gang={"id": "g", "size": 2}), "count": 2})
    story.wait(1)
    assert [story.state(f"member-{at}") for at in range(2)] == ["running"] * 2


def test_a_restart_goes_on_from_there() -> None:
    story = slow()
    late(story, 50, name="more")
    restored = Scheduler.restore(story.config, story.scheduler.snapshot(), seed=1)
    restored.resume()
    again = story.replayed()
    assert again.digest() == restored.digest() == story.scheduler.digest()
    assert again.view.cluster()["feedback"] == story.scheduler.view.cluster()["feedback"]


def test_off_is_off() -> None:
    story = Story([node("n", cpu=200)])
    late(story, 100)
    assert "steered" not in story.names()
    assert "feedback" not in story.scheduler.view.cluster()
