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


# ---------------------------------------------------------------------- nobody is said to wait for a reservation that does not hold it back


def said(story: Story, ident: str) -> list[str]:
    told = story.scheduler.view.explain(ident)
    return [told["reason"], *(one["reason"] for one in told["secondary"])]


def test_who_would_be_gone_before_the_start_waits_for_what_it_really_waits_for() -> None:
    story = blocked()
    story.queue(name="team", limit={"gpu": 1})
    story.submit(gpus("y1", 1, duration=30, queue="team"))
    story.submit(gpus("y2", 1, duration=30, queue="team"))
    story.submit(gpus("y3", 1, duration=300, queue="team"))
    story.step()
    assert story.node_of("y1") == "octo"
    assert said(story, "y2") == ["queue_limit"]
    assert said(story, "y3") == ["queue_limit", "behind_reservation"]


def test_members_of_a_gang_are_held_back_by_a_reservation_only_if_one_of_them_would_outlast_it() -> None:
    for seconds, count, held in ((90, 5, False), (200, 5, False), (200, 2, True), (None, 2, True)):
        story = blocked()
        ends = {} if seconds is None else {"duration": seconds}
        story.submit({"template": gpus("g", 1, gang={"id": "g", "size": count}, **ends), "count": count})
        story.step()
        assert story.node_of("g-0") is None
        for member in ("g-0", "g-1"):
            told = said(story, member)
            assert ("behind_reservation" in told) is held, (seconds, count, told)


def test_the_longest_of_a_gang_counts() -> None:
    story = blocked()
    for ident, seconds in (("short", 20), ("long-one", 400)):
        story.submit(gpus(ident, 1, gang={"id": "g", "size": 2}, duration=seconds))
    story.step()
    told = story.scheduler.view.explain("short")
    numbers = {one["reason"]: one["numbers"] for one in (told, *told["secondary"])}
    assert numbers["behind_reservation"]["expected_seconds"] == 400


def test_who_fits_on_another_node_is_not_held_back_by_the_reserved_one() -> None:
    full = {"name": "full", "cpu": 4, "labels": {"zone": "z"}, "devices": [{"kind": "gpu", "count": 2}]}
    free = {"name": "free", "cpu": 4, "devices": [{"kind": "gpu", "count": 1}]}
    story = Story([full, free], config={"batch": {"max_wait": 0, "size": 1}})
    story.queue(name="team", limit={"gpu": 0.5})
    story.submit(gpus("r", 2, duration=100))
    story.submit({"id": "whale", "resources": {"gpu": 2, "cpu": 4}, "duration": 10})
    story.submit({"id": "behind", "resources": {"cpu": 2}, "node_selector": {"zone": "z"}})
    story.submit(gpus("w", 1, queue="team", duration=500))
    story.step()
    assert said(story, "behind") == ["behind_reservation"]
    assert said(story, "w") == ["queue_limit"], "it fits on `free` alone, and whale has `full`"
