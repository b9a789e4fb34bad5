"""`hetsched simulate`: a scenario or a pair of CSV files in, an event log, a placements file and a summary out.

Exit codes as in CONTRACT section 4: 0 it ran (refused tasks are in its log), 2 the file cannot be read or names what it never makes,
4 its contents are refused.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

from hetsched.errors import ConfigError, ScenarioError
from hetsched.scheduler import Scheduler
from hetsched.sim.compare import compare, table
from hetsched.sim.engine import Engine
from hetsched.sim.log import EventLog
from hetsched.sim.placements import PlacementsFile
from hetsched.sim.plain import ScenarioRefused
from hetsched.sim.read_scenario import load_scenario, read_scenario
from hetsched.sim.read_trace import read_trace
from hetsched.sim.scenario import Scenario
from hetsched.sim.summary import Summary

T = TypeVar("T")

OK, USAGE, REFUSED = 0, 2, 4


def simulate(
    scenario: Path | None = None,
    *,
    nodes: Path | None = None,
    tasks: Path | None = None,
    policy: str | None = None,
    seed: int | None = None,
    events: Path | None = None,
    placements: Path | None = None,
    tick: float = 0.001,
    sets: Sequence[str] = (),
    as_json: bool = False,
    out: TextIO = sys.stdout,
) -> int:
    """Run it and print the summary to `out`; complaints go to standard error. Returns the exit code. `tick`: seconds. `sets`:
    configuration keys, "a.b=c". Several presets in `policy`, with commas, each with keys of its own after a "+": once each, and a table."""
    try:
        if policy is not None and "," in policy:
            if events is not None or placements is not None:
                raise ScenarioError("--events and --placements are of one run; name one policy")
            compared = compare(lambda one: _read(scenario, nodes, tasks, one, seed, tick, sets), _names(policy))
            out.write(json.dumps(compared, indent=2) + "\n" if as_json else table(compared))
            return OK
        world = _read(scenario, nodes, tasks, policy, seed, tick, sets)
        summary = _run(world, events, placements)
    except (ScenarioRefused, ConfigError) as error:
        print(f"hetsched: refused: {error.detail}", file=sys.stderr)
        return REFUSED
    except ScenarioError as error:
        print(f"hetsched: {error.detail}", file=sys.stderr)
        return USAGE
    out.write(json.dumps(summary, indent=2) + "\n" if as_json else in_words(summary))
    return OK


def _read(
    scenario: Path | None,
    nodes: Path | None,
    tasks: Path | None,
    policy: str | None,
    seed: int | None,
    tick: float,
    sets: Sequence[str],
) -> Scenario:
    policy, sets = _split(policy, sets)
    if scenario is not None and nodes is None and tasks is None:
        return read_scenario(load_scenario(scenario), policy=policy, seed=seed, sets=sets)
    if scenario is None and nodes is not None and tasks is not None:
        return read_trace(nodes, tasks, tick_s=tick, policy=policy, seed=seed, sets=sets)
    raise ScenarioError("give either a scenario file or both --nodes and --tasks")


def _split(policy: str | None, sets: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """`NAME+key=value+key=value`: a preset with more keys, which go before those of `--set`."""
    name, *keys = (policy or "").split("+")
    return name or None, [*sets, *keys]


def _names(policies: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))


def _run(world: Scenario, events: Path | None, placements: Path | None) -> dict[str, Any]:
    with contextlib.ExitStack() as files:
        log_file = None if events is None else files.enter_context(_writable(events, lambda: events.open("wb")))
        placements_file = (
            None if placements is None else files.enter_context(_writable(placements, lambda: placements.open("w")))
        )
        log, summary = EventLog(log_file), Summary(world.nodes)
        engine = Engine(world, (summary, log, PlacementsFile(placements_file)))
        summary.watch(lambda kind: fragmentation(engine.scheduler, kind))
        engine.run()
        first_ns = next((one.at_ns for one in world.happenings if one.verb in ("submit", "graph")), 0)
        return summary.told(engine.now_ns, first_ns, log.sha256(), engine.deciding.seconds, engine.stepping.seconds)


def _writable(path: Path, opened: Callable[[], T]) -> T:
    try:
        return opened()
    except OSError as error:
        raise ScenarioError(f"cannot write {path}: {error.strerror}") from None


def fragmentation(scheduler: Scheduler, kind: str) -> float:
    """Of the kind's free capacity, the part that the recent mix of shapes cannot use."""
    number = scheduler.books.kinds.known(kind)
    fragment, free = scheduler.core.fragmentation(number) if number >= 0 else (0, 0)
    return fragment / free if free else 0.0


def in_words(summary: dict[str, Any]) -> str:
    """The summary for people, one line a thing."""
    lines = []
    for key, value in summary.items():
        if isinstance(value, dict):
            value = "  ".join(f"{name} {_short(entry)}" for name, entry in value.items())
        lines.append(f"{key.replace('_', ' '):22}{_short(value)}")
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_short(entry)}" for name, entry in value.items()) + ")"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return "-" if value is None else str(value)
