"""Tells the core how good each node is for each shape, as far as words and floats decide it; and tells people why.

A shape is told when it is new, when nodes came or changed, when what was learned of its type moved, or when a plug-in was dropped and may
be asked again; only while tasks of it wait. Presets that the core knows by itself cost nothing here. Scores are derived: a restart tells
them again before it decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetsched._core import Core
from hetsched.policy.presets import is_blended
from hetsched.policy.profiles import size_class
from hetsched.policy.shape import ShapeWords
from hetsched.scheduler.books import Books
from hetsched.scheduler.templates import ShapeKey

if TYPE_CHECKING:
    from hetsched.policy.blend import Blend
    from hetsched.policy.fleet import Fleet
    from hetsched.policy.scorers import Scorers

EFFICIENCY_STEPS = 32
"""A learned speed must move by one of so many steps before the shapes of its type are told again."""

CORE_TERMS = ("load",)
"""Terms of the core whose value now still says something of a task that is there; the others speak of the moment of placing."""


class Ranking:
    """One per scheduler. `refresh` goes before every decision."""

    def __init__(self, books: Books, scorers: Scorers | None = None) -> None:
        self.books = books
        self.is_blended = is_blended(books.config.policy)
        self._blend: Blend | None = None
        self._fleet: Fleet | None = None
        self._nodes_version = -1
        self._known = 0
        self._stale: set[int] = set()
        self._dropped: set[int] = set()
        self._speeds: dict[tuple[str, str], dict[str, int]] = {}
        if self.is_blended:
            self._blend = _new_blend(books, scorers)
            self._scorers = self._blend.scorers

    # -- before every decision

    def refresh(self) -> None:
        """Tell what changed."""
        if self._blend is None:
            return
        shapes = self.books.templates.shapes
        self._stale.update(range(self._known, len(shapes)))
        self._known = len(shapes)
        if self.books.cluster.version != self._nodes_version:
            self._nodes_version, self._fleet = self.books.cluster.version, None
            self._stale.update(range(self._known))
        self._hear_learned()
        if self._scorers.begin():
            self._stale |= self._dropped
            self._dropped.clear()
        core = self.books.core
        for shape in sorted(shape for shape in self._stale if core.shape_pending(shape)):
            self._tell(core, shape)
            self._stale.discard(shape)

    def tell_all(self, core: Core) -> None:
        """The same to a copy of the core (a rehearsal has no scores: they are derived)."""
        if self._blend is not None:
            for shape in range(len(self.books.templates.shapes)):
                self._tell(core, shape)

    def _tell(self, core: Core, shape: int) -> None:
        assert self._blend is not None
        told = self._blend.told(shape_words(self.books.templates.shapes[shape]), self.fleet)
        core.set_shape_scores(shape, told.scores, told.weights, told.level_top)
        if told.dropped:
            self._dropped.add(shape)

    def _hear_learned(self) -> None:
        """Shapes of types whose learned speeds moved are stale."""
        changed = self.books.profiles.changed
        if not changed:
            return
        moved = {
            (profile.task_type, profile.size) for profile in self.books.profiles.of() if profile.task_type in changed
        }
        changed.clear()
        moved = {key for key in moved if self._has_moved(key)}
        for shape, key in enumerate(self.books.templates.shapes[: self._known]) if moved else ():
            if (key.task_type, size_class(key.resources)) in moved:
                self._stale.add(shape)

    def _has_moved(self, key: tuple[str, str]) -> bool:
        speeds = {
            model: round(speed * EFFICIENCY_STEPS) for model, speed in self.books.profiles.efficiency(*key).items()
        }
        if self._speeds.get(key, {}) == speeds:
            return False
        self._speeds[key] = speeds
        return True

    @property
    def fleet(self) -> Fleet:
        """The nodes as arrays, as they are now."""
        if self._fleet is None or self.books.cluster.version != self._nodes_version:
            from hetsched.policy.fleet import Fleet  # numpy, only where it is needed

            self._nodes_version = self.books.cluster.version
            self._fleet = Fleet((node.slot, node.spec) for node in self.books.cluster.by_name.values())
        return self._fleet

    # -- for people

    def explain(self, shape: int, node_slot: int) -> list[dict[str, Any]]:
        """Every term that the node was ranked by; empty where the preset is the core's own."""
        if self._blend is None:
            return []
        free_milli = self.books.core.shape_terms(shape, node_slot)[1]
        of_core = dict.fromkeys(CORE_TERMS, free_milli / 1000)
        return self._blend.explain(shape_words(self.books.templates.shapes[shape]), self.fleet, node_slot, of_core)

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
    return Blend(policy, scorers or Scorers(load_scorers(policy.scorers)), books.profiles.efficiency)
