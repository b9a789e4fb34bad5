"""What arrives: a mix of task classes, each with a weight, read from TOML; bodies ready to send.

    [[class]]
    name = "gpu-half"
    weight = 20
    task = { qos = "best_effort", resources = { cpu = 1, gpu = 0.5 }, duration = 0.5 }

Tasks are lease-only: the simulated agents hold their placement for `duration` seconds; `durations = [...]` beside `task` gives each task one of
up to 16, with the same chance. Where a real agent runs the tasks (mode `process`) they have a `command` instead. A body is rendered once per
class and duration; a task of its own costs two splices of bytes.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

MIXES = Path(__file__).parent / "mixes"
DEFAULT = "mixed"
MOST_CLASSES = 255
MOST_DURATIONS = 16


class MixError(ValueError):
    """The mix cannot be used; the message says which class and why."""


class TaskClass(NamedTuple):
    """`kinds`: device kinds it asks for, empty for none. Classes that differ in their duration only share a name."""

    name: str
    weight: float
    task: dict[str, Any]
    kinds: frozenset[str]


class Mix:
    """Weighted classes; draws them in vectors and renders their bodies."""

    def __init__(self, classes: list[TaskClass]) -> None:
        self.classes = classes
        self.runs_processes = any("command" in entry.task for entry in classes)
        weights = np.array([entry.weight for entry in classes])
        self._shares = np.cumsum(weights / weights.sum())
        self._templates = [msgspec.Raw(msgspec.msgpack.encode(entry.task)) for entry in classes]
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
            holds_s = entry.task.get("duration", 0.0) * entry.weight / weight
            for what in {"cpu", *entry.kinds}:
                amount = entry.task.get("resources", {}).get(what, 0)
                if isinstance(
                    amount, int | float
                ):  # the long form says its amounts elsewhere; such classes are not counted
                    demand[what] = demand.get(what, 0.0) + amount * holds_s
        return demand

    def names(self) -> dict[str, list[int]]:
        """The classes by name."""
        found: dict[str, list[int]] = {}
        for number, entry in enumerate(self.classes):
            found.setdefault(entry.name, []).append(number)
        return found

    def asking(self, device_kind: str) -> list[int]:
        """The classes that ask for such devices."""
        return [number for number, entry in enumerate(self.classes) if device_kind in entry.kinds]

    def task(self, kind: int, identity: bytes) -> bytes:
        """JSON of one task of the class with this id."""
        return b'{"id":"%b",%b' % (identity, self._tails[kind])

    def bulk(self, tasks: list[tuple[int, bytes]]) -> bytes:
        """JSON list of (class, id)."""
        return b"[%b]" % b",".join(self.task(kind, identity) for kind, identity in tasks)

    def array(self, kind: int, identity: bytes, count: int) -> bytes:
        """JSON of an array job: ids `identity-0` … `identity-(count-1)`."""
        return b'{"template":%b,"count":%d}' % (self.task(kind, identity), count)

    def columns(self, kinds: NDArray[np.uint8], identities: bytes) -> bytes:
        """A body of columns (docs/http.md, "Very many"): the classes that occur as templates, and which of them each id is. `identities`:
        joined by newlines."""
        used, which = np.unique(kinds, return_inverse=True)
        return msgspec.msgpack.encode(
            {
                "templates": [self._templates[kind] for kind in used],
                "which": which.astype("<u2").tobytes(),
                "ids": identities,
            }
        )


def mix_path(name: str) -> Path:
    """Of a file's path, or of the name of one in `loadtest/mixes`."""
    return Path(name) if name.endswith(".toml") else MIXES / f"{name}.toml"


def read_mix(name: str) -> Mix:
    """By path or name. Raises MixError."""
    path = mix_path(name)
    try:
        table = tomllib.loads(path.read_text())
        json.dumps(table, allow_nan=False)  # neither NaN nor what only TOML has could be sent
    except FileNotFoundError:
        known = ", ".join(sorted(entry.stem for entry in MIXES.glob("*.toml")))
        raise MixError(f"no mix {name!r}; there are: {known}, or name a .toml file") from None
    except (OSError, ValueError, TypeError) as error:
        raise MixError(f"{path}: {error}") from None
    entries = table.get("class")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise MixError(f"{path}: expected tables [[class]]")
    classes = [
        each for number, entry in enumerate(entries) for each in _classes(f"{path}: class {number}", number, entry)
    ]
    if not 1 <= len(classes) <= MOST_CLASSES:
        raise MixError(f"{path}: 1 to {MOST_CLASSES} classes and durations are allowed, not {len(classes)}")
    if len({"command" in entry.task for entry in classes}) == 2:
        raise MixError(f"{path}: either all tasks have a `command` or none")
    return Mix(classes)


def _classes(where: str, number: int, entry: dict[str, Any]) -> list[TaskClass]:
    unknown = sorted(set(entry) - {"name", "weight", "task", "durations"})
    if unknown:
        raise MixError(f"{where}: unknown key {unknown[0]!r}; known: name, weight, task, durations")
    task, weight, durations = entry.get("task"), entry.get("weight", 1), entry.get("durations")
    if not isinstance(task, dict) or "id" in task:
        raise MixError(f"{where}: `task` is a table without `id`")
    if "command" not in task and isinstance(task.get("duration"), int | float) == isinstance(durations, list):
        raise MixError(f"{where}: a task has `duration`, `durations` or `command`, else nothing ends it")
    if durations is not None and not (
        isinstance(durations, list)
        and 1 <= len(durations) <= MOST_DURATIONS
        and all(isinstance(each, int | float) and each > 0 for each in durations)
        and "command" not in task
    ):
        raise MixError(f"{where}: `durations` are 1 to {MOST_DURATIONS} numbers above 0, of a task without `command`")
    if not isinstance(weight, int | float) or not weight > 0:
        raise MixError(f"{where}: `weight` is a number above 0")
    kinds = frozenset(task.get("resources", {})) - {"cpu", "memory"}
    kinds = frozenset(kind for kind in kinds if not kind.endswith("_memory"))
    name = str(entry.get("name", f"class-{number}"))
    tasks = [{**task, "duration": each} for each in durations] if durations else [task]
    return [TaskClass(name, float(weight) / len(tasks), each, kinds) for each in tasks]
