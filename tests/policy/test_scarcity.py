"""Scarce models go to those whom they help most: prices of a linear program, and a bound that they prove."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.policy.scarcity import Class, bound, scarcities

GAINS_MUCH = Class(1, {"old": 8.0, "new": 1.0})
GAINS_LITTLE = Class(1, {"old": 1.25, "new": 1.0})


def test_where_there_is_enough_nothing_is_scarce() -> None:
    assert scarcities([GAINS_MUCH, GAINS_LITTLE], {"old": 4, "new": 100}, busy=4) == {"old": 1.0, "new": 1.0}


def test_the_new_ones_are_left_to_those_who_gain_most_there() -> None:
    scarce = scarcities([GAINS_MUCH, GAINS_LITTLE], {"old": 5, "new": 4}, busy=9)
    assert scarce["old"] == 1
    assert 1.25 < scarce["new"] < 8  # dear enough for the one, cheap for the other


def test_what_one_model_alone_can_do_is_no_question() -> None:
    assert scarcities([GAINS_MUCH], {"new": 4}, busy=4) == {"new": 1.0}
    assert scarcities([], {"old": 1, "new": 4}, busy=4) == {"old": 1.0, "new": 1.0}
    assert scarcities([GAINS_MUCH], {"old": 1, "new": 4}, busy=0) == {"old": 1.0, "new": 1.0}


def test_the_bound_is_the_optimum_where_that_can_be_seen() -> None:
    """Eight new ones and ten old ones: each to its own, eight mixes a second."""
    capacity = {"old": 10, "new": 8}
    classes = [GAINS_MUCH, GAINS_LITTLE]
    assert bound(scarcities(classes, capacity, 18), classes, capacity, 18) == pytest.approx(8, rel=0.01)


times = st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 10), min_size=3, max_size=3)


@settings(deadline=None, max_examples=30)
@given(st.lists(times, min_size=1, max_size=5), st.integers(1, 40), st.randoms(use_true_random=False))
def test_no_plan_passes_what_the_scarcities_prove(kinds: list[dict[str, float]], busy: int, chance: object) -> None:
    """Any plan at all: devices of each model divided among the kinds at random, as many mixes as the worst served kind lets through."""
    rng: random.Random = chance  # type: ignore[assignment]
    capacity = {"a": 5, "b": 7, "c": 9}
    classes = [Class(1, of) for of in kinds]
    proven = bound(scarcities(classes, capacity, busy), classes, capacity, busy)
    for _ in range(5):
        parts = [[0.01 + rng.random() for _ in kinds] for _ in capacity]
        scale = min(1.0, busy / sum(capacity.values()))
        served = [
            sum(
                scale * capacity[model] * parts[at][kind] / sum(parts[at]) / of[model]
                for at, model in enumerate(capacity)
            )
            for kind, of in enumerate(kinds)
        ]
        assert min(served) <= proven * (1 + 1e-9)
