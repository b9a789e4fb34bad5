"""The life of a task, told as stories: one world, one thing happens, what is true afterwards."""

from __future__ import annotations

import pytest

from hetsched import wire
from hetsched.daemon.measure import OVER
from hetsched.errors import Conflict, NotFound, Problem
from hetsched.scheduler import SubmitReply
from hetsched.scheduler import messages as m
from tests.scheduler.build import SECOND, Story, node, task


def test_a_task_is_queued_placed_run_and_ends() -> None:
    story = Story([node("n1")])
    reply = story.submit(task("t"))
    assert reply.ids == ("t",) and reply.states == ("queued",) and reply.lanes == ("batch",)
    story.wait(0.05)
    story.end("t")
    assert story.names("t") == ["queued", "placed", "running", "succeeded"]
    assert story.task("t")["attempts"][0]["outcome"] == "succeeded"


def test_a_critical_task_is_answered_with_its_placement() -> None:
    story = Story([node("n1", gpus=2)])
    reply = story.submit(task("now", qos="critical", resources={"gpu": 1}))
    assert reply.states == ("placed",)
    assert reply.placements["now"] == {"node": "n1", "devices": [{"id": "gpu-0", "share": 1000}]}


def test_the_batch_lane_flushes_when_full() -> None:
    story = Story([node("n1")], config={"batch": {"max_wait": 8, "size": 3}})
    story.submit([task("a"), task("b")])
    assert story.state("a") == "queued"
    story.submit(task("c"))
    assert {story.state(t) for t in "abc"} == {"running"}


def test_failures_back_off_one_two_four_seconds_and_keep_their_reasons() -> None:
    story = Story([node("n1")])
    story.submit(task("t", retries=3))
    for attempt in range(1, 5):
        story.wait(10)
        assert story.task("t")["attempt"] == attempt
        story.end("t", ok=False, reason=f"exit {attempt}")
    assert story.state("t") == "failed"
    delays = [event.data["delay"] for event in story.events if event.event == "backoff"]
    assert all(0.75 * 2**k <= delay <= 1.25 * 2**k for k, delay in enumerate(delays)) and len(delays) == 3
    assert [a["reason"] for a in story.task("t")["attempts"]] == ["exit 1", "exit 2", "exit 3", "exit 4"]


def test_the_time_limit_stops_a_task_and_is_no_reason_to_retry() -> None:
    story = Story([node("n1")])
    story.submit(task("t", time_limit=5, retries=3))
    story.wait(6)
    assert story.state("t") == "stopping"
    assert isinstance(story.orders[-1].message, wire.Stop) and story.orders[-1].message.reason == "time_limit"
    story.end("t", ok=False, reason="time_limit")
    assert story.state("t") == "failed" and story.task("t")["reason"] == "time_limit"


@pytest.mark.parametrize("moment", ["queued", "held", "backoff", "placed", "running", "stopping"])
def test_cancel_works_at_every_moment(moment: str) -> None:
    story = Story([node("n1")], start=moment != "placed")
    story.submit(task("t", qos="background"))
    if moment == "held":
        story.ask(m.Operate(verb="hold", task="t"))
    elif moment != "queued":
        story.wait(1)
    if moment == "backoff":
        story.end("t", ok=False, reason="exit 1")
    if moment == "stopping":
        story.ask(m.Operate(verb="requeue", task="t"))
    assert story.state("t") == moment
    assert story.ask(m.Cancel(ids=("t",)))["cancelled"] == ["t"]
    if moment in ("placed", "running", "stopping"):
        assert story.state("t") == "stopping"
        story.end("t", ok=False, reason="cancelled")
    assert story.state("t") == "cancelled"
    assert isinstance(story.ask(m.Cancel(ids=("t",))), Conflict)
    begun = [event.attempt for event in story.events if event.event == "placed"]
    over = [event.attempt for event in story.events if event.event in OVER and event.attempt]
    assert over == begun, "the end of every attempt is said once, and who waited had none to end"
    assert story.events[-1].data["reason"] == "cancelled"


def test_an_attempt_is_over_once_though_its_task_expires_in_the_same_turn() -> None:
    story = Story([node("n1")])
    story.submit(task("t", qos="background", deadline=5, on_deadline="expire"))
    story.wait(1)
    story.ask(m.Operate(verb="requeue", task="t"))
    story.now_ns += 10 * SECOND
    story.end("t", ok=False)
    assert story.names("t")[-2:] == ["requeued", "expired"]
    assert [attempt["outcome"] for attempt in story.task("t")["attempts"]] == ["stopped"]
    assert [event.attempt for event in story.events if event.event in OVER] == [1, None]


def test_what_is_unknown_is_not_found() -> None:
    story = Story([node("n1")])
    assert isinstance(story.ask(m.Cancel(ids=("nobody",))), NotFound)
    assert isinstance(story.ask(m.Operate(verb="hold", task="nobody")), NotFound)
    assert isinstance(story.ask(m.OperateNode(verb="drain", node="nowhere")), NotFound)


def test_the_same_id_with_the_same_body_is_the_same_task() -> None:
    story = Story([node("n1")])
    story.submit(task("t", deadline=60))
    again = story.submit(task("t", deadline=60))
    assert isinstance(again, SubmitReply) and again.ids == ("t",) and story.names("t") == ["queued"]
    other = story.submit(task("t", cpu=2, deadline=60))
    assert isinstance(other, Problem) and other.status == 409


def test_an_idempotency_key_answers_once() -> None:
    story = Story([node("n1")])
    first = story.submit({"resources": {"cpu": 1}}, idempotency_key="k")
    second = story.submit({"resources": {"cpu": 1}}, idempotency_key="k")
    assert first.ids == second.ids and story.names().count("queued") == 1
    clash = story.submit({"resources": {"cpu": 2}}, idempotency_key="k")
    assert isinstance(clash, Problem) and clash.status == 409


def test_deadlines_expire_only_what_asked_for_it() -> None:
    story = Story([node("n1", cpu=1)])
    story.submit(task("busy"))
    story.wait(1)
    story.submit([task("patient", deadline=5), task("hasty", deadline=5, on_deadline="expire")])
    story.wait(6)
    assert story.state("hasty") == "expired" and story.state("patient") == "queued"


def test_an_operator_holds_and_releases() -> None:
    story = Story([node("n1")])
    story.submit(task("t"))
    story.ask(m.Operate(verb="hold", task="t"))
    story.wait(5)
    assert story.state("t") == "held"
    story.ask(m.Operate(verb="release", task="t"))
    story.wait(5)
    assert story.state("t") == "running"
    assert isinstance(story.ask(m.Operate(verb="hold", task="t")), Conflict)


def test_a_lease_only_task_is_finished_by_its_client_once() -> None:
    story = Story([node("n1")])
    story.submit(task("t"))
    story.wait(1)
    stale = story.ask(m.Finish(task="t", attempt=2, succeeded=True))
    assert isinstance(stale, Conflict)
    assert story.ask(m.Finish(task="t", attempt=1, succeeded=True))["state"] == "succeeded"
    assert isinstance(story.ask(m.Finish(task="t", attempt=1, succeeded=True)), Conflict)


def test_ended_tasks_are_kept_up_to_the_limit() -> None:
    story = Story([node("n1")], config={"limits": {"retention_tasks": 2}})
    for name in ("a", "b", "c"):
        story.submit(task(name, qos="critical"))
        story.end(name)
    with pytest.raises(NotFound):
        story.task("a")
    assert story.state("b") == story.state("c") == "succeeded"


def test_an_array_without_an_id_gets_one_for_the_whole() -> None:
    story = Story([node("n1")])
    reply = story.submit({"template": {"resources": {"cpu": 1}}, "count": 3})
    first, count = reply.array
    assert count == 3 and first.endswith("-0")
    assert reply.ids == tuple(f"{first[:-2]}-{i}" for i in range(3))


@pytest.mark.parametrize("kept", [1, 3])
def test_what_ends_in_the_turn_of_its_submission_is_answered_though_it_is_not_kept(kept: int) -> None:
    story = Story([node("n1")], config={"limits": {"retention_tasks": kept}})
    late = {"deadline": 0, "on_deadline": "expire"}
    reply = story.submit([task(f"t{i}", **late) for i in range(5)])
    assert reply.ids == ("t0", "t1", "t2", "t3", "t4") and set(reply.states) == {"expired"}
    with pytest.raises(NotFound):
        story.task("t0")
    assert story.replayed().digest() == story.scheduler.digest()


def test_a_turn_places_so_many_and_the_next_ones_go_on_with_urgent_work_first() -> None:
    story = _full_window(most_placed=10)
    story.now_ns += SECOND
    story.step()
    assert len(_placed(story)) == 10
    assert story.scheduler.wake_ns() == story.now_ns, "there is more to do at once"
    story.submit(task("now", qos="critical"))
    assert story.state("now") == "placed"
    story.wait(0)
    order = _placed(story)
    assert order.index("now") < 22 and len(order) == 35 + 8 + 1, "nobody is left, and nobody waits for another window"
    in_one = _full_window(most_placed=1000)
    in_one.wait(1)
    assert [name for name in order if name != "now"] == _placed(in_one), "in the order of one turn"
    assert story.replayed().digest() == story.scheduler.digest()


def test_who_comes_alone_is_decided_at_once_and_who_comes_in_company_is_gathered() -> None:
    story = Story([node("n1", cpu=64)], config={"batch": {"max_wait": 1}}, start=False)
    story.scheduler.window.eager = True
    story.submit(task("alone"))
    assert story.state("alone") == "placed", "nobody came before"
    story.wait(0.5)
    story.submit(task("soon-after"))
    story.wait(0.9)
    assert story.state("soon-after") == "queued", "half a second after a flush"
    story.submit(task("beside-it"))
    story.wait(0.1)
    assert story.state("soon-after") == story.state("beside-it") == "placed", "in one window"
    story.wait(0.99)
    story.submit(task("not-yet-alone"))
    assert story.state("not-yet-alone") == "queued"
    story.wait(2)
    story.submit({"template": task("array"), "count": 50})
    assert len(_placed(story)) == 54, "an array comes as a whole"
    story.wait(2)
    story.submit([task("blocked", cpu=64), task("blocked-too", cpu=64)])
    assert story.state("blocked") == "queued"
    story.wait(2)
    for name in _placed(story):
        story.wait(2)
        story.end(name)
    assert story.state("blocked") == "placed", "room that comes alone is given away at once"
    story.end("blocked")
    assert story.state("blocked-too") == "queued", "and not what comes soon after it"
    story.wait(1)
    assert story.state("blocked-too") == "placed"


def test_who_submits_one_by_one_does_not_wait_in_vain_each_time() -> None:
    story = Story([node("n1", cpu=64)], config={"batch": {"max_wait": 1}}, start=False)
    story.scheduler.window.eager = True

    def one_by_one(count: int) -> int:
        waited = 0
        for _ in range(count):
            story.wait(0.1)
            name = f"t{len(story.events)}"
            story.submit(task(name))
            waited += story.state(name) == "queued"
            while story.state(name) == "queued":
                story.wait(0.05)
            story.end(name)
        return waited

    assert one_by_one(40) == 5, "a window is tried now and then"
    story.wait(2)
    for number in range(40):  # a stream
        story.wait(0.3)
        story.submit(task(f"s{number}"))
    placed_at = {event.task: event.t_ns for event in story.events if event.event == "placed"}
    assert len({placed_at[f"s{number}"] for number in range(12, 36)}) <= 7, "is gathered"


def _full_window(most_placed: int) -> Story:
    story = Story([node("n1", cpu=64), node("n2", cpu=64)], config={"batch": {"max_wait": 1}}, start=False)
    story.scheduler.most_placed = most_placed
    story.submit({"template": task("s"), "count": 35})
    story.submit([{**task(f"g-{member}"), "gang": {"id": "g", "size": 8}} for member in range(8)])
    return story


def _placed(story: Story) -> list[str]:
    return [event.task for event in story.events if event.event == "placed" and event.task is not None]


def test_a_deadline_goes_with_its_task_and_not_with_the_place_that_it_had() -> None:
    """Another task sits in its slot when the time comes."""
    story = Story([node("n1", cpu=1)], config={"limits": {"retention_tasks": 1}})
    story.submit(task("hasty", cpu=1, deadline=50, on_deadline="expire"))
    story.wait(1)
    story.end("hasty")
    story.submit([task("runs", cpu=1), task("waits", cpu=1)])
    story.wait(1)
    story.end("runs")
    story.submit([task(f"later{at}", cpu=1) for at in range(3)])
    story.wait(100)
    assert [story.state(f"later{at}") for at in range(3)] == ["queued"] * 3
    assert story.scheduler.world.timers.next_ns() is None
