"""How many attempts of each type and size of task are alive on each device model: what is being tried needs no more curiosity.

Counted from the first question on, which only comes where nodes are ranked by what was learned; before, it costs nothing. Follows from the
live attempts: a restart counts the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hetsched.policy.classify import task_type
from hetsched.policy.profiles import Class, size_class

if TYPE_CHECKING:
    from hetsched.scheduler.attempts import Attempt
    from hetsched.scheduler.books import Books


class Trying:
    """One of the books. `placed` and `over` are told of every attempt."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._where: dict[int, tuple[Class, str]] | None = None
        self._counts: dict[Class, Counter[str]] = {}

    @property
    def is_asked(self) -> bool:
        """Somebody has asked, so every attempt is counted."""
        return self._where is not None

    def of(self, key: Class) -> Mapping[str, int]:
        """By model; models without any may be missing."""
        if self._where is None:
            self._where = {}
            for task, attempt in self._books.attempts.live.items():
                self._count(task, attempt)
        return self._counts.get(key, {})

    def placed(self, task: int, attempt: Attempt) -> None:
        """It holds its devices from now on."""
        if self._where is not None:
            self._books.profiles.changed.add(self._count(task, attempt))

    def over(self, task: int) -> None:
        """The live attempt of the task, if there is one, is about to be over."""
        if not self._where or task not in self._where:
            return
        key, model = self._where.pop(task)
        self._counts[key][model] -= 1
        if not any(self._counts[key].values()):
            del self._counts[key]
        self._books.profiles.changed.add(key)

    def _count(self, task: int, attempt: Attempt) -> Class:
        assert self._where is not None
        body = self._books.body(task)
        key, model = (task_type(body), size_class(body.resources)), self._books.model_of(attempt)
        self._where[task] = key, model
        self._counts.setdefault(key, Counter())[model] += 1
        return key
