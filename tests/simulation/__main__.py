"""`python -m tests.simulation`: worlds by seed until one is broken, or one plan again, or the mutants.

--seeds 1-200 --hours 1        run them; a broken one is shrunk and its line printed; exit 1
--seed 21 --keep 3,7           only these faults of that seed's plan
--mutants                      every deliberate bug, until the auditor says no to it
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

from tests.simulation import faults
from tests.simulation.run import Verdict, command, run, shrink


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", default="1-20", help="FIRST-LAST")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--hours", type=float, default=0.5, help="of faults; a world runs on until it is at rest")
    parser.add_argument("--keep", help="numbers of the plan's faults to keep")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--only", default="", help="one mutant")
    parser.add_argument("--limit", type=float, default=500.0, help="most simulated hours for one mutant")
    asked = parser.parse_args()
    if asked.mutants:
        from tests.simulation.mutants import hunt

        return hunt(asked.limit, asked.hours, asked.only)
    if asked.seed is not None:
        return _one(asked.seed, asked.hours, asked.keep)
    first, _, last = asked.seeds.partition("-")
    return _many(range(int(first), int(last or first) + 1), asked.hours)


def _one(seed: int, hours: float, keep: str | None) -> int:
    plan = faults.plan(seed, hours)
    if keep is not None:
        plan = [plan[int(number)] for number in keep.split(",") if number]
    for fault in plan:
        print(f"{fault.at_s:8.1f} s  {fault.name}")
    verdict = run(seed, hours, plan)
    print(_line(verdict))
    return 0 if verdict.clean else 1


def _many(seeds: range, hours: float) -> int:
    began_s, total, struck, broken = time.process_time(), 0.0, Counter[str](), 0
    for seed in seeds:
        verdict = run(seed, hours)
        total += verdict.hours
        struck.update(verdict.struck)
        print(_line(verdict), flush=True)
        if not verdict.clean:
            broken += 1
            print("  again with:", command(seed, hours, shrink(seed, hours, verdict.law)), flush=True)
    cpu_s = time.process_time() - began_s
    print(f"{total:.1f} simulated hours, {broken} broken, {total / cpu_s:.2f} hours a CPU second")
    print("faults: " + ", ".join(f"{name} {times}" for name, times in sorted(struck.items())))
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
