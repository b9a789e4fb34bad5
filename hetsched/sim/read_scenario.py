"""Scenario files (CONTRACT, section 5), YAML or JSON, into a `Scenario`.

A task that breaks a rule is refused in the run, as the daemon would; anything else that breaks one refuses the file, with its place:
`ScenarioError` where it cannot be read or speaks of what it never names (exit 2), `ScenarioRefused` where its contents are wrong (exit 4).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from hetsched import config as configuration
from hetsched.errors import ConfigError, Problem, ScenarioError
from hetsched.model import (
    HEALTH,
    NodeSpec,
    Rejection,
    Submission,
    TaskDefaults,
    parse_json,
    parse_node,
    parse_queue,
    parse_submission,
)
from hetsched.model.read_time import TimeError, parse_rfc3339
from hetsched.model.reader import LONGEST_SECONDS, printable, unknown
from hetsched.sim.scenario import VERBS, Happening, Scenario

T = TypeVar("T")

KEYS = ("seed", "config", "nodes", "queues", "events", "until", "start", "name", "about")
LARGEST_SEED = 2**63 - 1


class ScenarioRefused(ScenarioError):
    """The file can be read and is refused whole; the CLI exits with 4."""


def load_scenario(path: Path) -> dict[str, Any]:
    """The file as plain values; JSON is tried first because it is fifty times as fast to read. Raises ScenarioError."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}") from None
    raw = _plain(body, path)
    if not isinstance(raw, dict):
        raise ScenarioError(f"{path}: must be a mapping with nodes and events")
    return raw


def _plain(body: bytes, path: Path) -> object:
    if body.lstrip()[:1] == b"{":
        try:
            return parse_json(body)
        except Problem:
            pass  # flow style YAML begins the same way; if it is neither, YAML's message has line and column
    try:
        return yaml.load(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise ScenarioError(f"{path} is not YAML: {error}") from None


def read_scenario(raw: dict[str, Any], *, policy: str | None = None, seed: int | None = None) -> Scenario:
    """Check the whole; `policy` and `seed` from the command line go before the file's. Raises ScenarioError."""
    for key in raw:
        if key not in KEYS:
            raise ScenarioRefused(unknown(key, KEYS, "key"))
    config = _config(raw.get("config"), policy)
    defaults = config.task_defaults()
    nodes = tuple(_nodes(_list(raw, "nodes")))
    queues = tuple(_each(_list(raw, "queues"), "queues", lambda entry: parse_queue(entry)))
    happenings = sorted(_happenings(_list(raw, "events"), defaults), key=lambda one: one.at_ns)
    scenario = Scenario(
        config=config,
        seed=_seed(raw.get("seed", 0)) if seed is None else seed,
        nodes=nodes,
        queues=queues,
        happenings=tuple(happenings),
        start_ns=_start(raw.get("start")),
        until_ns=None if raw.get("until") is None else _time_ns(raw["until"], "until"),
    )
    check_names(scenario)
    return scenario


def with_policy(raw: object, policy: str | None) -> object:
    """The `config:` of a scenario with the preset of the command line laid over it."""
    if policy is None or not (raw is None or isinstance(raw, Mapping)):
        return raw
    base = dict(raw or {})
    section = base.get("policy")
    base["policy"] = {**(section if isinstance(section, Mapping) else {}), "preset": policy}
    return base


def _config(raw: object, policy: str | None) -> configuration.Config:
    try:
        return configuration.from_mapping(with_policy(raw, policy))
    except ConfigError as error:
        kind = ScenarioError if policy is not None and "policy.preset" in str(error) else ScenarioRefused
        raise kind(str(error)) from None


# ---------------------------------------------------------------------- the cluster


def _nodes(raw: list[Any]) -> Iterator[NodeSpec]:
    seen: set[str] = set()
    for group in _each(raw, "nodes", lambda entry: parse_node(_as_words(entry))):
        for node in group:
            if node.name in seen:
                raise ScenarioRefused(f"nodes: {node.name} is there twice")
            seen.add(node.name)
            yield node


def _each(raw: list[Any], key: str, read: Callable[[Any], T]) -> Iterator[T]:
    for index, entry in enumerate(raw):
        try:
            yield read(entry)
        except Problem as problem:
            raise ScenarioRefused(
                problem.under(f"/{key}/{index}").errors[0]["pointer"] + ": " + problem.detail
            ) from None


def _as_words(raw: object) -> object:
    """YAML reads `rack: 1` as a number; people mean the word."""
    if not isinstance(raw, dict):
        return raw
    out = dict(raw)
    for key in ("labels", "node_selector"):
        if isinstance(out.get(key), dict):
            out[key] = {_word(label): _words(value) for label, value in out[key].items()}
    for key in ("taints", "tolerations"):
        if isinstance(out.get(key), list):
            out[key] = [_with_word(entry) for entry in out[key]]
    if isinstance(out.get("template"), dict):
        out["template"] = _as_words(out["template"])
    if isinstance(out.get("tasks"), list):
        out["tasks"] = [_as_words(entry) for entry in out["tasks"]]
    return out


def _with_word(raw: object) -> object:
    return {**raw, "value": _word(raw["value"])} if isinstance(raw, dict) and "value" in raw else raw


def _words(value: object) -> object:
    return [_word(entry) for entry in value] if isinstance(value, list) else _word(value)


def _word(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | datetime.date) else value


# ---------------------------------------------------------------------- what happens


def _happenings(raw: list[Any], defaults: TaskDefaults) -> Iterator[Happening]:
    for index, entry in enumerate(raw):
        where = f"events[{index}]"
        if not isinstance(entry, dict):
            _refuse(where, "must be a mapping with at and what happens")
        verbs = [key for key in entry if key != "at"]
        if len(verbs) != 1 or "at" not in entry:
            _refuse(where, f"needs at and exactly one of {', '.join(VERBS)}")
        verb = verbs[0]
        if verb not in VERBS:
            _refuse(where, unknown(verb, VERBS, "event"))
        at_ns = _time_ns(entry["at"], f"{where}.at")
        yield Happening(at_ns, verb, _READERS[verb](entry[verb], f"{where}.{verb}", defaults))


def _submit(raw: object, where: str, defaults: TaskDefaults) -> Submission:
    entries = [_as_words(entry) for entry in raw] if isinstance(raw, list) else _as_words(raw)
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


def _names(raw: object, where: str, _: TaskDefaults) -> tuple[str, ...]:
    """One name or a list of them."""
    names = raw if isinstance(raw, list) else [raw]
    if not names or not all(isinstance(name, str) and name for name in names):
        _refuse(where, "must be a name or a list of names")
    return tuple(names)


def _cancel(raw: object, where: str, defaults: TaskDefaults) -> dict[str, Any]:
    """Ids, or a selector as `POST /v1/tasks/cancel` takes it."""
    if not isinstance(raw, dict):
        return {"ids": _names(raw, where, defaults)}
    known = ("ids", "queue", "label", "qos", "state")
    for key, value in raw.items():
        if key not in known:
            _refuse(where, unknown(key, known))
        if key != "ids" and not isinstance(value, str):
            _refuse(f"{where}.{key}", "must be text")
    return {**raw, "ids": _names(raw["ids"], where, defaults) if "ids" in raw else ()}


def _fail(raw: object, where: str, _: TaskDefaults) -> tuple[str, str]:
    said = {"task": raw} if isinstance(raw, str) else _members(raw, where, ("task", "reason"), ("task",))
    return _text(said["task"], f"{where}.task"), _text(said.get("reason", "exit 1"), f"{where}.reason")


def _device(raw: object, where: str, _: TaskDefaults) -> tuple[str, str, str, str]:
    said = _members(raw, where, ("node", "device", "health", "reason"), ("node", "device", "health"))
    if said["health"] not in HEALTH:
        _refuse(f"{where}.health", f"must be one of {', '.join(HEALTH)}")
    node, device = (_text(said[key], f"{where}.{key}") for key in ("node", "device"))
    return node, device, said["health"], _text(said.get("reason", "scenario"), f"{where}.reason")


def _silent(raw: object, where: str, defaults: TaskDefaults) -> tuple[tuple[str, ...], int | None]:
    """(nodes, for how long in ns; None = until node_up or the end of the lease)."""
    if not isinstance(raw, dict):
        return _names(raw, where, defaults), None
    said = _members(raw, where, ("node", "for"), ("node",))
    return _names(said["node"], where, defaults), _time_ns(said["for"], f"{where}.for") if "for" in said else None


_READERS: dict[str, Callable[[Any, str, TaskDefaults], Any]] = {
    "submit": _submit,
    "cancel": _cancel,
    "fail": _fail,
    "device": _device,
    "node_silent": _silent,
    **dict.fromkeys(("node_down", "node_up", "drain", "cordon", "uncordon"), _names),
}


# ---------------------------------------------------------------------- names that the file must know


def check_names(scenario: Scenario) -> None:
    """Refuse ids and names that nothing in the file ever makes."""
    tasks = {item.id for one in scenario.happenings if one.verb == "submit" for item in one.what.items}
    nodes = {node.name: {device.id for device in node.devices} for node in scenario.nodes}
    for one in scenario.happenings:
        for ident in _named_tasks(one):
            if ident not in tasks:
                raise ScenarioError(
                    f'{one.verb} at {one.at_ns / 1e9:g}: no task "{printable(ident)}" is ever submitted'
                )
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


# ---------------------------------------------------------------------- plain values


def _refuse(where: str, rule: str) -> NoReturn:
    raise ScenarioRefused(f"{where}: {rule}")


def _list(raw: dict[str, Any], key: str) -> list[Any]:
    value = raw.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        _refuse(key, "must be a list")
    return value


def _members(raw: object, where: str, known: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        _refuse(where, f"must be a mapping with {', '.join(needed)}")
    for key in raw:
        if key not in known:
            _refuse(where, unknown(key, known))
    for key in needed:
        if key not in raw:
            _refuse(where, f"needs {key}")
    return raw


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 256:
        _refuse(where, "must be text of 1 to 256 characters")
    return value


def _time_ns(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_SECONDS:
        _refuse(where, "must be seconds from t = 0, not negative")
    return round(value * 1e9)


def _seed(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_SEED:
        _refuse("seed", f"must be a whole number from 0 to {LARGEST_SEED}")
    return value


def _start(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, datetime.datetime):
        value = value.isoformat() if value.tzinfo else value.isoformat() + "Z"
    try:
        return parse_rfc3339(_text(value, "start"))
    except TimeError as error:
        _refuse("start", str(error))
