"""What reservations count with is one number for all waiting tasks of a kind of which the same is said, whenever each of them came."""

from __future__ import annotations

import pytest

from hetsched.scheduler import Scheduler
from tests.scheduler.build import SECOND, Story, node


def on_earth() -> Story:
    return Story([node("earth")], config={"batch": {"max_wait": 0, "size": 1}})


def kind(**more: object) -> dict[str, object]:
    return {"kind": "training", "resources": {"cpu": 1}, **more}


def runs(story: Story, seconds: float, times: int) -> None:
    """So many of the kind run so long."""
    for _ in range(times):
        ident = story.submit(kind()).ids[0]
        story.now_ns += round(seconds * SECOND)
        story.end(ident)


def waits(story: Story, name: str, **more: object) -> None:
    """One of the kind waits for a node that is not there."""
    story.submit(kind(id=name, node_selector={"site": "moon"}, labels={"name": name}, **more))


def expected(scheduler: Scheduler, name: str) -> tuple[float, float]:
    """Seconds: (nine in ten have ended, half have ended)."""
    by_slot = scheduler.books.templates.by_slot
    slot = next(slot for slot, template in by_slot.items() if template.task.labels.get("name") == name)
    expected_ns, typical_ns, _ = scheduler.core.expected(slot)
    return expected_ns / SECOND, typical_ns / SECOND


@pytest.mark.parametrize("said", [{}, {"estimate": 50}, {"duration": 50}, {"time_limit": 50}])
def test_who_comes_later_is_expected_to_run_as_long_as_its_like(said: dict[str, int]) -> None:
    story = on_earth()
    runs(story, 10, 9)
    waits(story, "early", **said)
    at_first = expected(story.scheduler, "early")
    runs(story, 100, 20)
    waits(story, "late", **said)
    assert expected(story.scheduler, "early") == expected(story.scheduler, "late") == at_first
    again = story.replayed()
    assert expected(again, "late") == at_first

    runs(story, 100, 64)
    waits(story, "last", **said)
    told = {name: expected(story.scheduler, name) for name in ("early", "late", "last")}
    assert len(set(told.values())) == 1


def test_all_are_told_when_enough_more_has_been_learned() -> None:
    story = on_earth()
    runs(story, 10, 9)
    waits(story, "early")
    runs(story, 100, 64)
    assert expected(story.scheduler, "early") == (100, 100)


def test_who_says_something_else_is_thought_of_by_itself() -> None:
    story = on_earth()
    waits(story, "short", duration=5)
    waits(story, "long", duration=500)
    waits(story, "silent")
    assert [expected(story.scheduler, name)[0] for name in ("short", "long", "silent")] == [5, 500, 0]
