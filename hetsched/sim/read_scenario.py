"""Scenario files (CONTRACT, section 5), YAML or JSON, into a `Scenario`.

A task that breaks a rule is refused in the run, as the daemon would; anything else that breaks one refuses the file, with its place:
`ScenarioError` where it cannot be read or speaks of what it never names (exit 2), `ScenarioRefused` where its contents are wrong (exit 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from hetsched import config as configuration
from hetsched.errors import ConfigError, Problem, ScenarioError
from hetsched.model import NodeSpec, QueueSpec, parse_json, parse_node, parse_queue
from hetsched.model.reader import unknown
from hetsched.sim.plain import ScenarioRefused, as_words, list_of, moment_ns, seed_of, time_ns
from hetsched.sim.read_events import check_names, happenings
from hetsched.sim.scenario import Scenario
from hetsched.sim.speeds import read_speeds

T = TypeVar("T")

KEYS = ("seed", "config", "nodes", "queues", "events", "until", "start", "speeds", "name", "about")


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


def read_scenario(
    raw: dict[str, Any], *, policy: str | None = None, seed: int | None = None, sets: Sequence[str] = ()
) -> Scenario:
    """Check the whole; `policy`, `seed` and `sets` from the command line go before the file's. Raises ScenarioError."""
    for key in raw:
        if key not in KEYS:
            raise ScenarioRefused(unknown(key, KEYS, "key"))
    config = _config(raw.get("config"), policy, sets)
    defaults = config.task_defaults()
    nodes = tuple(_nodes(list_of(raw, "nodes")))
    queues = tuple(_queues(list_of(raw, "queues")))
    ordered = sorted(happenings(list_of(raw, "events"), defaults), key=lambda one: one.at_ns)
    scenario = Scenario(
        config=config,
        seed=seed_of(raw.get("seed", 0)) if seed is None else seed,
        nodes=nodes,
        queues=queues,
        happenings=tuple(ordered),
        speeds=read_speeds(raw.get("speeds")),
        start_ns=moment_ns(raw.get("start")),
        until_ns=None if raw.get("until") is None else time_ns(raw["until"], "until"),
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


def _config(raw: object, policy: str | None, sets: Sequence[str]) -> configuration.Config:
    try:
        return configuration.from_mapping(with_policy(raw, policy), sets=sets)
    except ConfigError as error:
        kind = ScenarioError if sets or (policy is not None and "policy.preset" in str(error)) else ScenarioRefused
        raise kind(str(error)) from None


# ---------------------------------------------------------------------- the cluster


def _nodes(raw: list[Any]) -> Iterator[NodeSpec]:
    seen: set[str] = set()
    for group in _each(raw, "nodes", lambda entry: parse_node(as_words(entry))):
        for node in group:
            if node.name in seen:
                raise ScenarioRefused(f"nodes: {node.name} is there twice")
            seen.add(node.name)
            yield node


def _queues(raw: list[Any]) -> Iterator[QueueSpec]:
    seen: set[str] = set()
    for queue in _each(raw, "queues", lambda entry: parse_queue(entry)):
        if queue.name in seen:
            raise ScenarioRefused(f"queues: {queue.name} is there twice")
        seen.add(queue.name)
        yield queue


def _each(raw: list[Any], key: str, read: Callable[[Any], T]) -> Iterator[T]:
    for index, entry in enumerate(raw):
        try:
            yield read(entry)
        except Problem as problem:
            first, *others = problem.under(f"/{key}/{index}").errors
            more = f" (and {len(others)} more)" if others else ""
            raise ScenarioRefused(f"{first['pointer']}: {first['detail']}{more}") from None
