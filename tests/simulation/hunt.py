"""The hunt for mutants: every deliberate bug in world after world, until the auditor says no.

`KILLED_BY` in `kills.py` remembers which seed did it, so that the default tests kill a slice of them again and the long ones all.
"""

from __future__ import annotations

import itertools
import random

from tests.simulation.faults import plan
from tests.simulation.kills import Kill
from tests.simulation.mutants import CRASHES, MUTANTS, NEEDS, NEEDS_LONG_LEADERS, applied
from tests.simulation.pace import DENSE
from tests.simulation.run import run

HOURS = 0.5
"""Of faults in one world."""


def hunt_one(name: str, limit_h: float, first: int = 1) -> tuple[Kill | None, str]:
    """Seeds from `first` on until the auditor notices; what it says. `limit_h`, and the hours of the kill: of all worlds that were run, those
    that know the fault which the bug needs."""
    hours = 0.0
    for seed in itertools.count(first):
        if hours >= limit_h:
            break
        if not _may_show(name, seed):
            continue
        verdict = run(seed, HOURS, mutate=applied(name), pace=DENSE, restarts=name in CRASHES)
        hours += verdict.hours
        if not verdict.clean:
            return Kill(verdict.law, seed, round(hours, 2)), verdict.sentence
    return None, ""


def _may_show(name: str, seed: int) -> bool:
    if name in NEEDS and not any(fault.name == NEEDS[name] for fault in plan(seed, HOURS, DENSE.fault_s)):
        return False
    leases = DENSE.config(random.Random(f"config {seed}"))
    return name not in NEEDS_LONG_LEADERS or leases["store"]["lease"] > leases["agent"]["lease"]


def hunt(limit_h: float, only: str = "") -> int:
    """The table on stdout, and the lines for `kills.py`; 1 if one lives."""
    wanted = only.split(",") if only else list(MUTANTS)
    kills = {}
    for name in wanted:
        kill, sentence = hunt_one(name, limit_h)
        if kill is not None:
            kills[name] = kill
        print(f"{name}: {sentence or 'NOBODY'} {kill or ''}", flush=True)
    print(f"\n{table(kills)}\n\n{len(kills)} of {len(wanted)} noticed")
    for name, kill in kills.items():
        print(f'    "{name}": {kill!r},')
    return 0 if len(kills) == len(wanted) else 1


def table(kills: dict[str, Kill]) -> str:
    """As Markdown."""
    lines = [
        "| bug | what is wrong | noticed by | seed | simulated hours | in worlds with |",
        "|---|---|---|---|---|---|",
    ]
    for name, kill in kills.items():
        what = (MUTANTS[name].__doc__ or "").strip().rstrip(".")
        lines.append(f"| {name} | {what} | {kill.law} | {kill.seed} | {kill.hours:g} | {NEEDS.get(name, '')} |")
    return "\n".join(lines)
