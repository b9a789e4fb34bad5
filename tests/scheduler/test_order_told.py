"""What explain tells of the order is what decides: the number of each term, and who goes first by them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hetsched.scheduler import messages as m
from tests.scheduler.build import Story, node, task

LONG_S = 100_000


def order_of(story: Story, ident: str) -> dict[str, Any]:
    told = story.scheduler.view.explain(ident)["order"]
    assert isinstance(told, dict)
    return told


def full(order: str, **config: Any) -> Story:
    """One core, held by `busy` of the queue `other`."""
    story = Story([node("n1", cpu=1)], config={"order": order, **config})
    story.submit(task("busy", queue="other"))
    story.wait(1)
    return story


def order_of_starts(story: Story, waiting: set[str]) -> list[str]:
    """In which order the one core is given to them."""
    story.end("busy")
    begun: list[str] = []
    while waiting - set(begun):
        story.wait(1)
        (now,) = {ident for ident in waiting - set(begun) if story.state(ident) == "running"}
        begun.append(now)
        story.end(now)
    return begun


# ---------------------------------------------------------------------- fair share


def test_fair_share_tells_the_dominant_part_of_each_queue_up_to_the_root_over_its_weight() -> None:
    story = Story([node("n1", cpu=8, gpus=4)])
    story.queue(name="lab/a", weight=2)
    story.submit(
        [task("r", cpu=1, queue="lab/a", resources={"gpu": 2}), task("s", cpu=4, queue="lab/b", resources={"gpu": 1})]
    )
    story.wait(1)
    story.submit([task("w", queue="lab/a", resources={"gpu": 4}), task("new", queue="alone", resources={"gpu": 4})])
    story.wait(1)
    told = order_of(story, "w")
    assert (told["name"], told["qos"], told["is_owed"], told["deadline"]) == ("drf", "production", False, None)
    assert told["queues"] == [
        {"queue": "lab/a", "share": 0.5, "resource": "gpu", "weight": 2, "share_over_weight": 0.25},
        {"queue": "lab", "share": 0.75, "resource": "gpu", "weight": 1, "share_over_weight": 0.75},
    ]
    (unused,) = order_of(story, "new")["queues"]
    assert (unused["share"], unused["resource"]) == (0.0, None)
    assert "NSDI 2011" in told["source"]


def test_who_is_owed_a_guarantee_is_told_so() -> None:
    story = full("drf")
    story.queue(name="owner", guaranteed={"cpu": 1})
    story.submit([task("mine", queue="owner"), task("yours", queue="guest")])
    assert (order_of(story, "mine")["is_owed"], order_of(story, "yours")["is_owed"]) == (True, False)


def test_priority_is_told_with_its_age_up_to_a_hundred_points() -> None:
    story = full("drf")
    story.submit(task("w", priority=7))
    story.wait(300)
    assert order_of(story, "w")["priority"] == {"own": 7, "age": 5, "lifted": 12}
    story.wait(59)
    assert order_of(story, "w")["priority"] == {"own": 7, "age": 5, "lifted": 12}, "whole minutes count"
    story.wait(LONG_S)
    assert order_of(story, "w")["priority"] == {"own": 7, "age": 100, "lifted": 107}


# ---------------------------------------------------------------------- the weighted order


def test_the_weighted_order_tells_each_term_and_their_sum() -> None:
    story = full("weighted")
    story.submit([task("calm"), task("due", deadline=9)])
    terms = {one["term"]: (one["weight"], one["value"]) for one in order_of(story, "calm")["terms"]}
    assert terms == {"urgency": (0.4, 0.0), "match": (0.3, 0.0), "efficiency": (0.3, 0.8)}
    assert order_of(story, "calm")["score"] == pytest.approx(0.24)
    due = order_of(story, "due")
    assert due["terms"][0]["value"] == pytest.approx(1 / (1 + 9)) and due["score"] == pytest.approx(0.28)
    assert "queues" not in due and due["deadline"] is not None
    story.wait(60)
    assert order_of(story, "due")["terms"][0]["value"] == 1.0


def test_the_match_is_the_score_of_the_best_node_and_the_sum_orders_the_starts() -> None:
    """`pack` likes a node the better the fuller it would be: of two tasks that came together the one that fills its node goes first."""
    story = Story(
        [node("n1", cpu=8)], config={"order": "weighted", "policy": {"preset": "pack"}, "batch": {"max_wait": 30}}
    )
    story.submit([task("slim", cpu=1), task("wide", cpu=8)])
    slim, wide = (order_of(story, ident) for ident in ("slim", "wide"))
    assert 0 < slim["terms"][1]["value"] < wide["terms"][1]["value"] <= 1
    assert wide["score"] == pytest.approx(0.3 * wide["terms"][1]["value"] + 0.3 * 0.8)
    assert wide["terms"][1]["source"].startswith("the weighted sum that the requirements' design document gives")
    story.wait(31)
    assert (story.state("wide"), story.state("slim")) == ("running", "queued")


def test_before_there_is_a_node_each_matches_by_half() -> None:
    story = Story([], config={"order": "weighted", "reject_unsatisfiable": False})
    story.submit(task("w"))
    assert order_of(story, "w")["terms"][1]["value"] == 0.5


# ---------------------------------------------------------------------- who goes first, by what is told


def rank(told: dict[str, Any]) -> tuple[Any, ...]:
    """Smallest first, in the words of the formula."""
    last = (told["deadline"] or "9999", told["sequence"])
    if told["name"] == "fifo":
        return (told["sequence"],)
    if told["name"] == "weighted":
        return (-told["score"], last[0], -told["priority"]["own"], told["sequence"])
    return (told["queues"][0]["share_over_weight"], -told["priority"]["own"], *last)


@pytest.mark.parametrize("order", ["weighted", "fifo", "drf"])
@pytest.mark.parametrize("seed", range(8))
def test_who_is_first_by_what_is_told_starts_first(seed: int, order: str) -> None:
    """All come at once and of one queue, so that neither age nor what is started in between changes who is before whom."""
    dice = random.Random(seed)
    story = full(order)
    bodies = []
    for at in range(6):
        body = task(f"t{at}", priority=dice.choice((0, 0, 5, 50)))
        if dice.random() < 0.5:
            body["deadline"] = dice.randint(100, 10_000)
        bodies.append(body)
    story.submit(bodies)
    waiting = {body["id"] for body in bodies}
    told = sorted(waiting, key=lambda ident: rank(order_of(story, ident)))
    assert order_of_starts(story, waiting) == told


@pytest.mark.parametrize("seed", range(8))
def test_the_queue_of_the_smallest_told_share_over_weight_is_next(seed: int) -> None:
    dice = random.Random(seed)
    story = Story([node("n1", cpu=100, gpus=50)])
    cores = 99
    for name in "abc":
        story.queue(name=name, weight=dice.randint(1, 5))
        held = dice.randint(1, 30)
        cores -= held
        story.submit(task(f"{name}-holds", cpu=held, queue=name, resources={"gpu": dice.randint(1, 15)}))
    story.submit([task("busy", queue="other"), task("filler", cpu=cores, queue="other")])
    story.wait(1)
    story.submit([task(name, queue=name) for name in "abc"])
    story.wait(1)
    told = {name: order_of(story, name)["queues"][0]["share_over_weight"] for name in "abc"}
    story.end("busy")
    story.wait(1)
    (started,) = (name for name in "abc" if story.state(name) == "running")
    assert told[started] == min(told.values())


LEVELS = ("critical", "production", "best_effort", "background")


def goes_before(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Over all levels, queues that are siblings."""
    if one["qos"] != other["qos"]:
        return LEVELS.index(one["qos"]) < LEVELS.index(other["qos"])
    if one["name"] == "drf" and one["is_owed"] != other["is_owed"] and one["queues"][0] != other["queues"][0]:
        return bool(one["is_owed"])
    return rank(one) < rank(other)


@pytest.mark.parametrize("order", ["weighted", "fifo", "drf"])
@pytest.mark.parametrize("seed", range(6))
def test_the_position_is_that_of_what_is_told_whatever_it_waits_for(seed: int, order: str) -> None:
    """Beside who waits for room: parked ones, for a limit of their queue, members of their gang, a node that could take them, a hand."""
    dice = random.Random(seed)
    story = Story(
        [node("n1", cpu=4, gpus=1)], config={"order": order, "policy": {"preset": "pack"}, "batch": {"max_wait": 30}}
    )
    story.queue(name="small", limit={"cpu": 1})
    for name in "abc":
        story.queue(name=name, weight=dice.randint(1, 4), guaranteed={"cpu": dice.choice((0, 3))})
    story.submit([task("held-room", cpu=1, queue="a"), task("small-room", cpu=1, queue="small")])
    story.wait(31)
    bodies = []
    for at in range(24):
        body = task(
            f"t{at}",
            cpu=dice.choice((0.5, 1, 2, 3, 99)),
            queue=dice.choice(("a", "b", "c", "small")),
            priority=dice.choice((0, 0, 9)),
        )
        body["qos"] = dice.choice(LEVELS[1:])
        if dice.random() < 0.4:
            body["deadline"] = dice.randint(100, 10_000)
        if dice.random() < 0.2:
            body["gang"] = {"id": f"g{at}", "size": 2}
        bodies.append(body)
    story.submit(bodies)
    waiting = [body["id"] for body in bodies]
    for ident in dice.sample(waiting, 4):
        story.ask(m.Operate(verb="hold", task=ident))
    explained = {ident: story.scheduler.view.explain(ident) for ident in waiting}
    parked = {"held", "gang_incomplete", "queue_limit", "unsatisfiable"}
    assert len(parked & {told["reason"] for told in explained.values()}) >= 3
    queued = [ident for ident in waiting if story.state(ident) == "queued"]
    for ident, told in explained.items():
        before = [other for other in queued if goes_before(explained[other]["order"], told["order"])]
        assert told["position"] == 1 + len(before), (ident, told["order"])


def test_what_does_not_wait_is_told_no_order() -> None:
    story = full("drf")
    assert "order" not in story.scheduler.view.explain("busy")
    story.ask(m.Cancel(ids=("busy",)))
    assert "order" not in story.scheduler.view.explain("busy")
