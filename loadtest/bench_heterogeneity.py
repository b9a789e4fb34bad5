"""Does work go where it helps most, when nobody says how fast it runs where?

    python loadtest/bench_heterogeneity.py --table gavel_throughputs.csv [--tasks 1000] [--seeds 1,2] [--plot docs/plots/heterogeneity.svg]

Gavel's measured throughputs (Narayanan et al., OSDI 2020) of 26 jobs are the truth behind the simulator's `speeds`, on Gavel's cluster of 36
K80, 36 P100 and 36 V100, four a node. A closed system: so many tasks are there at any time, each that ends is followed by one of a random
kind, with work of 80 to 120 s on its best model. The scheduler knows no speeds and no durations: it places through its own engine by the
term `learned`.

Throughput is work done a second, work counted in seconds of the best model. Held against it:

- optimum: of the linear program that knows the table and the fractions of the mix (`hetsched/policy/scarcity.py`, proven by its dual):
  no scheduler passes it, not one that reorders, moves or waits either. Divisible over models and time, so a bit more than can be had.
- informed: the same scheduler with the whole table imported as profiles. What it lacks to the optimum is the order of arrival: while less
  work is there than devices, a task takes what is free at that moment.
- figures: the cost model alone (preset `affinity`), which learns nothing.

With more work than devices a device that ends goes to whom it suits best only where the order lets it: `order = "weighted"`.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hetsched.model import Task
from hetsched.policy.profiles import RUNS_KEPT, Profile
from hetsched.policy.scarcity import Class, bound, scarcities
from hetsched.scheduler.messages import Event
from hetsched.sim.engine import Engine
from hetsched.sim.read_scenario import read_scenario

GAVELS = {"K80": 36, "P100": 36, "V100": 36}
NODE_DEVICES = 4
WORK_S = (80.0, 120.0)
LEARNED = {"preset": "first-fit", "weights": {"preset": 0, "learned": 1}}
LOADS = ((36, "drf"), (54, "drf"), (81, "drf"), (100, "drf"), (162, "weighted"))
EACH = 100
SETTLED = 500
"""Ended tasks after which it is held to what it has learned."""

Truth = Mapping[str, Mapping[str, float]]
"""Speed by kind of task and model, of the best."""


class Case(NamedTuple):
    """`there`: tasks in the system at any time; `tasks`: how many are to end."""

    truth: Truth
    devices: Mapping[str, int]
    there: int
    tasks: int
    seed: int
    config: dict[str, Any]
    is_informed: bool = False


class Result(NamedTuple):
    """`throughput[k]`: while the k-th hundred of tasks ended. `optimum`: of the mix that ended from SETTLED on."""

    throughput: list[float]
    optimum: float

    def settled(self) -> float:
        """Part of the optimum that was reached from SETTLED ended tasks on."""
        late = self.throughput[SETTLED // EACH :]
        return sum(late) / len(late) / self.optimum


def read_truth(table: Path, models: Sequence[str]) -> Truth:
    """Of jobs on one device that share it with nobody."""
    measured: dict[str, dict[str, float]] = {}
    with table.open() as rows:
        for row in csv.DictReader(rows):
            model = row["worker_type"].upper()
            if model in models and row["scale_factor"] == "1" and not row["colocated_job_type"]:
                name = "".join(letter if letter.isalnum() else "-" for letter in row["job_type"])
                measured.setdefault(name, {})[model] = float(row["steps_per_s"])
    return {name: {model: speed / max(of.values()) for model, speed in of.items()} for name, of in measured.items()}


class Meter:
    """A watcher: adds up the true speeds of what runs."""

    def __init__(self, case: Case, work: Mapping[str, tuple[str, float]]) -> None:
        self.done: list[str] = []
        self.throughput: list[float] = []
        self._case, self._work = case, work
        self._model: dict[str, str] = {}
        self._rate = self._sum = 0.0
        self._at_ns = self._began_ns = 0

    def submitted(self, task: Task, now_ns: int) -> None:
        """Nothing: they are all there from the start."""

    def happened(self, event: Event) -> None:
        if event.task is None:
            return
        self._sum += self._rate * (event.t_ns - self._at_ns)
        self._at_ns = event.t_ns
        if event.event == "placed":
            self._model[event.task] = event.data["node"].rsplit("-", 1)[0]
        elif event.event == "running":
            self._rate += self._speed(event.task)
        elif event.event == "succeeded":
            self._rate -= self._speed(event.task)
            self._ended(event.task)

    def _speed(self, task: str) -> float:
        return self._case.truth[self._work[task][0]][self._model[task]]

    def _ended(self, task: str) -> None:
        self.done.append(task)
        if len(self.done) % EACH == 0:
            self.throughput.append(self._sum / (self._at_ns - self._began_ns))
            self._sum, self._began_ns = 0.0, self._at_ns


def run(case: Case) -> Result:
    """One simulation."""
    work = _work(case)
    meter = Meter(case, work)
    engine = Engine(read_scenario(_scenario(case, work)), (meter,))
    if case.is_informed:
        _inform(engine, case)
    engine.run()
    done = meter.done[min(SETTLED, case.tasks // 2) : case.tasks]
    return Result(meter.throughput[: case.tasks // EACH], optimum(case, Counter(work[task][0] for task in done)))


def optimum(case: Case, mix: Mapping[str, int]) -> float:
    """Work a second of the best plan for this mix of kinds."""
    classes = [
        Class(count, {model: 1 / speed for model, speed in case.truth[kind].items()}) for kind, count in mix.items()
    ]
    mixes = bound(scarcities(classes, case.devices, case.there), classes, case.devices, case.there)
    return mixes * sum(mix.values())


def _work(case: Case) -> dict[str, tuple[str, float]]:
    """Kind and work of every task. So many chains of tasks, each link after the last one ended; longer than needed, so that all go on."""
    chance = random.Random(case.seed)
    links = -(-case.tasks // case.there) + 6
    return {
        f"c{chain}-{link}": (chance.choice(sorted(case.truth)), round(chance.uniform(*WORK_S), 3))
        for link in range(links)
        for chain in range(case.there)
    }


def _scenario(case: Case, work: Mapping[str, tuple[str, float]]) -> dict[str, Any]:
    nodes = [
        {
            "name": f"{model}-",
            "count": devices // NODE_DEVICES,
            "cpu": 64,
            "memory": "256Gi",
            "devices": [{"kind": "gpu", "model": model, "count": NODE_DEVICES}],
        }
        for model, devices in case.devices.items()
    ]
    bodies = [
        {"id": ident, "kind": kind, "resources": {"gpu": 1}, "duration": seconds, "after": _before(ident)}
        for ident, (kind, seconds) in work.items()
    ]
    speeds = {kind: dict(of) for kind, of in case.truth.items()}
    events = [{"at": 0, "submit": body} for body in bodies]
    return {"seed": case.seed, "config": case.config, "nodes": nodes, "speeds": speeds, "events": events}


def _before(ident: str) -> list[str]:
    chain, link = ident.split("-")
    return [f"{chain}-{int(link) - 1}"] if link != "0" else []


def _inform(engine: Engine, case: Case) -> None:
    mean_ms = 1000 * sum(WORK_S) / 2
    for kind, of in case.truth.items():
        for model, speed in of.items():
            times_ms = [round(mean_ms / speed)] * RUNS_KEPT
            engine.scheduler.books.profiles.put(Profile(kind, model, "1", runs=RUNS_KEPT, times_ms=times_ms))


# ---------------------------------------------------------------------- the table and the chart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, required=True, help="gavel_throughputs.csv")
    parser.add_argument("--tasks", type=int, default=1000, help="ended tasks a run")
    parser.add_argument("--seeds", default="1,2", help="with commas")
    parser.add_argument("--plot", type=Path, help="an SVG file to write")
    given = parser.parse_args()
    truth = read_truth(given.table, tuple(GAVELS))
    seeds = [int(seed) for seed in given.seeds.split(",")]
    print(f"part of the optimum's throughput, ended tasks {SETTLED} to {given.tasks}, mean of seeds {given.seeds}:")
    print(
        f"  {'tasks there':>11}  {'order':9}{'learned':>9}{'informed':>10}{'figures':>9}  learned by hundreds of ended tasks"
    )
    curves = {}
    for there, order in LOADS:
        case = Case(truth, GAVELS, there, given.tasks, 0, {"order": order, "policy": LEARNED})
        found = {name: [run(one) for one in _seeded(case, name, seeds)] for name in ("learned", "informed", "figures")}
        parts = {name: sum(one.settled() for one in results) / len(results) for name, results in found.items()}
        curve = _curve(found["learned"])
        curves[f"{there} tasks, order {order}"] = [(EACH * (at + 1), value) for at, value in enumerate(curve)]
        print(
            f"  {there:11}  {order:9}{parts['learned']:9.3f}{parts['informed']:10.3f}{parts['figures']:9.3f}  "
            + " ".join(f"{value:.2f}" for value in curve),
            flush=True,
        )
    if given.plot is not None:
        _draw(given.plot, curves)


def _seeded(case: Case, name: str, seeds: Sequence[int]) -> list[Case]:
    if name == "figures":
        case = case._replace(config={**case.config, "policy": {"preset": "affinity"}})
    return [case._replace(seed=seed, is_informed=name == "informed") for seed in seeds]


def _curve(results: Sequence[Result]) -> list[float]:
    hundreds = zip(*(result.throughput for result in results), strict=True)
    mean = sum(result.optimum for result in results) / len(results)
    return [sum(values) / len(values) / mean for values in hundreds]


def _draw(path: Path, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    from loadtest.plot import lines

    title = "Throughput while speeds are learned, 36 K80 + 36 P100 + 36 V100"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines(title, "ended tasks", "of the optimum", curves, least=0.5, most=1.0, mark=0.9))


if __name__ == "__main__":
    main()
