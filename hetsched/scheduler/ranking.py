"""Tells the core how good each node is for each shape, as far as words and floats decide it; and tells people why.

A shape is told when it is new, when nodes came or changed, when what was learned of its type moved, or when a plug-in was dropped and may
be asked again; only while tasks of it wait. Presets that the core knows by itself cost nothing here. Scores are derived: a restart tells
them again before it decides anything.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched._core import Core
from hetsched.model import NodeSpec
from hetsched.policy.presets import is_blended, is_learning
from hetsched.policy.profiles import Class, size_class
from hetsched.policy.rows import preset_row
from hetsched.policy.shape import ShapeWords
from hetsched.policy.speeds import NOTHING, TRYING_RUNS, Shown
from hetsched.scheduler.books import Books
from hetsched.scheduler.scarce import Scarce
from hetsched.scheduler.templates import ShapeKey

if TYPE_CHECKING:
    from hetsched.policy.blend import Blend
    from hetsched.policy.fleet import Fleet
    from hetsched.policy.scorers import Scorers

FEW_RUNS = 8
MEDIAN_STEPS = 16
"""A learned median must move by a sixteenth of a doubling (4 %) before the shapes of its type are told again."""


class Ranking:
    """One per scheduler. `refresh` goes before every decision."""

    def __init__(self, books: Books, scorers: Scorers | None = None) -> None:
        self.books = books
        self.is_blended = is_blended(books.config.policy)
        self._blend: Blend | None = None
        self._fleet: Fleet | None = None
        self._nodes_version = self._fleet_version = -1
        self._known = 0
        self._stale: set[int] = set()
        self._dropped: set[int] = set()
        self._speeds: dict[Class, dict[str, tuple[int, int]]] = {}
        self.scarce = Scarce()
        self._is_learning = is_learning(books.config.policy)
        if self.is_blended:
            self._blend = _new_blend(books, scorers)
            self._scorers = self._blend.scorers

    # -- before every decision

    def refresh(self) -> None:
        """Tell what changed."""
        if self._blend is None:
            self.books.profiles.changed.clear()
            return
        shapes = self.books.templates.shapes
        self._stale.update(range(self._known, len(shapes)))
        self._known = len(shapes)
        if self.books.cluster.version != self._nodes_version:
            self._nodes_version = self.books.cluster.version
            self._stale.update(range(self._known))
        self._hear_learned()
        self._price_models()
        if self._scorers.begin():
            self._stale |= self._dropped
            self._dropped.clear()
        core = self.books.core
        due = sorted(shape for shape in self._stale if core.shape_pending(shape))
        if not due:
            return
        fleet = self.fleet
        self._blend.scarce, self._blend.off = self.scarce.by_model, self.scarce.off
        self._blend.begin()
        for shape in due:
            self._tell(core, shape, fleet)
            self._stale.discard(shape)

    def _tell(self, core: Core, shape: int, fleet: Fleet) -> None:
        assert self._blend is not None
        told = self._blend.told(shape_words(self.books.templates.shapes[shape]), fleet)
        models = [self.books.models.slot(model) for model in told.models]
        core.set_shape_scores(shape, told.scores, told.weights, told.level_top, models)
        if told.dropped:
            self._dropped.add(shape)

    def _hear_learned(self) -> None:
        """Shapes of types whose learned speeds moved are stale."""
        moved = {key for key in self.books.profiles.changed if self._has_moved(key)}
        self.books.profiles.changed.clear()
        for shape, key in enumerate(self.books.templates.shapes[: self._known]) if moved else ():
            if (key.task_type, size_class(key.resources)) in moved:
                self._stale.add(shape)

    def _price_models(self) -> None:
        """If models are scarcer or less scarce than they were, all shapes that ask for devices are stale."""
        devices = (device for node in self.books.cluster.by_name.values() for device in node.spec.devices)
        if self._is_learning and self.scarce.turn(self.books, devices):
            shapes = enumerate(self.books.templates.shapes[: self._known])
            self._stale.update(shape for shape, key in shapes if key.resources.devices)

    def _has_moved(self, key: Class) -> bool:
        """Every one of the first runs counts; later ones where they move the median."""
        speeds = {
            model: (
                min(one.runs + TRYING_RUNS * one.trying, FEW_RUNS),
                round(math.log2(max(1, one.median_ms)) * MEDIAN_STEPS),
            )
            for model, one in _shown(self.books, *key).items()
        }
        if self._speeds.get(key, {}) == speeds:
            return False
        if len(self._speeds) >= self.books.profiles.limit:
            self._speeds.clear()  # those of profiles that are long gone; the rest is told once more
        self._speeds[key] = speeds
        return True

    @property
    def fleet(self) -> Fleet:
        """The nodes as arrays, as they are now; made from the last one where few changed."""
        from hetsched.policy.fleet import Fleet  # numpy, only where it is needed

        now = {node.slot: node.spec for node in self.books.cluster.by_name.values()}
        if self._fleet is None:
            self._fleet = Fleet(now.items())
        elif self._fleet_version != self.books.cluster.version:
            gone = [(slot, None) for slot, spec in enumerate(self._fleet.specs) if spec is not None and slot not in now]
            self._fleet = self._fleet.changed([*gone, *self._differing(self._fleet, now)])
        self._fleet_version = self.books.cluster.version
        return self._fleet

    @staticmethod
    def _differing(fleet: Fleet, now: dict[int, NodeSpec]) -> list[tuple[int, NodeSpec]]:
        return [(slot, spec) for slot, spec in now.items() if slot >= fleet.size or fleet.specs[slot] is not spec]

    # -- for people

    def explain(self, task: int) -> list[dict[str, Any]]:
        """Every term by which the node of a task ranked that is on one: of what the core weighs the value of now, see `policy/rows.py`."""
        core = self.books.core
        milli, lost = core.ranked(task)
        of_core = {name: value / 1000 for name, value in milli.items()}
        if self._blend is None:
            return [preset_row(self.books.config.policy.preset, 1.0, of_core.get("preset"), lost)]
        placement = core.placement(task)
        assert placement is not None, "the core has just told its terms"
        words = shape_words(self.books.templates.shapes[core.task(task).shape])
        return self._blend.explain(words, self.fleet, placement.node, of_core, lost)

    def dropped(self) -> dict[tuple[str, str], int]:
        """How often which plug-in gave nothing, by (scorer, reason)."""
        return {} if self._blend is None else dict(self._scorers.dropped)


def shape_words(key: ShapeKey) -> ShapeWords:
    """What policies may know of the shape."""
    return ShapeWords(
        task_type=key.task_type,
        cpu_milli=key.resources.cpu_milli,
        memory_bytes=key.resources.memory_bytes,
        asks=key.resources.devices,
        pattern=key.pattern,
        data=key.data,
        size=size_class(key.resources),
    )


def _new_blend(books: Books, scorers: Scorers | None) -> Blend:
    from hetsched.policy.blend import Blend  # numpy, only where it is needed
    from hetsched.policy.scorers import Scorers, load_scorers

    policy = books.config.policy
    return Blend(policy, scorers or Scorers(load_scorers(policy.scorers)), partial(_shown, books))


def _shown(books: Books, task_type: str, size: str) -> dict[str, Shown]:
    """What each model has shown for a type and size, and is about to."""
    shown = books.profiles.shown(task_type, size)
    for model, count in books.trying.of((task_type, size)).items():
        shown[model] = msgspec.structs.replace(shown.get(model, NOTHING), trying=count)
    return shown
