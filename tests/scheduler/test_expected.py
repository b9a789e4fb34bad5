"""What reservations count with is one number for all waiting tasks of a kind of which the same is said, whenever each of them came."""

from __future__ import annotations

import pytest

from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from hetsched.scheduler.snapshot import digest
from tests.scheduler.build import SECOND, Story, node


def on_earth(**config: object) -> Story:
    return Story([node("earth")], config={"batch": {"max_wait": 0, "size": 1}, **config})


def kind(**more: object) -> dict[str, object]:
    return {"kind": "training", "resources": {"cpu": 1}, **more}


def runs(story: Story, seconds: float, times: int, **more: object) -> None:
    """So many of the kind run so long."""
    for _ in range(times):
        ident = story.submit(kind(**more)).ids[0]
        story.now_ns += round(seconds * SECOND)
        story.end(ident)


def waits(story: Story, name: str, **more: object) -> None:
    """One of the kind waits for a node that is not there, in words of its own."""
    story.submit(kind(id=name, node_selector={"site": "moon"}, labels={"name": name}, **more))


def expected(scheduler: Scheduler, name: str) -> tuple[float, float]:
    """Seconds: (nine in ten have ended, half have ended)."""
    expected_ns, typical_ns = scheduler.core.expected(scheduler.core.find(name.encode()))
    return expected_ns / SECOND, typical_ns / SECOND


@pytest.mark.parametrize("said", [{}, {"estimate": 50}, {"duration": 50}, {"time_limit": 50}])
def test_at_every_moment_all_of_a_kind_are_expected_to_run_as_long(said: dict[str, int]) -> None:
    story, names = on_earth(), []
    for seconds in (10, 10, 10, 20, 100, 30, 10, 10, 70, 100, 100):
        names.append(f"waits-{len(names)}")
        waits(story, names[-1], **said)
        runs(story, seconds, 3, **said)
        assert len({expected(story.scheduler, name) for name in names}) == 1
    again = story.replayed()
    assert [expected(again, name) for name in names] == [expected(story.scheduler, name) for name in names]
    assert digest(again.books) == digest(story.scheduler.books)


def test_what_was_learned_goes_before_a_limit_and_before_nothing() -> None:
    story = on_earth()
    waits(story, "silent")
    waits(story, "limited", time_limit=500)
    assert expected(story.scheduler, "silent") == (0, 0)
    assert expected(story.scheduler, "limited") == (500, 500)
    runs(story, 10, 9)
    assert expected(story.scheduler, "silent") == expected(story.scheduler, "limited") == (10, 10)


def test_a_lease_lasts_as_long_as_it_says() -> None:
    story = on_earth()
    waits(story, "lease", duration=5)
    runs(story, 10, 9)
    assert expected(story.scheduler, "lease") == (5, 5)


def test_an_estimate_stands_until_what_was_learned_is_nearer() -> None:
    story = on_earth()
    waits(story, "guessed", estimate=50)
    runs(story, 10, 3, estimate=10)
    assert expected(story.scheduler, "guessed") == (50, 50)
    runs(story, 10, 9, estimate=900)
    assert expected(story.scheduler, "guessed") == (10, 10)


def test_kinds_that_nobody_waits_for_leave_their_place_to_others() -> None:
    story = on_earth(limits={"retention_tasks": 1})
    for size in (1, 2, 4, 8):
        for _ in range(4):
            ident = story.submit({"kind": "training", "resources": {"cpu": size}}).ids[0]
            story.now_ns += size * SECOND
            story.end(ident)
    waits(story, "small")
    assert expected(story.scheduler, "small") == (1, 1)
    slots = {story.scheduler.core.expectation_slot(slot) for slot in story.scheduler.books.templates.by_slot}
    assert slots == {0, 1}


def test_what_is_imported_is_expected_of_those_that_wait_already() -> None:
    taught = on_earth()
    runs(taught, 10, 9)
    story = on_earth()
    waits(story, "early")
    story.ask(m.ImportProfiles(profiles=tuple(taught.scheduler.books.profiles.by_key.values())))
    assert expected(story.scheduler, "early") == (10, 10)
