"""`simulate`: the same engine as the daemon's on a virtual clock."""

from __future__ import annotations

import argparse
from pathlib import Path

from hetsched.cli.parser import Usage, add_json, nearest
from hetsched.cli.table import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="?", type=Path, metavar="SCENARIO", help="YAML or JSON, as in docs")
    group = parser.add_argument_group("a trace instead, as CSV in the columns of openb")
    group.add_argument("--nodes", type=Path, metavar="FILE")
    group.add_argument("--tasks", type=Path, metavar="FILE")
    group.add_argument(
        "--tick", type=float, default=0.001, metavar="SECONDS", help="between tasks without times (0.001)"
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help="how nodes are ranked; several with commas: a table; NAME+key=value: with a key of its own",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="a.b=c", help="a key of the configuration; may repeat"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="in place of the scenario's")
    parser.add_argument("--events", type=Path, metavar="OUT.jsonl", help="write the event log")
    parser.add_argument("--placements", type=Path, metavar="OUT.csv", help="write every placement")
    add_json(parser)


def _simulate(options: argparse.Namespace) -> int:
    from hetsched.sim import simulate

    if (options.scenario is None) == (options.nodes is None and options.tasks is None):
        raise Usage("give a scenario file, or both --nodes and --tasks")
    if options.scenario is None and (options.nodes is None or options.tasks is None):
        raise Usage("--nodes and --tasks go together")
    if options.policy is not None:
        for name in options.policy.split(","):
            _check_policy(name.strip().partition("+")[0])
    return simulate(
        options.scenario,
        nodes=options.nodes,
        tasks=options.tasks,
        policy=options.policy,
        seed=options.seed,
        events=options.events,
        placements=options.placements,
        tick=options.tick,
        sets=options.set,
        as_json=options.json,
    )


def _check_policy(name: str) -> None:
    from hetsched.scheduler import PRESETS

    if name not in PRESETS:
        raise Usage(f"no policy {name!r}{nearest(name, PRESETS)}\nknown: {', '.join(PRESETS)}")


COMMANDS = {"simulate": Command(_arguments, _simulate)}
