"""Tasks that hang together: dependencies, gangs, preemptor and victim, queues with limits."""

from __future__ import annotations

import pytest

from hetsched.errors import NotFound, Problem
from hetsched.scheduler import messages as m
from tests.scheduler.build import Story, node, task


def test_a_chain_runs_one_after_another() -> None:
    story = Story([node("n1")])
    story.submit([task("a"), task("b", after=["a"]), task("c", after=["b"])])
    story.wait(1)
    assert [story.state(t) for t in "abc"] == ["running", "held", "held"]
    story.end("a")
    story.wait(1)
    assert story.state("b") == "running"


def test_a_failure_skips_what_needed_success_in_the_same_turn_and_wakes_the_rest() -> None:
    story = Story([node("n1")])
    story.submit(
        [
            task("a", retries=0),
            task("b", after=["a"]),
            task("c", after=["b"]),
            task("cleanup", after=[{"id": "a", "when": "failed"}]),
            task("anyway", after=[{"id": "a", "when": "ended"}]),
        ]
    )
    story.wait(1)
    story.end("a", ok=False, reason="exit 1")
    assert [story.state(t) for t in ("b", "c")] == ["skipped", "skipped"]
    assert "a (failed)" in story.scheduler.view.explain("b")["detail"]
    story.wait(1)
    assert [story.state(t) for t in ("cleanup", "anyway")] == ["running", "running"]


def test_unknown_parents_and_cycles_are_refused_by_pointer() -> None:
    story = Story([node("n1")])
    reply = story.submit([task("x", after=["y"]), task("y", after=["x"]), task("z", after=["nobody"]), task("ok")])
    assert reply.ids == (None, None, None, "ok")
    assert [problem["errors"][0]["pointer"] for _, problem in reply.rejected] == ["/after", "/after", "/after/0"]


def test_a_gang_starts_as_a_whole_or_waits() -> None:
    story = Story([node("n1", cpu=4)])
    story.submit(task("seat"))
    story.submit([task(f"g{i}", gang={"id": "g", "size": 4}) for i in range(4)])
    story.wait(1)
    assert {story.state(f"g{i}") for i in range(4)} == {"queued"}
    why = story.scheduler.view.explain("g0")
    assert why["reason"] in ("gang_no_room", "no_capacity")
    assert "window" not in [other["reason"] for other in why["secondary"]], "its turn is no reason beside another"
    story.end("seat")
    story.wait(1)
    assert {story.state(f"g{i}") for i in range(4)} == {"running"}


def test_a_gang_member_that_fails_for_good_cancels_the_gang() -> None:
    story = Story([node("n1")])
    story.submit([task(f"g{i}", retries=0, gang={"id": "g", "size": 2}) for i in range(2)])
    story.wait(1)
    story.end("g0", ok=False, reason="exit 1")
    story.end("g1", ok=False, reason="cancelled")
    assert (story.state("g0"), story.state("g1")) == ("failed", "cancelled")


@pytest.mark.parametrize(("min_size", "others"), [(3, "cancelled"), (2, "queued")])
@pytest.mark.parametrize("how", ["cancelled", "expired", "skipped"])
def test_a_waiting_gang_that_cannot_spare_a_member_ends_with_it(how: str, min_size: int, others: str) -> None:
    """A place in a gang is given once, so below `min_size` they would wait for nobody."""
    story = Story([node("n1", cpu=4)])
    story.submit([task("busy", cpu=3), task("parent", retries=0)])
    story.wait(1)
    gang = {"id": "g", "size": 3, "min_size": min_size}
    own = {"expired": {"deadline": 50, "on_deadline": "expire"}, "skipped": {"after": ["parent"]}}
    story.submit([task("g0", gang=gang), task("g1", gang=gang), task("g2", gang=gang, **own.get(how, {}))])
    if how == "cancelled":
        story.ask(m.Cancel(ids=("g2",)))
    elif how == "expired":
        story.wait(60)
    else:
        story.end("parent", ok=False, reason="exit 1")
    assert [story.state(f"g{at}") for at in range(3)] == [others, others, how]
    assert isinstance(story.submit(task("g3", gang=gang)), Problem)


@pytest.mark.parametrize(("min_size", "others"), [(3, "stopping"), (2, "running")])
def test_so_does_one_that_runs(min_size: int, others: str) -> None:
    story = Story([node("n1", cpu=4)])
    story.submit([task(f"g{at}", gang={"id": "g", "size": 3, "min_size": min_size}) for at in range(3)])
    story.wait(1)
    story.ask(m.Cancel(ids=("g2",)))
    story.end("g2", ok=False, reason="cancelled")
    assert [story.state(f"g{at}") for at in range(3)] == [others, others, "cancelled"]


def test_a_gang_takes_no_member_too_many() -> None:
    story = Story([node("n1")])
    reply = story.submit([task(f"g{i}", gang={"id": "g", "size": 2}) for i in range(3)])
    assert reply.ids == ("g0", "g1", None)


def test_who_waits_behind_a_claim_says_for_whom() -> None:
    story = Story([node("n1", gpus=1), node("n2", gpus=1)])
    story.submit(task("soft", qos="background", resources={"gpu": 1}))
    story.submit(task("firm", qos="critical", resources={"gpu": 1}))
    story.wait(1)
    story.submit(task("first", qos="critical", resources={"gpu": 1}))
    story.end("firm")
    story.submit(task("second", qos="critical", resources={"gpu": 1}))
    assert (story.state("soft"), story.state("first"), story.state("second")) == ("stopping", "queued", "queued")
    why = story.scheduler.view.explain("second")
    assert (why["reason"], why["numbers"], why["secondary"]) == ("claiming", {"behind": "first"}, [])
    story.end("soft", ok=False, reason="preempted")
    assert (story.state("first"), story.state("second")) == ("running", "running")


def test_a_preemptor_claims_the_cheapest_victims_and_starts_when_they_are_gone() -> None:
    story = Story([node("n1", gpus=2)])
    story.submit(task("old", qos="background", resources={"gpu": 1}))
    story.wait(100)
    story.submit(task("young", qos="background", resources={"gpu": 1}))
    story.wait(1)
    story.submit(task("chief", qos="critical", resources={"gpu": 1}))
    assert (story.state("old"), story.state("young"), story.state("chief")) == ("running", "stopping", "queued")
    why = story.scheduler.view.explain("chief")
    assert (
        why["reason"] == "claiming"
        and why["claim"]["victims"] == ["young"]
        and "without any one" in why["claim"]["proof"]
    )
    story.end("young", ok=False, reason="preempted")
    assert story.names("young")[-1] == "requeued"
    assert story.state("chief") == "running"
    assert [e.event for e in story.events if e.event in ("claimed", "preempted", "requeued")][-3:] == [
        "claimed",
        "preempted",
        "requeued",
    ]


def test_the_hole_is_kept_for_the_preemptor() -> None:
    story = Story([node("n1", cpu=2)])
    story.submit([task("v1", qos="background"), task("v2", qos="background")])
    story.wait(1)
    story.submit(task("chief", cpu=2, qos="production"))
    story.wait(1)
    story.end("v1", ok=False, reason="preempted")
    story.submit(task("sneaky", qos="production"))
    story.wait(1)
    assert story.state("sneaky") == "queued"
    story.end("v2", ok=False, reason="preempted")
    assert story.state("chief") == "running"


def test_a_cancelled_preemptor_gives_its_claim_up() -> None:
    story = Story([node("n1", cpu=1)])
    story.submit(task("v", qos="background"))
    story.wait(1)
    story.submit(task("chief", qos="critical"))
    story.ask(m.Cancel(ids=("chief",)))
    story.end("v", ok=False, reason="preempted")
    story.wait(1)
    assert (story.state("chief"), story.state("v")) == ("cancelled", "running")


def test_a_queue_stays_below_its_limit_and_says_so() -> None:
    story = Story([node("n1")])
    story.queue(name="team", limit={"cpu": 2})
    story.submit([task("a", cpu=2, queue="team/a"), task("b", queue="team/b"), task("c")])
    story.wait(1)
    assert [story.state(t) for t in "abc"] == ["running", "queued", "running"]
    why = story.scheduler.view.explain("b")
    assert why["reason"] == "queue_limit" and why["numbers"]["queue"] == "team"
    assert why["detail"] == "queue team may use 2 of cpu, uses 2, and this asks for 1"
    story.end("a")
    story.wait(1)
    assert story.state("b") == "running"


def test_what_no_node_could_ever_take_is_kept_with_its_reason_or_refused_where_configured() -> None:
    story = Story([node("n1")])
    story.submit(task("huge", cpu=100))
    story.wait(1)
    assert story.scheduler.view.explain("huge")["reason"] == "unsatisfiable"
    strict = Story([node("n1")], config={"reject_unsatisfiable": True})
    refused = strict.submit(task("huge", cpu=100))
    assert isinstance(refused, Problem) and refused.code == "unsatisfiable"


@pytest.mark.parametrize("when", ["succeeded", "failed", "ended"])
def test_one_cancel_may_end_parent_and_child_together(when: str) -> None:
    story = Story([node("n1")])
    story.submit([task("a", labels={"of": "us"}), task("b", labels={"of": "us"}, after=[{"id": "a", "when": when}])])
    story.ask(m.Cancel(ids=(), label="of=us"))
    assert {story.state("a"), story.state("b")} <= {"cancelled", "stopping"} and story.state("b") == "cancelled"
    story.submit([task("c"), task("d", after=[{"id": "c", "when": when}])])
    story.ask(m.Cancel(ids=("d", "c", "d")))
    assert [story.state(t) for t in "cd"] == ["cancelled", "cancelled"]


def test_an_end_of_a_gang_may_end_a_member_that_waits_for_another() -> None:
    story = Story([node("n1")])
    gang = {"id": "g", "size": 3}
    story.submit([task("g0", gang=gang), task("g1", gang=gang, after=[{"id": "g0", "when": "ended"}])])
    story.ask(m.Cancel(ids=("g0",)))
    assert story.state("g1") == "cancelled" and story.names("g1").count("cancelled") == 1


def test_who_waits_for_a_task_that_its_gang_refuses_is_refused_too() -> None:
    story = Story([node("n1")])
    story.submit(task("first", gang={"id": "g", "size": 1}))
    reply = story.submit(
        [
            task("late", gang={"id": "g", "size": 1}),
            task("child", after=["late"]),
            task("grandchild", after=[{"id": "child", "when": "ended"}]),
            task("ok", after=["first"]),
        ]
    )
    assert reply.ids == (None, None, None, "ok")
    assert [p["errors"][0]["pointer"] for _, p in reply.rejected] == ["/gang", "/after/0", "/after/0"]


def test_a_parent_that_is_kept_no_more_has_done_its_part() -> None:
    story = Story([node("n1", cpu=2)], config={"limits": {"retention_tasks": 1}})
    story.submit([task("a", cpu=1), task("b", cpu=1), task("c", after=["a", "b"])])
    story.wait(1)
    story.end("a")
    for other in ("x", "y"):
        story.submit(task(other))
        story.ask(m.Cancel(ids=(other,)))
    with pytest.raises(NotFound):
        story.task("a")
    again = story.replayed()
    assert again.digest() == story.scheduler.digest() and str(again.view.task("c")["state"]) == "held"
    story.end("b")
    story.wait(1)
    assert story.state("c") == "running"
