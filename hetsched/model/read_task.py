"""One task body, from untrusted JSON to a `Task` that may be believed.

`parse_task` reads every field by the table below, then asks the rules that hold between fields, and raises one `Problem` with
all that is wrong. To add a field: a member of `Task`, a line in `_FIELDS`, a line in `render.py`, a story in `tests/model/`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hetsched.model import reader
from hetsched.model.read_resources import read_models, read_resources, read_usage
from hetsched.model.read_time import read_deadline
from hetsched.model.reader import Faults, Reader, items, mapping, text, word
from hetsched.model.task import Dependency, GangRef, Resources, Task, Toleration, Topology
from hetsched.model.words import EFFECTS, ON_DEADLINE, ON_LOST, PATTERNS, WHEN, Guarantee, Qos

LARGEST_GANG = 10_000
_LONGEST_ARGUMENT = 131_072


class TaskDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says about bodies: the default cpu, and how many tasks one body may stand for."""

    cpu_milli: int = 0
    array_tasks: int = 100_000
    bulk_tasks: int = 50_000


DEFAULTS = TaskDefaults()

task_id = text(128, re.compile(r"[A-Za-z0-9._:/-]+"), "of letters, digits and . _ : / -")
queue_name = text(
    128,
    re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,7}"),
    "names of letters, digits and . _ - joined by /, at most 8",
)
label_name = text(128, re.compile(r"[A-Za-z0-9._/-]+"), "of letters, digits and . _ / -")
label_value = text(256, empty=True)
volume_name = text(256)
_short_word = text(64, re.compile(r"[A-Za-z0-9._-]+"), "of letters, digits and . _ -")
_argument = text(_LONGEST_ARGUMENT, empty=True)
_argv = items(_argument, 4096, least=1)


def parse_task(raw: object, defaults: TaskDefaults = DEFAULTS) -> Task:
    """Check one body whole. Raises Problem (422) with a JSON pointer and a rule for everything that is wrong."""
    if not isinstance(raw, dict):
        faults = Faults()
        faults.wrong_type("", "an object (a task)", raw)
        raise faults.problem()
    faults = Faults()
    said = reader.fields(faults, "", raw, _FIELDS)
    _settle(faults, raw, said, defaults)
    if faults:
        raise faults.problem()
    return Task(**said)


def legal_id(raw: object) -> str | None:
    """The id of a body, if it has a legal one: refusals are told by it."""
    ident = raw.get("id") if isinstance(raw, dict) else None
    faults = Faults()
    ident = task_id(faults, "", ident) if ident is not None else None
    return None if faults else ident


# ---------------------------------------------------------------------- rules between fields


def _settle(faults: Faults, raw: dict[Any, Any], said: dict[str, Any], defaults: TaskDefaults) -> None:
    """Fill in what depends on other fields, and check what only makes sense together."""
    if "resources" not in raw and "command" not in raw:
        faults.add("", "needs resources or command")
    if "deadline" in said:
        said["deadline_ns"], said["deadline_absolute"] = said.pop("deadline")
    said.setdefault("preemptible", said.get("qos") in (Qos.best_effort, Qos.background))
    said.setdefault("guarantee", Guarantee.burstable if "limits" in said else Guarantee.guaranteed)
    resources = said.setdefault("resources", Resources())
    if defaults.cpu_milli and not (isinstance(raw.get("resources"), dict) and "cpu" in raw["resources"]):
        resources = said["resources"] = msgspec.structs.replace(resources, cpu_milli=defaults.cpu_milli)
    _settle_models(faults, said, resources)
    _check_limits(faults, resources, said.get("limits"))
    _check_after(faults, said)


def _settle_models(faults: Faults, said: dict[str, Any], resources: Resources) -> None:
    """`models` speaks of the one kind that is asked; its ask carries them from here on, of those that it names itself the ones that both do."""
    models = said.get("models")
    if not models or not resources.devices:
        return
    if len(resources.devices) > 1:
        faults.add("/models", 'is not clear with several kinds of devices; write {"count", "model"} inside each')
        return
    (ask,) = resources.devices
    both = tuple(model for model in models if model in ask.models) if ask.models else models
    if not both:
        faults.add("/models", f"contradicts the model inside {ask.kind}: none is in both")
    else:
        ask = msgspec.structs.replace(ask, models=both)
        said["resources"] = msgspec.structs.replace(resources, devices=(ask,))


def _check_limits(faults: Faults, resources: Resources, limits: Resources | None) -> None:
    if limits is None:
        return
    if 0 < limits.cpu_milli < resources.cpu_milli:
        faults.add("/limits/cpu", "must not be below resources")
    if 0 < limits.memory_bytes < resources.memory_bytes:
        faults.add("/limits/memory", "must not be below resources")
    asked = {ask.kind: ask.total_milli for ask in resources.devices}
    for limit in limits.devices:
        if limit.total_milli < asked.get(limit.kind, 0):
            faults.add(f"/limits/{limit.kind}", "must not be below resources")


def _check_after(faults: Faults, said: dict[str, Any]) -> None:
    for index, dependency in enumerate(said.get("after", ())):
        if dependency.id and dependency.id == said.get("id"):
            faults.add(f"/after/{index}", "a task cannot wait for itself")


# ---------------------------------------------------------------------- fields with members of their own


def _toleration(faults: Faults, at: str, raw: object) -> Toleration:
    said = reader.fields(faults, at, raw, _TOLERATION)
    one = Toleration(**said)
    if one.operator == "Equal" and not one.key and isinstance(raw, dict):
        faults.add(f"{at}/key", "must not be empty unless operator is Exists")
    if one.operator == "Exists" and one.value:
        faults.add(f"{at}/value", "must be empty where operator is Exists")
    return one


def _topology(faults: Faults, at: str, raw: object) -> Topology | None:
    said = reader.fields(faults, at, raw, _TOPOLOGY)
    if "same" not in said:
        faults.add(at, "needs same")
        return None
    return Topology(**said)


def _gang(faults: Faults, at: str, raw: object) -> GangRef | None:
    said = reader.fields(faults, at, raw, _GANG)
    missing = [name for name in ("id", "size") if name not in said]
    for name in missing:
        faults.add(at, f"needs {name}")
    if missing:
        return None
    said.setdefault("min_size", said["size"])
    if said["min_size"] > said["size"]:
        faults.add(f"{at}/min_size", "must be at most size")
    return GangRef(**said)


def _dependency(faults: Faults, at: str, raw: object) -> Dependency:
    if isinstance(raw, str):
        return Dependency(id=task_id(faults, at, raw))
    said = reader.fields(faults, at, raw, _DEPENDENCY)
    if isinstance(raw, dict) and "id" not in raw:
        faults.add(at, "needs id")
    return Dependency(id=said.get("id", ""), when=said.get("when", "succeeded"))


def _after(faults: Faults, at: str, raw: object) -> tuple[Dependency, ...]:
    """Each pair once, in the order given."""
    return tuple(dict.fromkeys(_dependencies(faults, at, raw)))


def _value_or_values(faults: Faults, at: str, raw: object) -> tuple[str, ...]:
    if isinstance(raw, list | tuple):
        return _values(faults, at, raw)
    return (label_value(faults, at, raw),)


def _command(faults: Faults, at: str, raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        faults.add(at, 'must be a list of arguments, not a string; for a shell write ["sh", "-c", "..."]')
        return ("",)
    argv = _argv(faults, at, raw)
    if argv and not argv[0] and isinstance(raw, list | tuple) and raw[0] == "":
        faults.add(f"{at}/0", "must not be empty: it names the program")
    return argv


_TOLERATION: dict[str, Reader[Any]] = {
    "key": text(128, empty=True),
    "operator": word(("Equal", "Exists"), str),
    "value": label_value,
    "effect": word((*EFFECTS, ""), str),
}
_TOPOLOGY: dict[str, Reader[Any]] = {"same": label_name, "required": reader.flag}
_GANG: dict[str, Reader[Any]] = {
    "id": task_id,
    "size": reader.integer(1, LARGEST_GANG),
    "min_size": reader.integer(1, LARGEST_GANG),
}
_DEPENDENCY: dict[str, Reader[Any]] = {"id": task_id, "when": word(WHEN, str)}
_dependencies = items(_dependency, 1000)
_values = items(label_value, 64, least=1)

_FIELDS: dict[str, Reader[Any]] = {
    "id": task_id,
    "name": text(256),
    "labels": mapping(label_name, label_value, 64),
    "kind": _short_word,
    "queue": queue_name,
    "qos": word(tuple(Qos), Qos),
    "guarantee": word(tuple(Guarantee), Guarantee),
    "preemptible": reader.flag,
    "priority": reader.integer(-1000, 1000),
    "resources": read_resources,
    "limits": read_resources,
    "pattern": word(PATTERNS, str),
    "node_selector": mapping(label_name, _value_or_values, 64),
    "models": read_models,
    "tolerations": items(_toleration, 64),
    "data": items(volume_name, 64),
    "topology": _topology,
    "gang": _gang,
    "after": _after,
    "deadline": read_deadline,
    "on_deadline": word(ON_DEADLINE, str),
    "estimate": reader.seconds(),
    "time_limit": reader.seconds(above_zero=True),
    "grace": reader.seconds(),
    "retries": reader.integer(0, 255),
    "retry_on": items(text(128), 32),
    "command": _command,
    "env": mapping(
        text(256, re.compile(r"[^=]+", re.DOTALL), "a name without ="), text(_LONGEST_ARGUMENT, empty=True), 1024
    ),
    "workdir": text(4096, re.compile(r"/.*", re.DOTALL), "an absolute path"),
    "user": text(64, re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?"), "the name of a user"),
    "duration": reader.seconds(),
    "on_lost": word(ON_LOST, str),
    "checkpoint": reader.seconds(above_zero=True),
    "stop_time": reader.seconds(),
    "usage": read_usage,
}

FIELD_READERS = _FIELDS
"""For those who read a single field (an entry of an array that replaces only its deadline)."""

assert set(_FIELDS) == (set(Task.__struct_fields__) - {"deadline_ns", "deadline_absolute"}) | {"deadline"}
