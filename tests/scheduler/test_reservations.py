"""The reservation of the first blocked head, as people are told of it."""

from __future__ import annotations

from tests.scheduler.build import SECOND, Story

NODE = {"name": "octo", "cpu": 64, "devices": [{"kind": "gpu", "count": 8}]}


def gpus(ident: str, count: int, **more: object) -> dict[str, object]:
    return {"id": ident, "resources": {"gpu": count}, **more}


def blocked() -> Story:
    story = Story([NODE], config={"batch": {"max_wait": 0, "size": 1}})
    story.submit(gpus("half", 4, duration=100))
    story.submit(gpus("whale", 8, duration=10))
    story.submit(gpus("silent", 1))
    story.submit(gpus("long", 1, duration=200))
    story.step()
    return story


def test_the_head_says_when_and_where_it_will_start() -> None:
    story = blocked()
    story.now_ns += 40 * SECOND
    told = story.scheduler.view.explain("whale")
    reasons = {told["reason"]: told["numbers"]} | {one["reason"]: one["numbers"] for one in told["secondary"]}
    assert reasons["reserved"]["nodes"] == ["octo"]
    story.step()
    told = story.scheduler.view.explain("whale")
    assert told["eta_seconds"] == 60


def test_who_is_held_back_says_for_whom() -> None:
    told = blocked().scheduler.view.explain("long")
    assert told["reason"] == "behind_reservation"
    assert told["numbers"] == {
        "nodes": ["octo"],
        "start_seconds": 100.0,
        "reserved_for": "whale",
        "expected_seconds": 200.0,
    }
    silent = blocked().scheduler.view.explain("silent")
    assert "says nothing of its run time" in silent["detail"]


def test_a_duration_counts_where_no_estimate_is_given_and_an_estimate_before_it() -> None:
    story = blocked()
    story.submit(gpus("short", 1, duration=90))
    story.submit(gpus("said-short", 1, duration=500, estimate=90))
    story.submit(gpus("said-long", 1, duration=9, estimate=500))
    story.step()
    states = {ident: story.scheduler.view.task(ident)["state"] for ident in ("short", "said-short", "said-long")}
    assert states == {"short": "running", "said-short": "running", "said-long": "queued"}
