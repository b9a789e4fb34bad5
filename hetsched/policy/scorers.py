"""Plug-ins: a scorer gets a shape in words and the fleet as arrays and returns a number from 0 to 1 a node slot, 1 best.

Installed packages offer them by entry points of the group `hetsched.scorers`; only those that the configuration names with a weight
(`policy.scorers`) are loaded and asked. A scorer that raises, or returns something else than numbers of the right length, is named,
dropped from that decision and counted; so is one over its time in a daemon, which asks them on threads (`daemon/scorers.py`). Here, in
the simulator, they are asked in line: virtual time stands still, and the same seed must give the same bytes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from hetsched.errors import ConfigError
from hetsched.policy.fleet import Fleet, Vector
from hetsched.policy.shape import ShapeWords

GROUP = "hetsched.scorers"

log = logging.getLogger(__name__)


class Scorer(Protocol):
    """What an entry point leads to. Called when a shape or the nodes changed, never per task. It must not keep or change `fleet`."""

    def __call__(self, shape: ShapeWords, fleet: Fleet) -> ArrayLike: ...


def load_scorers(names: Iterable[str]) -> dict[str, Scorer]:
    """The scorers of these names. Raises ConfigError where one is not installed or cannot be loaded."""
    wanted = list(names)
    found = {point.name: point for point in entry_points(group=GROUP)} if wanted else {}
    out: dict[str, Scorer] = {}
    for name in wanted:
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise ConfigError(f"policy.scorers: no scorer {name} is installed (entry points {GROUP}: {known})")
        try:
            out[name] = found[name].load()
        except Exception as error:  # a plug-in's import may raise anything
            raise ConfigError(f"policy.scorers: {name} cannot be loaded: {error!r}") from error
    return out


class Scorers:
    """Asks them in line. `dropped`: how often which scorer gave nothing, by (name, reason)."""

    def __init__(self, scorers: Mapping[str, Scorer] | None = None) -> None:
        self.scorers = dict(scorers or {})
        self.dropped: Counter[tuple[str, str]] = Counter()

    def begin(self) -> bool:
        """Called before the shapes of one decision are told. True: what was dropped earlier may be asked again."""
        return False

    def score(self, shape: ShapeWords, fleet: Fleet, names: Iterable[str]) -> dict[str, Vector]:
        """A vector a scorer; those that gave nothing are missing."""
        out = {}
        for name in names:
            vector = self._ask(name, shape, fleet)
            if vector is not None:
                out[name] = vector
        return out

    def _ask(self, name: str, shape: ShapeWords, fleet: Fleet) -> Vector | None:
        try:
            return checked(self.scorers[name](shape, fleet), fleet)
        except Exception as error:  # a plug-in may raise anything
            self.drop(name, "raised", repr(error))
            return None

    def drop(self, name: str, reason: str, detail: str) -> None:
        """Count it, and say it once in a while: at the 1st, 2nd, 4th, 8th time."""
        self.dropped[name, reason] += 1
        count = self.dropped[name, reason]
        if count & (count - 1) == 0:
            log.warning("scorer %s dropped from a decision: %s (%s), %d times so far", name, reason, detail, count)


def checked(answer: ArrayLike, fleet: Fleet) -> Vector:
    """The answer as a vector within 0..1. ValueError if it is none."""
    vector = np.asarray(answer, dtype=np.float64)
    if vector.shape != (fleet.size,):
        raise ValueError(f"an array of shape {vector.shape} where ({fleet.size},) is due")
    if not np.isfinite(vector[fleet.present]).all():
        raise ValueError("a score that is not finite")
    return np.clip(np.where(fleet.present, vector, 0.0), 0.0, 1.0)
