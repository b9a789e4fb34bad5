"""Learned speeds against the optimum that knows them, through the simulator: a small made table, and Gavel's measured one where it is there.

The harness is the benchmark's (loadtest/bench_heterogeneity.py says what the optimum is). Seeds other than the constants were chosen on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.bench_heterogeneity import GAVELS, LEARNED, Case, Truth, read_truth, run

DRF, WEIGHTED = {"policy": LEARNED}, {"policy": LEARNED, "order": "weighted"}

MADE: Truth = {
    "all-alike": {"old": 0.9, "mid": 1.0, "new": 0.95},
    "needs-new": {"old": 0.3, "mid": 0.5, "new": 1.0},
    "likes-new": {"old": 0.4, "mid": 0.6, "new": 1.0},
    "hates-new": {"old": 0.6, "mid": 1.0, "new": 0.4},
    "needs-mid": {"old": 0.3, "mid": 1.0, "new": 0.5},
    "old-is-fine": {"old": 1.0, "mid": 0.8, "new": 0.7},
}
"""Models that no catalogue knows: everything has to be learned."""

SMALL = {"old": 12, "mid": 12, "new": 12}


@pytest.mark.parametrize(("there", "config"), [(12, DRF), (54, WEIGHTED)])
def test_work_finds_its_devices_on_a_small_cluster(there: int, config: dict[str, object]) -> None:
    results = [run(Case(MADE, SMALL, there, 500, seed, config)) for seed in (21, 22, 23)]
    parts = [sum(result.throughput[3:]) / 2 / result.optimum for result in results]
    assert sum(parts) / 3 >= 0.9, results


def test_whoever_knows_the_speeds_already_needs_no_time() -> None:
    result = run(Case(MADE, SMALL, 54, 200, 22, WEIGHTED, is_informed=True))
    assert result.throughput[1] >= 0.9 * result.optimum


@pytest.mark.parametrize(
    ("there", "config", "part"),
    [
        (54, DRF, 0.9),
        (162, WEIGHTED, 0.9),
    ],
)
def test_on_gavels_cluster_it_is_near_the_optimum(
    shared: Path, there: int, config: dict[str, object], part: float
) -> None:
    table = shared / "traces" / "gavel_throughputs.csv"
    if not table.is_file():
        pytest.skip("Gavel's throughputs are not there")
    result = run(Case(read_truth(table, tuple(GAVELS)), GAVELS, there, 700, 23, config))
    assert result.settled() >= part, result
