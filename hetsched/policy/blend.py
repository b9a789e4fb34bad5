"""A shape's terms into what the core needs: one byte a node and integer weights; and the same in words, for `explain`.

Presets and configuration say what is weighed by how much (presets.py); plug-ins are terms like any other, under their own names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from hetsched._core import TERM_NAMES
from hetsched.config import Policy
from hetsched.policy import presets, terms
from hetsched.policy.fleet import Fleet, Vector
from hetsched.policy.rows import preset_row, term_row
from hetsched.policy.scorers import Scorers
from hetsched.policy.shape import ShapeWords
from hetsched.policy.speeds import Shown, speeds

LEVELS_ALL = 7
LEVELS_WITHOUT_DATA = 3
"""Where `performance` or `locality` is weighed, holding the data is part of the sum and no longer a class above all others."""

ANSWERS_KEPT = 256
"""Shapes whose last answers of plug-ins are kept for `explain`."""

_COMPUTED: dict[str, Callable[[ShapeWords, Fleet, float], Vector]] = {
    "performance": terms.performance,
    "delay": terms.delay,
    "power": terms.power,
    "priority": terms.priority,
    "locality": lambda shape, fleet, _: terms.locality(shape, fleet),
}


class Told(msgspec.Struct, frozen=True):
    """What the core is told of a shape. `dropped`: plug-ins that gave nothing this time, so the shape should be told again. `models`:
    which devices it takes first on boards that have several models, best first."""

    scores: bytes
    weights: tuple[int, ...]
    level_top: int
    dropped: tuple[str, ...]
    models: tuple[str, ...] = ()


class Blend:
    """Ranks shapes under one configuration. `shown`: by (task type, size), what each model has shown. `scarce`, `off`: by model, see `scarcity`
    and `speeds.misjudged`."""

    def __init__(
        self, config: Policy, scorers: Scorers, shown: Callable[[str, str], Mapping[str, Shown]] = lambda *_: {}
    ) -> None:
        self._config = config
        self.scorers = scorers
        self._shown = shown
        self._same: dict[tuple[object, ...], Told] = {}
        self._answers: dict[ShapeWords, dict[str, Vector]] = {}
        self.scarce: Mapping[str, float] = {}
        self.off: Mapping[str, float] = {}

    def begin(self) -> None:
        """Nodes and what is learned may have changed since; from here on until the next time they do not."""
        self._same.clear()

    def weights(self, task_type: str) -> dict[str, float]:
        """Terms and plug-ins with a weight for this type of task."""
        own = presets.weights_of(self._config.preset, task_type, self._config.weights, self._config.types)
        return {**own, **{name: weight for name, weight in self._config.scorers.items() if weight > 0}}

    def told(self, shape: ShapeWords, fleet: Fleet) -> Told:
        """What the core is told. Without plug-ins, shapes that differ in amounts only share it."""
        if self._config.scorers:
            return self._sum(shape, fleet)
        is_mixed = fleet.is_mixed(shape.asks)  # then it counts how many of the fastest are wanted
        asks = tuple((ask.kind, ask.models, is_mixed and ask.whole + ask.parts) for ask in shape.asks)
        key = (shape.task_type, shape.pattern, shape.data, shape.size, asks)
        found = self._same.get(key)
        if found is None:
            found = self._same[key] = self._sum(shape, fleet)
        return found

    def _sum(self, shape: ShapeWords, fleet: Fleet) -> Told:
        """The told terms summed into bytes. Alone they are stretched over the whole byte; beside terms of the core they keep their size."""
        weights = self.weights(shape.task_type)
        vectors = self._computed(shape, fleet, weights) | self._asked(shape, fleet, weights)
        asked = [name for name in weights if name not in TERM_NAMES]
        total = sum(weights[name] for name in vectors)
        value = sum((weights[name] * vector for name, vector in vectors.items()), np.zeros(fleet.size))
        value = value / total if total else value
        of_core = [round(weights.get(name, 0.0) * 1000) for name in TERM_NAMES[1:]]
        if not any(of_core):
            value = _stretched(value, fleet)
        return Told(
            scores=np.rint(np.where(fleet.present, value, 0.0) * 255).astype(np.uint8).tobytes(),
            weights=(max(1, round(total * 1000)) if total or not any(of_core) else 0, *of_core),
            level_top=LEVELS_WITHOUT_DATA if {"performance", "locality"} & weights.keys() else LEVELS_ALL,
            dropped=tuple(name for name in asked if name not in vectors),
            models=self._liked(shape, fleet, weights),
        )

    def _liked(self, shape: ShapeWords, fleet: Fleet, weights: Mapping[str, float]) -> tuple[str, ...]:
        """Fastest first, where speed is weighed and some board has several models; as the cost model has it, and as learned."""
        if (
            not {"performance", "learned"} & weights.keys()
            or shape.pattern == "control-heavy"
            or not fleet.is_mixed(shape.asks)
        ):
            return ()
        shown = self._shown(shape.task_type, shape.size) if weights.get("learned") else {}
        is_tensor = (shape.pattern or terms.pattern_of(shape.asks)) == "tensor-op"
        by_model = speeds(shown, fleet.different_devices(shape.asks), is_tensor=is_tensor, off=self.off)
        return tuple(sorted(filter(None, by_model), key=lambda model: (-by_model[model], model)))

    def _computed(self, shape: ShapeWords, fleet: Fleet, weights: Mapping[str, float]) -> dict[str, Vector]:
        out = {
            name: compute(shape, fleet, self._config.locality)
            for name, compute in _COMPUTED.items()
            if weights.get(name)
        }
        if weights.get("learned"):
            shown = self._shown(shape.task_type, shape.size)
            out["learned"] = terms.learned(shape, fleet, shown, self.scarce, self.off)
        return out

    def _asked(self, shape: ShapeWords, fleet: Fleet, weights: Mapping[str, float]) -> dict[str, Vector]:
        """What the plug-ins say; kept for `explain`, which must not ask them: whoever reads would else spend their time."""
        names = [name for name in self._config.scorers if name in weights]
        if not names:
            return {}
        answers = self.scorers.score(shape, fleet, names)
        self._answers.pop(shape, None)
        self._answers[shape] = answers
        if len(self._answers) > ANSWERS_KEPT:
            del self._answers[next(iter(self._answers))]
        return answers

    def explain(
        self, shape: ShapeWords, fleet: Fleet, slot: int, of_core: Mapping[str, float], lost: Mapping[str, int]
    ) -> list[dict[str, Any]]:
        """Every term that was weighed: its value on this node (`of_core`: the core's; `lost`: see `preset_row`; None: a plug-in gave nothing),
        weight, meaning and source. Nor is anything known of a plug-in that was not asked about such a shape since the start, or not lately."""
        weights = self.weights(shape.task_type)
        answers = self._answers.get(shape)
        vectors = self._computed(shape, fleet, weights) | (answers or {})
        rows = []
        for name, weight in weights.items():
            value = float(vectors[name][slot]) if name in vectors and slot < vectors[name].size else of_core.get(name)
            if name == "preset":
                rows.append(preset_row(self._config.preset, weight, value, lost))
            else:
                rows.append(
                    term_row(name, presets.TERMS.get(name) or self._plug_in(name, value, answers), weight, value)
                )
        return rows

    def _plug_in(self, name: str, value: float | None, answers: Mapping[str, Vector] | None) -> presets.Term:
        scorer = self.scorers.scorers.get(name)
        where = ":".join(str(getattr(scorer, part, "?")) for part in ("__module__", "__qualname__"))
        what = f"the plug-in {name}"
        if value is None:
            is_dropped = answers is not None and name not in answers
            what += f" ({'it gave nothing: dropped from the decision' if is_dropped else 'not asked about this, or long ago'})"
        return presets.Term(what, f"{where}, policy.scorers.{name}")


def _stretched(value: Vector, fleet: Fleet) -> Vector:
    """The worst present node 0, the best 1: order is all that counts where nothing is added to it, and a byte is short."""
    present = value[fleet.present]
    if present.size == 0 or present.max() <= present.min():
        return value
    stretched: Vector = np.clip((value - present.min()) / (present.max() - present.min()), 0.0, 1.0)
    return stretched
