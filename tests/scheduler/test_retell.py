"""Time travel: what explain said of every task at a moment is what it says of the state rebuilt at that moment."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from hetsched.scheduler.reasons import Waiting
from hetsched.scheduler.rehearse import retell
from tests.scheduler.build import Story, node, task
from tests.scheduler.test_replay import _something
from tests.scheduler.whatif import small_world


def rebuilt(story: Story, frames: int | None = None) -> Scheduler:
    scheduler = Scheduler.restore(story.config, None, seed=1)
    for facts in story.frames[:frames]:
        scheduler.apply(facts)
    return scheduler


def explained(story: Story) -> dict[str, dict[str, Any]]:
    """Of every task, as the live scheduler says it."""
    rows = story.scheduler.view.tasks(limit=1000)["tasks"]
    told = {row["id"]: story.scheduler.view.explain(row["id"]) for row in rows}
    for answer in told.values():
        answer.pop("history", None)
    return told


def without_derived(told: dict[str, Any]) -> dict[str, Any]:
    """A reservation is what the last decision found, live, and prices are of when they were last due; rebuilt, both are what a decision at
    that moment finds. All else has to be the same."""
    reasons = [{name: told.get(name) for name in ("reason", "detail", "numbers")}, *told.get("secondary", ())]
    kept = [reason for reason in reasons if reason["reason"] not in (Waiting.RESERVED, Waiting.BEHIND_RESERVATION)]
    rest = {name: value for name, value in told.items() if name not in ("reason", "detail", "numbers", "secondary")}
    waits = told["state"] in ("queued", "held", "backoff")
    if "terms" in rest:
        rest["terms"] = [term for term in rest["terms"] if term["term"] != "preset"]
    return {**rest, "reasons": kept, **({"eta_seconds": None} if waits else {})}


def hold(story: Story, moments: list[tuple[int, int, dict[str, dict[str, Any]]]]) -> None:
    assert moments
    for frames, now_ns, live in moments:
        scheduler = rebuilt(story, frames)
        digest = scheduler.digest()
        for ident, told in live.items():
            again = retell.explain_at(scheduler, ident, now_ns)
            assert without_derived(again) == without_derived(told), f"{ident} after frame {frames}"
        assert scheduler.digest() == digest, "asking changes nothing"


@pytest.mark.parametrize("seed", range(12))
def test_replayed_explanations_of_a_world_at_rest_are_the_live_ones(seed: int) -> None:
    story = small_world(seed)
    hold(story, [(len(story.frames), story.now_ns, explained(story))])


@pytest.mark.parametrize("seed", range(6))
def test_replayed_explanations_at_any_moment_are_the_live_ones(seed: int) -> None:
    dice = random.Random(seed)
    story = Story([node("a", gpus=2), node("b", cpu=4), node("c", gpus=1)], config={"batch": {"size": 4}})
    story.queue(name="q", limit={"cpu": 6})
    moments = []
    for turn in range(40):
        _something(dice, story, f"t{turn}")
        story.wait(dice.choice([0, 0.05, 1, 3]))
        if turn % 5 == 4:
            moments.append((len(story.frames), story.now_ns, explained(story)))
    hold(story, moments)


def test_every_node_is_judged_by_itself() -> None:
    story = Story([node("big", gpus=2), node("small", cpu=2, gpus=1), node("bare"), node("shut", gpus=1)])
    story.ask(m.OperateNode(verb="cordon", node="shut"))
    story.submit(task("asks", cpu=4, resources={"gpu": 1}))
    assert {one["node"]: one["why"] for one in retell.judge_nodes(rebuilt(story), "asks")} == {
        "big": None,
        "small": "with too few free cores",
        "bare": "with too few free devices",
        "shut": "down, silent, draining or cordoned",
    }


def test_the_next_choices_are_the_engines_own() -> None:
    story = Story([node("a", gpus=1), node("b", gpus=1), node("c")], config={"batch": {"max_wait": 5}})
    story.submit(task("t", resources={"gpu": 1}))
    scheduler = rebuilt(story)
    first, second = retell.choices(scheduler, "t", story.now_ns, 5)
    story.wait(6)
    assert first["node"] == story.node_of("t") and {first["node"], second["node"]} == {"a", "b"}
    assert first["devices"] == [{"id": "gpu-0", "share": 1000}]
