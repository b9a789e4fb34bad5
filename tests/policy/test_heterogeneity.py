"""Learned speeds against an oracle that knows the truth: Gavel's measured throughputs (Narayanan et al., OSDI 2020) of 26 jobs on three GPUs.

A closed system: `busy` tasks run at any time, each that ends is followed by one of a random type. Throughput of a task is its speed over its
best. The oracle is the same scheduler with a plug-in that reads the table. Seeds other than the constants were chosen on.
"""

from __future__ import annotations

import csv
import heapq
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetsched import wire
from hetsched.config import from_mapping
from hetsched.model import parse_node, parse_submission
from hetsched.policy.fleet import Fleet
from hetsched.policy.scorers import Scorers
from hetsched.policy.shape import ShapeWords
from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m

MODELS = ("k80", "p100", "v100")
DEVICES_EACH = 8
Truth = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def truth(shared: Path) -> Truth:
    """Speed relative to the best, by job and model."""
    file = shared / "traces" / "gavel_throughputs.csv"
    if not file.is_file():
        pytest.skip("Gavel's throughputs are not there")
    measured: Truth = {}
    with file.open() as lines:
        for row in csv.DictReader(lines):
            if row["worker_type"] in MODELS and row["scale_factor"] == "1" and not row["colocated_job_type"]:
                name = "".join(letter if letter.isalnum() else "-" for letter in row["job_type"])
                measured.setdefault(name, {})[row["worker_type"]] = float(row["steps_per_s"])
    return {name: {model: speed / max(of.values()) for model, speed in of.items()} for name, of in measured.items()}


class Cluster:
    """One run. `throughput[k]`: sum of the running tasks' speeds, time-weighted, while the k-th hundred of tasks ended."""

    def __init__(self, truth: Truth, policy: dict[str, Any], scorers: Scorers | None, seed: int) -> None:
        self.truth = truth
        self.chance = random.Random(seed)
        self.scheduler = Scheduler(from_mapping({"policy": policy, "batch": {"max_wait": 0}}), scorers=scorers)
        self.now_ns = 10**18
        self.jobs: dict[str, tuple[str, float]] = {}
        self.speed: dict[str, float] = {}
        self.ends: list[tuple[int, str, m.AttemptEnded]] = []
        self.throughput: list[float] = []

    def run(self, busy: int, hundreds: int) -> list[float]:
        groups = [{"kind": "gpu", "model": model.upper(), "count": DEVICES_EACH} for model in MODELS]
        self._step(
            *(m.NodeJoined(node=spec, session=1)
              for model, group in zip(MODELS, groups, strict=True)
              for spec in parse_node({"name": model, "cpu": 64, "memory": "256Gi", "devices": [group]}))
        )  # fmt: skip
        self._step(*(self._new() for _ in range(busy)))
        for _ in range(hundreds):
            self.throughput.append(self._hundred())
        return self.throughput

    def _hundred(self) -> float:
        began_ns, work = self.now_ns, 0.0
        for _ in range(100):
            at_ns, _, ended = heapq.heappop(self.ends)
            work += sum(self.speed.values()) * (at_ns - self.now_ns)
            self.now_ns = at_ns
            del self.speed[ended.task]
            self._step(ended, self._new())
        return work / (self.now_ns - began_ns)

    def _new(self) -> m.Submit:
        ident = f"j{len(self.jobs)}"
        self.jobs[ident] = self.chance.choice(sorted(self.truth)), self.chance.uniform(50, 150)
        return m.Submit(
            submission=parse_submission({"id": ident, "kind": self.jobs[ident][0], "resources": {"gpu": 1}})
        )

    def _step(self, *inputs: m.Input) -> None:
        for order in self.scheduler.step(list(inputs), self.now_ns).orders:
            if isinstance(order.message, wire.Start):
                self._start(order.node, order.message)

    def _start(self, node: str, start: wire.Start) -> None:
        name, seconds = self.jobs[start.task]
        self.speed[start.task] = self.truth[name][node]
        at_ns = self.now_ns + round(seconds / self.truth[name][node] * 1e9)
        ended = m.AttemptEnded(node=node, task=start.task, attempt=start.attempt, succeeded=True)
        heapq.heappush(self.ends, (at_ns, start.task, ended))
        self._step(m.AttemptStarted(node=node, task=start.task, attempt=start.attempt))


@pytest.mark.parametrize("busy", [8, 16, 20])
def test_after_500_tasks_it_is_within_a_tenth_of_the_oracle(truth: Truth, busy: int) -> None:
    def oracle(shape: ShapeWords, fleet: Fleet) -> Any:
        known = truth.get(shape.task_type, {})
        return np.array([known.get(spec.name, 0.0) if spec is not None else 0.0 for spec in fleet.specs])

    shares = []
    for seed in (11, 12):
        best = Cluster(truth, {"preset": "first-fit", "scorers": {"oracle": 1}}, Scorers({"oracle": oracle}), seed).run(
            busy, 8
        )
        learned = Cluster(truth, {"preset": "first-fit", "weights": {"learned": 1}}, None, seed).run(busy, 8)
        shares.append(sum(learned[4:]) / sum(best[4:]))
    assert min(shares) >= 0.9, shares
