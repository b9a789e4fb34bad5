"""The forms in which tasks are submitted (CONTRACT, section 3), read into one flat list of tasks and refusals.

    {...task}   [form, ...]   {"tasks": [form, ...]}   {"template": {...}, "count": N}   {"template": {...}, "tasks": [{...}, ...]}

A fault of one task refuses that task alone; only a body whose form cannot be told is refused whole. `spots` tells where in the body each item
of that list stands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from hetsched.errors import Problem
from hetsched.model import reader
from hetsched.model.read_task import DEFAULTS, FIELD_READERS, TaskDefaults, legal_id, parse_task
from hetsched.model.reader import Faults
from hetsched.model.submission import Rejection, Submission
from hetsched.model.task import Task
from hetsched.quantity import type_name

DEEPEST = 4
"""Lists within lists; scenario files use one."""

LONGEST_ID = 128
GRAPH_APART = (
    "a graph of operators is no task: what stands below goes to POST /v1/graphs, and cannot be planned as a whole"
)
_LIGHT = frozenset({"id", "name", "priority", "deadline", "estimate", "duration"})
"""Fields of an array's entry that touch no rule between fields: such an entry is read alone, not merged and read again."""


def parse_submission(raw: object, defaults: TaskDefaults = DEFAULTS) -> Submission:
    """Read any of the forms. Raises Problem only where the whole body is refused; pointers are from the body then, else from the task."""
    if isinstance(raw, list | tuple):
        return Submission(single=False, items=_read_list(raw, "", defaults, 1))
    if not isinstance(raw, dict):
        raise Problem.at("", f"must be a task, a list of tasks or an array job, not {type_name(raw)}")
    if "graph" in raw:
        raise Problem.at("/graph", GRAPH_APART)
    if "template" in raw:
        return _read_array(raw, defaults)
    if "tasks" in raw:
        _only(raw, ("tasks",))
        return Submission(single=False, items=_read_list(raw["tasks"], "/tasks", defaults, 1))
    return Submission(single=True, items=[_read_one(raw, 0, defaults)])


def _read_one(raw: object, index: int, defaults: TaskDefaults) -> Task | Rejection:
    try:
        return parse_task(raw, defaults)
    except Problem as problem:
        # A traceback keeps every frame alive that it passed: of 50,000 refusals that is most of three seconds in the collector.
        return Rejection(index, problem.with_traceback(None), legal_id(raw))


def _read_list(raw: object, pointer: str, defaults: TaskDefaults, depth: int) -> list[Task | Rejection]:
    if not isinstance(raw, list | tuple):
        raise Problem.at(pointer, f"must be a list of tasks, not {type_name(raw)}")
    if not raw and depth == 1:
        raise Problem.at(pointer, "must not be empty")
    if len(raw) > defaults.bulk_tasks:
        raise Problem.at(pointer, f"must have at most {defaults.bulk_tasks} tasks (limits.bulk_tasks), has {len(raw)}")
    out: list[Task | Rejection] = []
    for index, entry in enumerate(raw):
        _read_entry(out, entry, f"{pointer}/{index}", defaults, depth)
    return out


def _read_entry(out: list[Task | Rejection], entry: object, pointer: str, defaults: TaskDefaults, depth: int) -> None:
    """An entry of a list is a task, or again one of the forms."""
    if isinstance(entry, list | tuple) and depth < DEEPEST:
        inner = _read_list(entry, pointer, defaults, depth + 1)
    elif isinstance(entry, dict) and ("template" in entry or "tasks" in entry):
        try:
            inner = parse_submission(entry, defaults).items
        except Problem as problem:
            inner = [Rejection(0, problem.with_traceback(None), legal_id(entry.get("template")))]
    else:
        inner = [_read_one(entry, 0, defaults)]
    if len(out) + len(inner) > defaults.bulk_tasks + defaults.array_tasks:
        raise Problem.at(pointer, f"the whole stands for more than {defaults.bulk_tasks + defaults.array_tasks} tasks")
    for item in inner:
        out.append(Rejection(len(out), item.problem, item.id) if isinstance(item, Rejection) else item)


def _only(raw: dict[Any, Any], known: tuple[str, ...]) -> None:
    faults = Faults()
    for key in raw:
        if key not in known:
            faults.add(reader.below("", key), reader.unknown(key, known) if len(faults.errors) < 8 else "unknown field")
    if faults:
        raise faults.problem()


# ---------------------------------------------------------------------- array jobs


def _read_array(raw: dict[Any, Any], defaults: TaskDefaults) -> Submission:
    template, count, entries = _array_form(raw, defaults)
    if entries is None:
        return _read_counted(template, count, defaults)
    return Submission(single=False, items=_read_entries(template, entries, defaults))


def _array_form(
    raw: dict[Any, Any], defaults: TaskDefaults
) -> tuple[dict[Any, Any], int, list[Any] | tuple[Any, ...] | None]:
    """(template, count, entries or None where there is a count in their place)."""
    _only(raw, ("template", "count", "tasks"))
    template = raw["template"]
    if not isinstance(template, dict):
        raise Problem.at("/template", f"must be an object (a task), not {type_name(template)}")
    if ("count" in raw) == ("tasks" in raw):
        raise Problem.at("", "an array job needs either count or tasks beside template")
    if "count" in raw:
        return template, _count(raw["count"], defaults), None
    entries = raw["tasks"]
    if not isinstance(entries, list | tuple):
        raise Problem.at("/tasks", f"must be a list of objects, not {type_name(entries)}")
    if not 1 <= len(entries) <= defaults.array_tasks:
        raise Problem.at(
            "/tasks", f"must have 1 to {defaults.array_tasks} entries (limits.array_tasks), has {len(entries)}"
        )
    return template, len(entries), entries


def _count(raw: object, defaults: TaskDefaults) -> int:
    faults = Faults()
    count = reader.integer(1, defaults.array_tasks)(faults, "/count", raw)
    if faults:
        raise faults.problem()
    return count


def _read_counted(template: dict[Any, Any], count: int, defaults: TaskDefaults) -> Submission:
    """`count` equal tasks with ids `ID-0` …; a bad template refuses each of them by its own id."""
    base = legal_id(template)
    ids: list[str | None] = [f"{base}-{i}" for i in range(count)] if base is not None else [None] * count
    try:
        task = parse_task(template, defaults)
        _check_longest_id(ids[-1])
    except Problem as problem:
        return Submission(single=False, items=[Rejection(i, problem, ident) for i, ident in enumerate(ids)])
    tasks: list[Task | Rejection] = [msgspec.structs.replace(task, id=ident) for ident in ids]
    return Submission(single=False, items=tasks, array=("" if base is None else f"{base}-0", count))


def _check_longest_id(ident: str | None) -> None:
    if ident is not None and len(ident) > LONGEST_ID:
        raise Problem.at("/id", f"with its number it must be at most {LONGEST_ID} characters, is {len(ident)}")


def _read_entries(
    template: dict[Any, Any], entries: list[Any] | tuple[Any, ...], defaults: TaskDefaults
) -> list[Task | Rejection]:
    """Each entry's fields replace the template's."""
    common = _parsed(template, defaults)
    return [_read_array_entry(common, template, entry, index, defaults) for index, entry in enumerate(entries)]


def _parsed(template: dict[Any, Any], defaults: TaskDefaults) -> Task | None:
    """The template as a task, where light entries may be laid over it."""
    try:
        task = parse_task(template, defaults)
    except Problem:
        return None
    return None if task.after else task


def _read_array_entry(
    common: Task | None, template: dict[Any, Any], entry: object, index: int, defaults: TaskDefaults
) -> Task | Rejection:
    if not isinstance(entry, dict):
        return Rejection(index, Problem.at("", f"must be an object, not {type_name(entry)}"))
    if common is None or not _LIGHT.issuperset(entry):
        return _read_one({**template, **entry}, index, defaults)
    faults = Faults()
    said = reader.fields(faults, "", entry, FIELD_READERS)
    if faults:
        return Rejection(index, faults.problem(), legal_id(entry))
    if "deadline" in said:
        said["deadline_ns"], said["deadline_absolute"] = said.pop("deadline")
    return msgspec.structs.replace(common, **said)


# ---------------------------------------------------------------------- where they stand


class Spot(NamedTuple):
    """Where an item stands in the body. Fields that it has from a `template`, with the fields `shared`, stand there."""

    at: str
    template: str = ""
    shared: Any = ()
    own: Any = ()

    def of(self, pointer: str) -> str:
        """A pointer from the task as one from the body."""
        for field in self.shared:
            if field not in self.own and f"{pointer}/".startswith(reader.below("", field) + "/"):
                return self.template + pointer
        return self.at + pointer


def spots(raw: object, defaults: TaskDefaults = DEFAULTS, at: str = "", depth: int = 0) -> Iterator[Spot]:
    """Of each item that `parse_submission` makes of the body, in its order. For refusals: who accepts need not know."""
    if isinstance(raw, list | tuple) and depth < DEEPEST:
        for index, entry in enumerate(raw):
            yield from spots(entry, defaults, f"{at}/{index}", depth + 1)
    elif isinstance(raw, dict) and "template" in raw:
        yield from _array_spots(raw, defaults, at)
    elif isinstance(raw, dict) and raw.keys() == {"tasks"}:
        yield from spots(raw["tasks"], defaults, f"{at}/tasks")
    else:
        yield Spot(at)


def _array_spots(raw: dict[Any, Any], defaults: TaskDefaults, at: str) -> Iterator[Spot]:
    try:
        template, count, entries = _array_form(raw, defaults)
    except Problem:  # one refusal, of the form
        yield Spot(at)
        return
    if entries is None:
        yield from itertools.repeat(Spot(f"{at}/template"), count)
    for index, entry in enumerate(entries or ()):
        yield Spot(f"{at}/tasks/{index}", f"{at}/template", template, entry if isinstance(entry, dict) else template)
