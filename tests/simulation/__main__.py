"""`python -m tests.simulation`: worlds by seed until one is broken, or one plan again, or the mutants.

--seeds 1-200 --hours 1        run them; a broken one is shrunk and its line printed; exit 1
--pace calm                    leases of a minute in place of ten seconds
--seed 21 --keep 3,7           only these faults of that seed's plan
--kill-at daemon --steps 1-400 a world for each step at which it may die after a task was placed
--mutants                      every deliberate bug, until the auditor says no to it
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter

from tests.simulation import faults
from tests.simulation.coverage import Met, table
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
    return _many(_range(asked.seeds), asked.hours, pace)


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


def _many(seeds: range, hours: float, pace: Pace) -> int:
    """Until the last seed, or a SIGTERM."""
    began_s, total, under, tasks, broken = time.process_time(), 0.0, 0.0, 0, 0
    struck, met = Counter[str](), Met()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    for seed in seeds:
        if stopped:
            break
        verdict = run(seed, hours, pace=pace)
        total += verdict.hours
        under += min(verdict.hours, hours)
        tasks += verdict.tasks
        struck.update(verdict.struck)
        met.update(verdict.met)
        print(_line(verdict), flush=True)
        if not verdict.clean:
            broken += 1
            print("  again with:", command(seed, hours, shrink(seed, hours, pace=pace), pace), flush=True)
    cpu_s = time.process_time() - began_s
    print(
        f"{total:.1f} simulated hours ({pace.name}), {under:.1f} of them under faults, {broken} broken, {tasks} tasks, "
        f"{sum(struck.values())} faults, {cpu_s:.0f} CPU seconds, {total / cpu_s:.2f} hours a CPU second"
    )
    print("faults: " + ", ".join(f"{name} {times}" for name, times in sorted(struck.items())))
    print("\nfaults that met a task in that state:\n" + table(met, faults.FAULTS))
    return 1 if broken else 0


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
