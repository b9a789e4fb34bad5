"""How long tasks are expected to run, as the core is told: what each template's submitter says, and what was learned of its type and size.

Promises: what was learned is one record for all tasks of a type and size, told anew whenever more is learned, so that all of them count with
the same at every moment, whenever they came, and telling costs the same however many templates there are. A replay tells the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from hetsched import _core
from hetsched._core import Core
from hetsched.model import Task
from hetsched.policy.profiles import Class, Expectation, Profiles, class_of, said_of
from hetsched.scheduler.templates import Template


class Expectations:
    """Slots of the core's expectations: the lowest that is free for each type and size that some template has."""

    def __init__(self, core: Core, profiles: Profiles) -> None:
        self._core = core
        self._profiles = profiles
        self._slots: dict[Class, int] = {}
        self._templates: dict[Class, int] = {}
        self._free: list[int] = []  # a heap

    def enter(self, template: int, task: Task) -> None:
        """Tasks begin to name this template."""
        of_class = class_of(task)
        if of_class not in self._slots:
            self._slots[of_class] = heapq.heappop(self._free) if self._free else len(self._slots)
            self._templates[of_class] = 0
            self.tell(of_class)
        self._templates[of_class] += 1
        said_s, trust = said_of(task)
        self._core.set_template(
            template,
            said_ns=round(said_s * 1e9),
            grace_ns=round(task.grace * 1e9),
            expectation=self._slots[of_class],
            trust=trust,
        )

    def leave(self, task: Task) -> None:
        """No task names a template of such tasks any more."""
        of_class = class_of(task)
        self._templates[of_class] -= 1
        if self._templates[of_class] == 0:
            self._tell(self._slots[of_class], Expectation())
            heapq.heappush(self._free, self._slots.pop(of_class))
            del self._templates[of_class]

    def tell(self, of_class: Class) -> None:
        """What is known of a type and size has changed."""
        if of_class in self._slots:
            self._tell(self._slots[of_class], self._profiles.expectation(of_class))

    def _tell(self, slot: int, known: Expectation) -> None:
        self._core.set_expectation(
            slot,
            expected_ns=round(known.expected_s * 1e9),
            typical_ns=round(known.typical_s * 1e9),
            efficiency_milli=known.efficiency_milli,
            beats_estimates=known.beats_estimates,
        )

    def load(self, templates: Iterable[Template]) -> None:
        """The core has been loaded: its templates say which slots are whose, but for those of versions that had no slots."""
        new = []
        for template in templates:
            slot = self._core.expectation_slot(template.slot)
            if slot == _core.NONE:
                new.append(template)
                continue
            of_class = class_of(template.task)
            self._slots[of_class] = slot
            self._templates[of_class] = self._templates.get(of_class, 0) + 1
        self._free = sorted(set(range(max(self._slots.values(), default=-1) + 1)) - set(self._slots.values()))
        for template in new:
            self.enter(template.slot, template.task)
