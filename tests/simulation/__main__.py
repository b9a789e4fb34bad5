"""`python -m tests.simulation`: worlds by seed until one is broken, or one plan again, or the mutants.

--seeds 1-200 --hours 1        run them; a broken one is shrunk and its line printed; exit 1
--pace calm                    leases of a minute in place of ten seconds
--seed 21 --keep 3,7           only these faults of that seed's plan
--kill-at daemon --steps 1-400 a world for each step at which it may die after a task was placed
--log F … --sum F G              hours that add up over several runs, and their sum
--mutants                      every deliberate bug, until the auditor says no to it
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.simulation import faults, tally
from tests.simulation.pace import PACES, Pace
from tests.simulation.run import Verdict, command, kill_at, run, shrink


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", default="1-20", help="FIRST-LAST")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--hours", type=float, default=0.5, help="of faults; a world runs on until it is at rest")
    parser.add_argument("--pace", choices=sorted(PACES), default="dense")
    parser.add_argument("--keep", help="numbers of the plan's faults to keep")
    parser.add_argument("--kill-at", choices=("daemon", "agent"), help="who dies")
    parser.add_argument("--steps", default="1-400", help="FIRST-LAST")
    parser.add_argument("--log", type=Path, help="a line of JSON for each world is added to this file")
    parser.add_argument("--sum", type=Path, nargs="+", help="what such files come to together")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--table", action="store_true", help="of the mutants that were killed, as the README has it")
    parser.add_argument("--only", default="", help="some mutants, by commas")
    parser.add_argument("--limit", type=float, default=500.0, help="most simulated hours for one mutant")
    asked = parser.parse_args()
    pace = PACES[asked.pace]
    if asked.mutants:
        from tests.simulation import hunt

        return hunt.hunt(asked.limit, asked.only)
    if asked.table:
        from tests.simulation import hunt, kills

        print(hunt.table(kills.KILLED_BY))
        return 0
    if asked.kill_at:
        return _every_step(asked.kill_at, _range(asked.steps))
    if asked.seed is not None:
        return _one(asked.seed, asked.hours, asked.keep, pace)
    if asked.sum:
        print(tally.summary(tally.read(asked.sum), faults.FAULTS))
        return 0
    return _many(_range(asked.seeds), asked.hours, pace, asked.log)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _every_step(who: str, steps: range) -> int:
    broken, hours = 0, 0.0
    for step in steps:
        verdict = kill_at(step % 7, who, step)
        hours += verdict.hours
        if not verdict.clean:
            broken += 1
            print(f"step {step}: {verdict.sentence}", flush=True)
    print(f"{len(steps)} steps of the {who}, {hours:.1f} simulated hours, {broken} broken")
    return 1 if broken else 0


def _one(seed: int, hours: float, keep: str | None, pace: Pace) -> int:
    plan = faults.plan(seed, hours, pace.fault_s)
    if keep is not None:
        plan = [plan[int(number)] for number in keep.split(",") if number]
    for fault in plan:
        print(f"{fault.at_s:8.1f} s  {fault.name}")
    verdict = run(seed, hours, plan, pace=pace)
    print(_line(verdict))
    return 0 if verdict.clean else 1


def _many(seeds: range, hours: float, pace: Pace, log: Path | None) -> int:
    """Until the last seed, or a SIGTERM."""
    rows: list[str] = []
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    for seed in seeds:
        if stopped:
            break
        began_s = time.process_time()
        verdict = run(seed, hours, pace=pace)
        rows.append(tally.line(verdict, pace, hours, time.process_time() - began_s))
        if log is not None:
            with log.open("a") as file:
                file.write(rows[-1])
        print(_line(verdict), flush=True)
        if not verdict.clean:
            print("  again with:", command(seed, hours, shrink(seed, hours, pace=pace), pace), flush=True)
    told = [json.loads(row) for row in rows]
    print(tally.summary(told, faults.FAULTS))
    return 1 if any(row["said"] for row in told) else 0


def _line(verdict: Verdict) -> str:
    told = (
        f"{verdict.hours:.2f} h, {verdict.tasks} tasks, {verdict.turns} turns, {verdict.epochs} daemons, "
        f"{sum(verdict.struck.values())} faults"
    )
    return f"seed {verdict.seed}: {verdict.sentence or 'clean'} ({told})"


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are walked in the order of their hashes
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
