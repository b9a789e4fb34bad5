"""What one request to submit stands for: tasks and refusals, in the order of the body."""

from __future__ import annotations

import msgspec

from hetsched.errors import Problem
from hetsched.model.task import Task


class Rejection(msgspec.Struct, frozen=True):
    """Item `index` of a submission is refused; `id` as given, if it is a legal one."""

    index: int
    problem: Problem
    id: str | None = None


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """`single`: the body was one task object. `array`: (first id, count) where the ids are `ID-0 … ID-(count-1)`;
    first is "" where the template has no id: the scheduler then makes one up for the whole array."""

    single: bool
    items: list[Task | Rejection]
    array: tuple[str, int] | None = None
