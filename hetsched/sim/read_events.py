"""`events:` of a scenario file: each entry is one `Happening`, with its time and exactly one verb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hetsched.errors import Problem, ScenarioError
from hetsched.model import HEALTH, Rejection, Submission, TaskDefaults, parse_submission
from hetsched.model.graph import Graph
from hetsched.model.read_graph import parse_graph
from hetsched.model.reader import printable, unknown
from hetsched.sim.plain import as_words, members, refuse, text_of, time_ns
from hetsched.sim.scenario import VERBS, Happening, Scenario


def happenings(raw: list[Any], defaults: TaskDefaults) -> Iterator[Happening]:
    for index, entry in enumerate(raw):
        where = f"events[{index}]"
        if not isinstance(entry, dict):
            refuse(where, "must be a mapping with at and what happens")
        verbs = [key for key in entry if key != "at"]
        if len(verbs) != 1 or "at" not in entry:
            refuse(where, f"needs at and exactly one of {', '.join(VERBS)}")
        verb = verbs[0]
        if verb not in VERBS:
            refuse(where, unknown(verb, VERBS, "event"))
        at_ns = time_ns(entry["at"], f"{where}.at")
        yield Happening(at_ns, verb, _READERS[verb](entry[verb], f"{where}.{verb}", defaults))


def _submit(raw: object, where: str, defaults: TaskDefaults) -> Submission:
    entries = [as_words(entry) for entry in raw] if isinstance(raw, list) else as_words(raw)
    try:
        return parse_submission(entries, defaults)
    except Problem as problem:
        ident = (
            raw.get("template", {}).get("id")
            if isinstance(raw, dict) and isinstance(raw.get("template"), dict)
            else None
        )
        legal = ident if isinstance(ident, str) and 0 < len(ident) <= 128 else None
        return Submission(single=True, items=[Rejection(0, problem, legal)])


def _graph(raw: object, where: str, defaults: TaskDefaults) -> Graph:
    """What stands under `graph:` in a file for `hetsched submit`; a bad one refuses the file."""
    try:
        return parse_graph(_graph_words(raw), defaults)
    except Problem as problem:
        refuse(where, problem.detail)


def _graph_words(raw: object) -> object:
    if not isinstance(raw, dict):
        return raw
    out = {**raw, "template": as_words(raw.get("template", {}))}
    if isinstance(raw.get("operators"), list):
        out["operators"] = [as_words(entry) for entry in raw["operators"]]
    return out


def _names(raw: object, where: str, _: TaskDefaults) -> tuple[str, ...]:
    """One name or a list of them."""
    names = raw if isinstance(raw, list) else [raw]
    if not names or not all(isinstance(name, str) and name for name in names):
        refuse(where, "must be a name or a list of names")
    return tuple(names)


def _cancel(raw: object, where: str, defaults: TaskDefaults) -> dict[str, Any]:
    """Ids, or a selector as `POST /v1/tasks/cancel` takes it."""
    if not isinstance(raw, dict):
        return {"ids": _names(raw, where, defaults)}
    known = ("ids", "queue", "label", "qos", "state")
    for key, value in raw.items():
        if key not in known:
            refuse(where, unknown(key, known))
        if key != "ids" and not isinstance(value, str):
            refuse(f"{where}.{key}", "must be text")
    return {**raw, "ids": _names(raw["ids"], where, defaults) if "ids" in raw else ()}


def _fail(raw: object, where: str, _: TaskDefaults) -> tuple[str, str]:
    said = {"task": raw} if isinstance(raw, str) else members(raw, where, ("task", "reason"), ("task",))
    return text_of(said["task"], f"{where}.task"), text_of(said.get("reason", "exit 1"), f"{where}.reason")


def _device(raw: object, where: str, _: TaskDefaults) -> tuple[str, str, str, str]:
    said = members(raw, where, ("node", "device", "health", "reason"), ("node", "device", "health"))
    if said["health"] not in HEALTH:
        refuse(f"{where}.health", f"must be one of {', '.join(HEALTH)}")
    node, device = (text_of(said[key], f"{where}.{key}") for key in ("node", "device"))
    return node, device, said["health"], text_of(said.get("reason", "scenario"), f"{where}.reason")


def _silent(raw: object, where: str, defaults: TaskDefaults) -> tuple[tuple[str, ...], int | None]:
    """(nodes, for how long in ns; None = until node_up or the end of the lease)."""
    if not isinstance(raw, dict):
        return _names(raw, where, defaults), None
    said = members(raw, where, ("node", "for"), ("node",))
    return _names(said["node"], where, defaults), time_ns(said["for"], f"{where}.for") if "for" in said else None


_READERS: dict[str, Callable[[Any, str, TaskDefaults], Any]] = {
    "submit": _submit,
    "graph": _graph,
    "cancel": _cancel,
    "fail": _fail,
    "device": _device,
    "node_silent": _silent,
    **dict.fromkeys(("node_down", "node_up", "drain", "cordon", "uncordon", "cancel_graph"), _names),
}


# ---------------------------------------------------------------------- names that the file must know


def check_names(scenario: Scenario) -> None:
    """Refuse ids and names that nothing in the file ever makes."""
    tasks = {item.id for one in scenario.happenings if one.verb == "submit" for item in one.what.items}
    graphs = {one.what.id for one in scenario.happenings if one.verb == "graph"}
    nodes = {node.name: {device.id for device in node.devices} for node in scenario.nodes}
    for one in scenario.happenings:
        for ident in _named_tasks(one):
            if ident not in tasks and ident.partition("/")[0] not in graphs:
                raise ScenarioError(
                    f'{one.verb} at {one.at_ns / 1e9:g}: no task "{printable(ident)}" is ever submitted'
                )
        for name in one.what if one.verb == "cancel_graph" else ():
            if name not in graphs:
                raise ScenarioError(f'{one.verb} at {one.at_ns / 1e9:g}: there is no graph "{printable(name)}"')
        for name in _named_nodes(one):
            if name not in nodes:
                raise ScenarioError(f'{one.verb} at {one.at_ns / 1e9:g}: there is no node "{printable(name)}"')
        if one.verb == "device" and one.what[1] not in nodes[one.what[0]]:
            raise ScenarioError(
                f'device at {one.at_ns / 1e9:g}: {one.what[0]} has no device "{printable(one.what[1])}"'
            )


def _named_tasks(one: Happening) -> tuple[str, ...]:
    if one.verb == "cancel":
        return tuple(one.what["ids"])
    return (one.what[0],) if one.verb == "fail" else ()


def _named_nodes(one: Happening) -> tuple[str, ...]:
    if one.verb == "device":
        return (one.what[0],)
    if one.verb == "node_silent":
        return tuple(one.what[0])
    return tuple(one.what) if one.verb in ("node_down", "node_up", "drain", "cordon", "uncordon") else ()
