"""A bounded slice of the simulation: some worlds stay clean, the same seed is the same world, and the auditor can say no."""

from __future__ import annotations

import pytest

from tests.simulation import faults
from tests.simulation.mutants import applied
from tests.simulation.run import run


@pytest.mark.parametrize("seed", [1, 4])
def test_whatever_breaks_nothing_acknowledged_is_lost_and_nothing_runs_twice(seed: int) -> None:
    verdict = run(seed, hours=0.12)
    assert verdict.clean, verdict.sentence
    assert verdict.tasks > 20 and verdict.struck


def test_the_same_seed_is_the_same_world() -> None:
    assert run(3, hours=0.05) == run(3, hours=0.05)


def test_a_plan_may_lose_any_of_its_faults() -> None:
    plan = faults.plan(4, 1.0)
    assert plan == faults.plan(4, 1.0)
    assert {fault.name for seed in range(20) for fault in faults.plan(seed, 1.0)} == set(faults.FAULTS)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(1, 41))
def test_half_an_hour_of_faults(seed: int) -> None:
    verdict = run(seed, hours=0.5)
    assert verdict.clean, verdict.sentence


def test_the_auditor_can_say_no() -> None:
    """The whole table of deliberate bugs: `python -m tests.simulation --mutants`."""
    assert not run(1, hours=0.1, plan=[], mutate=applied("stops_are_not_obeyed")).clean
