"""A restart applies facts and decides nothing: the state that comes of it is the state that was."""

from __future__ import annotations

import random

import msgspec
import pytest

from hetsched._core import Room
from hetsched.daemon.clock import Clock
from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from hetsched.scheduler.snapshot import bin_head
from tests.scheduler.build import SECOND, Story, node, task


def eventful(seed: int, turns: int = 150) -> Story:
    """A world in which much happens, the same for the same seed."""
    rng = random.Random(seed)
    story = Story(
        [node("a", gpus=2), node("b", cpu=4), node("c", gpus=1, labels={"rack": "r1"})],
        config={"limits": {"retention_tasks": 20}, "batch": {"size": 4}},
    )
    story.queue(name="q", limit={"cpu": 6})
    for turn in range(turns):
        _something(rng, story, f"t{seed}-{turn}")
        story.wait(rng.choice([0, 0.05, 1, 3]))
    return story


def _something(rng: random.Random, story: Story, name: str) -> None:
    dice = rng.random()
    live = [t["id"] for t in story.scheduler.view.tasks(state="running,stopping", limit=1000)["tasks"]]
    known = [t["id"] for t in story.scheduler.view.tasks(limit=1000)["tasks"]]
    if dice < 0.5:
        body = task(name, cpu=rng.choice([1, 2]), qos=rng.choice(["critical", "production", "background"]))
        body["resources"]["gpu"] = rng.choice([0, 0, 0.5, 1, 2])
        body["queue"] = rng.choice(["default", "q", "q/x"])
        if known and rng.random() < 0.2:
            body["after"] = [rng.choice(known)]
        if rng.random() < 0.2:
            body["deadline"], body["on_deadline"] = 5, "expire"
        story.submit({"template": body, "count": rng.choice([1, 3])})
    elif dice < 0.75 and live:
        story.end(rng.choice(live), ok=rng.random() < 0.7, reason="exit 1")
    elif dice < 0.85 and known:
        story.ask(m.Cancel(ids=(rng.choice(known),)))
    elif dice < 0.9:
        story.step(m.DeviceHealth(node="a", device="gpu-1", health=rng.choice(["healthy", "failed"])))
    elif dice < 0.95 and known:
        story.ask(m.Operate(verb=rng.choice(["hold", "release", "priority"]), task=rng.choice(known), priority=7))
    else:
        story.submit([task(f"{name}-g{i}", gang={"id": name, "size": 2}) for i in range(2)])


@pytest.mark.parametrize("seed", range(6))
def test_replay_equals_live(seed: int) -> None:
    story = eventful(seed)
    again = story.replayed()
    again.core.check()
    assert again.digest() == story.scheduler.digest()


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_and_the_frames_after_it_equal_live(seed: int) -> None:
    story = eventful(seed, 60)
    state = story.scheduler.snapshot()
    begin = len(story.frames)
    for turn in range(60):
        _something(random.Random(turn), story, f"more-{turn}")
        story.wait(0.1)
    again = Scheduler.restore(story.config, state, seed=1)
    for frame in story.frames[begin:]:
        again.apply(frame)
    again.resume()
    assert again.digest() == story.scheduler.digest()


@pytest.mark.parametrize("room", [0.0, 0.5, 1.0, 3.0])
def test_a_copy_is_the_state_of_its_moment_whatever_room_it_has_and_whatever_comes_after(room: float) -> None:
    """It is sealed in a thread, while turns go on."""
    story = eventful(7, 60)
    then = story.scheduler.snapshot()
    copied = story.scheduler.copied(Room(int(room * story.scheduler.bytes_to_copy())))
    for turn in range(30):
        _something(random.Random(turn), story, f"more-{turn}")
    assert copied.sealed() == then != story.scheduler.snapshot()


@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536])
def test_bytes_are_headed_as_msgpack_heads_them(size: int) -> None:
    assert bin_head(size) + bytes(size) == msgspec.msgpack.encode(bytes(size))


def test_the_time_of_a_snapshot_is_that_of_the_last_turn_even_if_that_changed_nothing() -> None:
    """Who starts from it on a machine whose clock was set back begins there and no earlier."""
    story = eventful(1, 20)
    story.now_ns += 5 * SECOND
    assert not story.step().facts
    again = Scheduler.restore(story.config, story.scheduler.snapshot(), seed=1)
    assert again.books.now_ns == story.now_ns
    again.resume()
    again.step([], Clock(not_before_ns=again.books.now_ns, wall_ns=lambda: 0).now_ns())


def test_a_restarted_scheduler_goes_on_with_timers_links_and_window() -> None:
    story = Story([node("n1", cpu=1)])
    story.submit(task("a", retries=1, priority=9))
    story.submit([task("b", after=["a"]), task("late", deadline=30, on_deadline="expire")])
    story.wait(1)
    story.end("a", ok=False, reason="exit 1")
    story.scheduler = story.replayed()
    story.step(m.NodeSilent(node="n1"))
    story.wait(31)
    assert (story.state("a"), story.state("b"), story.state("late")) == ("queued", "held", "expired")


def test_events_keep_counting_after_a_restart() -> None:
    story = Story([node("n1")])
    story.submit(task("a"))
    before = len(story.events)
    story.scheduler = story.replayed()
    story.submit(task("b"))
    assert story.events[before].seq == story.events[before - 1].seq + 1


def test_a_whole_gang_runs_on_through_a_restart() -> None:
    story = Story([node("a", cpu=4), node("b", cpu=4)])
    story.submit({"template": task("g", cpu=4, gang={"id": "g", "size": 2}), "count": 2})
    story.wait(1)
    again = story.replayed()
    turn = again.step([], story.now_ns)
    assert not turn.facts and not turn.orders
    assert again.wake_ns() is None


def test_a_gang_that_lacks_members_has_the_time_of_a_repair_after_a_restart() -> None:
    story = Story([node("a", cpu=4), node("b", cpu=4)])
    story.submit({"template": task("g", cpu=4, gang={"id": "g", "size": 2}), "count": 2})
    story.wait(1)
    story.step(m.NodeLost(node="a"))
    again = story.replayed()
    assert again.step([], story.now_ns + 59 * 10**9).orders == []
    stops = again.step([], story.now_ns + 60 * 10**9).orders
    assert [order.node for order in stops] == ["b"]


def test_a_turn_that_only_refuses_is_kept_in_the_books_as_at_replay() -> None:
    story = Story([node("n1")])
    story.submit(task("a"))
    story.now_ns += 5
    story.submit([task("b", after=["nobody"])])
    assert story.replayed().digest() == story.scheduler.digest()


def test_an_id_that_was_taken_again_does_not_hold_who_waited_for_the_first_of_that_name() -> None:
    story = Story([node("n1", cpu=2)], config={"limits": {"retention_tasks": 1}})
    story.submit([task("first"), task("second")])
    story.submit(task("child", after=["first", "second"]))
    story.wait(1)
    story.end("first")
    story.submit(task("other"))
    story.wait(1)
    story.end("other")  # and with it the first one is forgotten
    story.submit(task("first"))  # by somebody else
    story.wait(1)
    restored = Scheduler.restore(story.config, story.scheduler.snapshot(), seed=1)
    restored.resume()
    for again in (story.replayed(), restored):
        ended = m.AttemptEnded(node="n1", task="second", attempt=1, succeeded=True, reason="")
        again.step([ended], story.now_ns + 1)
        assert again.view.task("child")["state"] != "held"
        assert again.view.task("first")["state"] == "running"


def test_who_waits_for_a_later_one_of_his_own_submission_still_does_after_a_restart() -> None:
    story = Story([node("n1", cpu=2)])
    story.submit([task("child", after=["parent"]), task("parent")])
    story.wait(1)
    again = story.replayed()
    assert again.view.task("child")["state"] == "held"
    ended = m.AttemptEnded(node="n1", task="parent", attempt=1, succeeded=True, reason="")
    again.step([ended], story.now_ns + 1)
    assert again.view.task("child")["state"] != "held"
