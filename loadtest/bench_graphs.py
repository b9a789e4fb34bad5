"""How near to HEFT, and to what is possible at all, do graphs come? Twenty workflow graphs on clusters of unlike devices.

    python -m loadtest.bench_graphs [--learned]

The product runs each graph through its own engine in the simulator, where speeds by kind of operator and device model are the truth. Beside it
stand HEFT by an implementation of its own (reference_heft.py), which knows the truth, and the bound: the longer of the critical path on the
fastest devices and all work over all speeds. By default the graph says the speeds, as HEFT's table of costs does; with --learned it does not,
and the graph is the fourth of its shape that the cluster sees.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

import msgspec

from hetsched.sim.engine import Engine
from hetsched.sim.read_scenario import read_scenario
from loadtest import reference_heft
from loadtest.workflows import SHAPES

MODELS = {"A100": 4.0, "V100": 2.0, "T4": 1.0, "K80": 0.4}
CPU_CORES, CORES_ASKED = 16, 8
BYTES_PER_S = 1.25e9
SEEDS = range(5)
ON_CORES = ("concat", "bgmodel", "imgtbl", "jpeg", "split", "merge", "zipseis", "zippsa", "k5")
EITHER = ("diff", "shrink", "filter", "sanger", "bfq", "peak", "k4")


class Row(msgspec.Struct):
    """Seconds."""

    shape: str
    seed: int
    operators: int
    ours: float
    heft: float
    bound: float
    took_s: float


class Case:
    """One graph on one cluster, drawn by seed."""

    def __init__(self, shape: str, seed: int) -> None:
        self.rng = random.Random(f"{shape}/{seed}")
        self.shape, self.seed = shape, seed
        self.nodes = self._nodes()
        self.operators = SHAPES[shape](seed)
        kinds = sorted({one["kind"] for one in self.operators})
        self.speeds = {kind: self._speeds() for kind in kinds}

    def _nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = []
        for model in MODELS:
            for index in range(self.rng.randint(1, 2)):
                devices = [{"kind": "gpu", "model": model, "count": self.rng.randint(1, 3)}]
                nodes.append({"name": f"{model.lower()}-{index}", "cpu": 1, "devices": devices})
        nodes += [{"name": f"cores-{index}", "cpu": CPU_CORES} for index in range(self.rng.randint(1, 3))]
        return nodes

    def _speeds(self) -> dict[str, float]:
        speeds = {model: round(speed * self.rng.uniform(0.5, 1.5), 3) for model, speed in MODELS.items()}
        return {**speeds, "cpu": round(self.rng.uniform(0.3, 1.2), 3)}

    def graph(self, ident: str, *, says_speeds: bool) -> dict[str, Any]:
        """As the product is given it."""
        operators = []
        for one in self.operators:
            asks = [{"resources": {"gpu": 1}}, {"resources": {"cpu": CORES_ASKED}}]
            chosen = asks[1:] if one["kind"] in ON_CORES else asks if one["kind"] in EITHER else asks[:1]
            operators.append({**one, "alternatives": chosen})
            if says_speeds:
                operators[-1]["speeds"] = self.speeds[one["kind"]]
        return {"id": ident, "operators": operators}

    # -- the same for the reference

    def processors(self) -> list[tuple[str, str]]:
        """(node, model) of everything that runs one operator at a time."""
        found = []
        for node in self.nodes:
            if "devices" in node:
                found += [(node["name"], node["devices"][0]["model"])] * node["devices"][0]["count"]
            else:
                found += [(node["name"], "cpu")] * (CPU_CORES // CORES_ASKED)
        return found

    def costs(self) -> dict[str, list[float | None]]:
        """By operator and processor."""
        return {
            one["id"]: [
                one["cost"] / self.speeds[one["kind"]][model] if self._may(one["kind"], model) else None
                for _, model in self.processors()
            ]
            for one in self.operators
        }

    @staticmethod
    def _may(kind: str, model: str) -> bool:
        return kind in EITHER or (kind in ON_CORES) == (model == "cpu")

    def parents(self) -> dict[str, dict[str, float]]:
        """Seconds to send, by operator and parent."""
        return {one["id"]: {link["id"]: link["data"] / BYTES_PER_S for link in one["after"]} for one in self.operators}

    def bound(self) -> float:
        """Nothing can be faster: the critical path, and for operators that need the same sort of processor their work over its speed."""
        costs, parents = self.costs(), self.parents()
        bound = reference_heft.critical_path(costs, parents)
        for sorts in (("cpu",), tuple(MODELS), (*MODELS, "cpu")):
            mine = [
                one
                for one in self.operators
                if all(model in sorts for model in (*MODELS, "cpu") if self._may(one["kind"], model))
            ]
            fastest = [
                max((self.speeds[one["kind"]][model] for one in mine if self._may(one["kind"], model)), default=0.0)
                for _, model in self.processors()
            ]
            bound = max(bound, sum(one["cost"] for one in mine) / sum(fastest)) if sum(fastest) else bound
        return bound


def ours(case: Case, *, learned: bool) -> float:
    """Makespan of the last graph, by the product's own engine."""
    before = 3 if learned else 0
    apart_s = 100_000.0
    raw = {
        "seed": case.seed,
        "nodes": case.nodes,
        "speeds": case.speeds,
        "events": [
            {"at": index * apart_s, "graph": case.graph(f"g{index}", says_speeds=not learned)}
            for index in range(before + 1)
        ],
    }
    engine = Engine(read_scenario(raw), ())
    engine.run()
    course = engine.scheduler.books.graphs.by_id[f"g{before}"]
    assert course.state == "succeeded", course.state
    return (course.ended_ns - course.at_ns) / 1e9


def measure(shape: str, seed: int, *, learned: bool = False) -> Row:
    """One row of the table."""
    case = Case(shape, seed)
    began = time.process_time()
    makespan = ours(case, learned=learned)
    took_s = time.process_time() - began
    planned = reference_heft.schedule(case.costs(), case.parents(), [node for node, _ in case.processors()])
    heft = max(end for _, _, end in planned.values())
    return Row(shape, seed, len(case.operators), makespan, heft, case.bound(), took_s)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--learned", action="store_true", help="the graph says no speeds; three of its shape went before"
    )
    options = parser.parse_args()
    rows = [measure(shape, seed, learned=options.learned) for shape in SHAPES for seed in SEEDS]
    print(f"{'shape':12} seed  operators   makespan       HEFT  / HEFT  / bound  CPU s")
    for row in rows:
        print(
            f"{row.shape:12} {row.seed:4}  {row.operators:9}  {row.ours:9.1f}  {row.heft:9.1f}  {row.ours / row.heft:6.3f}"
            f"  {row.ours / row.bound:7.3f}  {row.took_s:5.1f}"
        )
    ratios = [row.ours / row.heft for row in rows]
    bounds = [row.ours / row.bound for row in rows]
    print(
        f"\nover HEFT: mean {statistics.mean(ratios):.3f}, worst {max(ratios):.3f}; over the bound: mean "
        f"{statistics.mean(bounds):.3f}, worst {max(bounds):.3f}"
    )


if __name__ == "__main__":
    main()
