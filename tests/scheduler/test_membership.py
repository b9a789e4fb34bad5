"""What a task of many finds in its environment."""

from __future__ import annotations

import pytest

from hetsched import wire
from hetsched.model import Task
from hetsched.scheduler.membership import membership_env
from tests.scheduler.build import Story, node, task


def env_of(story: Story, ident: str) -> dict[str, str]:
    return next(o.message.env for o in story.orders if isinstance(o.message, wire.Start) and o.message.task == ident)


def test_an_arrays_task_is_told_its_index_beside_its_own_environment() -> None:
    story = Story([node("n1")])
    story.submit({"template": task("a", command=["true"], env={"OWN": "1"}), "count": 3})
    story.wait(1)
    assert env_of(story, "a-2") == {"OWN": "1", "HETSCHED_ARRAY_INDEX": "2"}


def test_a_gangs_member_is_told_the_gang_and_nobody_can_pretend_another() -> None:
    story = Story([node("n1")])
    pretends = {"HETSCHED_GANG": "other"}
    story.submit([task(name, gang={"id": "g", "size": 2}, command=["true"], env=pretends) for name in ("x", "y")])
    story.wait(1)
    assert env_of(story, "x") == {"HETSCHED_GANG": "g", "HETSCHED_GANG_SIZE": "2"}


@pytest.mark.parametrize("ident", ["a", "a-", "a-07", "a-x1", "7", "a-12345678901", "a-1/b", "a-1\n"])
def test_an_id_without_a_number_at_its_end_has_no_index(ident: str) -> None:
    assert membership_env(ident, Task()) == {}
