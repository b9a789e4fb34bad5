"""What nodes measure is lent, written down, and given back in the turn in which the owner needs it."""

from __future__ import annotations

import random

import pytest

from hetsched._core import split_facts
from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from tests.scheduler.build import Story, node, task

GIB = 1 << 30
LENDING = {"overcommit": {"cpu": 2, "memory": 2}}


def use(ident: str, cpu: float, memory: int = 0, attempt: int = 1) -> m.AttemptUse:
    return m.AttemptUse(task=ident, attempt=attempt, cpu_milli=round(cpu * 1000), memory_bytes=memory * GIB)


def report(*uses: m.AttemptUse, node: str = "n") -> m.UseReported:
    return m.UseReported(node=node, uses=uses)


def lent_out() -> Story:
    """`owner` holds 8 of 8 cores and uses 2; `guest` stands on 4 of them, `young` on 2."""
    story = Story([node("n")], config=LENDING)
    story.submit(task("owner", cpu=8))
    story.wait(1)
    story.step(report(use("owner", 2)))
    story.submit(task("guest", cpu=4, guarantee="best_effort"))
    story.wait(1)
    story.submit(task("young", cpu=2, guarantee="best_effort"))
    story.wait(1)
    assert [story.state(name) for name in ("guest", "young")] == ["running", "running"]
    return story


def test_the_owner_has_its_use_back_in_the_turn_of_the_report() -> None:
    story = lent_out()
    turn = story.step(report(use("owner", 3.5)))
    (told,) = [event for event in turn.events if event.event == "preempted"]
    assert (told.task, told.data) == ("young", {"by": "owner", "reason": "reclaim"})
    assert [order.message.reason for order in turn.orders] == ["reclaim"]


def test_a_use_that_falls_lets_somebody_in() -> None:
    story = lent_out()
    story.submit(task("third", cpu=1, guarantee="best_effort"))
    story.wait(1)
    assert story.state("third") == "queued"
    story.step(report(use("owner", 1)))
    story.wait(1)
    assert story.state("third") == "running"


def test_who_was_taken_back_from_queues_again_and_uses_up_no_retry() -> None:
    story = lent_out()
    story.step(report(use("owner", 8)))
    for name in ("guest", "young"):
        story.step(m.AttemptEnded(node="n", task=name, attempt=1, succeeded=False, reason="reclaim"))
    assert [(story.task(name)["state"], story.task(name)["failures"]) for name in ("guest", "young")] == [
        ("queued", 0)
    ] * 2


def test_only_the_live_attempt_on_its_own_node_is_heard_and_the_same_use_once() -> None:
    story = lent_out()
    for said in (
        report(use("owner", 8, attempt=2)),
        report(use("owner", 8), node="elsewhere"),
        report(use("nobody", 8)),
        report(use("owner", 2)),
    ):
        turn = story.step(said)
        assert (turn.facts, turn.events) == (b"", [])


def test_where_nothing_is_lent_nothing_is_written() -> None:
    story = Story([node("n")])
    story.submit(task("owner", cpu=8))
    story.wait(1)
    assert story.step(report(use("owner", 2))).facts == b""
    assert "overcommit" not in story.scheduler.view.node("n")


def test_a_critical_task_never_stands_on_what_is_lent() -> None:
    story = lent_out()
    story.submit(task("urgent", cpu=1, guarantee="best_effort", qos="critical"))
    assert story.state("urgent") == "queued"


def test_people_see_what_is_lent_and_measured() -> None:
    story = lent_out()
    assert story.scheduler.view.node("n")["overcommit"]["cpu"] == {
        "best_effort": 6.0,
        "idle": 6.0,
        "lendable": 6.0,
        "lent": 6.0,
    }
    assert story.task("owner")["used"] == {"cpu": 2, "memory": 0}
    assert "used" not in story.task("guest")


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_lends_as_before(seed: int) -> None:
    """Replay, and restore from a snapshot, reach the same state; and both decide alike from then on."""
    rng = random.Random(seed)
    story = Story([node("a"), node("b", cpu=4, gpus=1)], config=LENDING)
    for turn in range(80):
        guarantee = rng.choice(["guaranteed", "best_effort", "burstable"])
        qos = rng.choice(["critical", "production", "production", "best_effort", "background"])
        story.submit(task(f"t{turn}", cpu=rng.randint(1, 5), guarantee=guarantee, qos=qos))
        story.wait(rng.choice([0.05, 1]))
        live = story.scheduler.view.tasks(state="running,stopping", limit=1000)["tasks"]
        for one in rng.sample(live, min(3, len(live))):
            where = one["placement"]
            if one["state"] == "stopping" or rng.random() < 0.3:
                story.end(one["id"], ok=one["state"] == "running")
            else:
                said = use(one["id"], rng.choice([0, 1, 3, 6]), attempt=where["attempt"])
                story.step(report(said, node=where["node"]))
    restored = Scheduler.restore(story.config, story.scheduler.snapshot(), seed=1)
    restored.resume()
    digest = story.scheduler.digest()
    assert story.replayed().digest() == restored.digest() == digest
    assert any(event.event == "preempted" and event.data.get("reason") == "reclaim" for event in story.events)
    assert sum(len(split_facts(frame)) for frame in story.frames) > 100
