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

    def refusal(self) -> Problem | None:
        """One Problem where nothing of it was legal (an API answers with it), else None.

        Pointers are from the body: "/3/resources/cpu" of a list's fourth task.
        """
        refused = [item for item in self.items if isinstance(item, Rejection)]
        if len(refused) < len(self.items) or not refused:
            return None
        first = refused[0].problem
        if self.single:
            return first
        if all(item.problem is first for item in refused):
            return first.under("/template")
        moved = [refusal.problem.under(f"/{refusal.index}") for refusal in refused[:_MOST_LISTED]]
        errors = [error for problem in moved for error in problem.errors][:_MOST_LISTED]
        return Problem(f"all {len(refused)} tasks are refused; the first: {first.detail}", errors=errors)


_MOST_LISTED = 50
