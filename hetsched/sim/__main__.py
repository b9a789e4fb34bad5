"""`python -m hetsched.sim`: the simulator without the rest of the program."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hetsched.sim.run import simulate


def main() -> int:
    """Options as those of `hetsched simulate`."""
    parser = argparse.ArgumentParser(prog="python -m hetsched.sim", description=__doc__)
    parser.add_argument("scenario", nargs="?", type=Path, help="a scenario file, YAML or JSON")
    parser.add_argument("--nodes", type=Path, help="CSV of nodes, in the columns of the openb trace")
    parser.add_argument("--tasks", type=Path, help="CSV of tasks, likewise")
    parser.add_argument("--policy", help="preset to rank nodes by; several with commas: a table")
    parser.add_argument("--set", action="append", default=[], help="a configuration key, a.b=c; may repeat")
    parser.add_argument("--seed", type=int, help="in place of the scenario's")
    parser.add_argument("--events", type=Path, help="write the event log here, one JSON object a line")
    parser.add_argument("--placements", type=Path, help="write every placement here, as CSV")
    parser.add_argument("--tick", type=float, default=0.001, help="seconds between tasks without times (0.001)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    given = parser.parse_args()
    return simulate(
        given.scenario,
        nodes=given.nodes,
        tasks=given.tasks,
        policy=given.policy,
        seed=given.seed,
        events=given.events,
        placements=given.placements,
        tick=given.tick,
        sets=given.set,
        as_json=given.json,
    )


if __name__ == "__main__":
    sys.exit(main())
