"""What arrives: a mix of task classes, each with a weight, read from TOML; bodies ready to send.

    [[class]]
    name = "gpu-half"
    weight = 20
    task = { qos = "best_effort", resources = { cpu = 1, gpu = 0.5 }, duration = 0.5 }

Tasks are lease-only: the simulated agents hold their placement for `duration` seconds. A body is rendered once per class; a
task of its own costs two splices of bytes.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIXES = Path(__file__).parent / "mixes"
DEFAULT = "mixed"


class MixError(ValueError):
    """The mix cannot be used; the message says which class and why."""


class TaskClass(NamedTuple):
    """`kinds`: device kinds it asks for, empty for none."""

    name: str
    weight: float
    task: dict[str, Any]
    kinds: frozenset[str]


class Mix:
    """Weighted classes; draws them in vectors and renders their bodies."""

    def __init__(self, classes: list[TaskClass]) -> None:
        self.classes = classes
        weights = np.array([entry.weight for entry in classes])
        self._shares = np.cumsum(weights / weights.sum())
        self._tails = [json.dumps(entry.task, separators=(",", ":")).encode()[1:] for entry in classes]

    def draw(self, count: int, random: np.random.Generator) -> NDArray[np.uint8]:
        """Class index of each of `count` tasks."""
        drawn = np.searchsorted(self._shares, random.random(count), side="right")
        return np.minimum(drawn, len(self.classes) - 1).astype(np.uint8)

    def demand(self) -> dict[str, float]:
        """Core-seconds and device-seconds that a task holds, on average."""
        weight = sum(entry.weight for entry in self.classes)
        demand: dict[str, float] = {}
        for entry in self.classes:
            for what in {"cpu", *entry.kinds}:
                amount = entry.task.get("resources", {}).get(what, 0)
                if isinstance(
                    amount, int | float
                ):  # the long form says its amounts elsewhere; such classes are not counted
                    demand[what] = demand.get(what, 0.0) + amount * entry.task["duration"] * entry.weight / weight
        return demand

    def task(self, kind: int, identity: bytes) -> bytes:
        """JSON of one task of the class with this id."""
        return b'{"id":"%b",%b' % (identity, self._tails[kind])

    def bulk(self, tasks: list[tuple[int, bytes]]) -> bytes:
        """JSON list of (class, id)."""
        return b"[%b]" % b",".join(self.task(kind, identity) for kind, identity in tasks)

    def array(self, kind: int, identity: bytes, count: int) -> bytes:
        """JSON of an array job: ids `identity-0` … `identity-(count-1)`."""
        return b'{"template":%b,"count":%d}' % (self.task(kind, identity), count)


def read_mix(name: str) -> Mix:
    """A file's path, or the name of one in `loadtest/mixes`. Raises MixError."""
    path = Path(name) if name.endswith(".toml") else MIXES / f"{name}.toml"
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        known = ", ".join(sorted(entry.stem for entry in MIXES.glob("*.toml")))
        raise MixError(f"no mix {name!r}; there are: {known}, or name a .toml file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MixError(f"{path}: {error}") from None
    entries = table.get("class")
    if not isinstance(entries, list) or not 1 <= len(entries) <= 255:
        raise MixError(f"{path}: expected 1 to 255 tables [[class]]")
    return Mix([_class(path, number, entry) for number, entry in enumerate(entries)])


def _class(path: Path, number: int, entry: dict[str, Any]) -> TaskClass:
    where = f"{path}: class {number}"
    unknown = sorted(set(entry) - {"name", "weight", "task"})
    if unknown:
        raise MixError(f"{where}: unknown key {unknown[0]!r}; known: name, weight, task")
    task, weight = entry.get("task"), entry.get("weight", 1)
    if not isinstance(task, dict) or "id" in task or "command" in task:
        raise MixError(f"{where}: `task` is a table without `id` and without `command`")
    if not isinstance(task.get("duration"), int | float):
        raise MixError(f"{where}: a task needs `duration`, else nothing ends it")
    if not isinstance(weight, int | float) or not weight > 0:
        raise MixError(f"{where}: `weight` is a number above 0")
    kinds = frozenset(task.get("resources", {})) - {"cpu", "memory"}
    kinds = frozenset(kind for kind in kinds if not kind.endswith("_memory"))
    return TaskClass(str(entry.get("name", f"class-{number}")), float(weight), task, kinds)
