"""The duals of the cutting-stock program: right on small ones, best on random ones by strong duality."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from hetsched._core import pattern_weights
from hetsched.policy import patterns
from hetsched.policy.patterns import CELLS, MOST_PIVOTS, MOST_SIZES, Basis, duals, worth


def weights_of(demand: dict[int, int]) -> dict[int, Fraction]:
    weights, denominator = duals(demand)
    return {size: Fraction(weight, denominator) for size, weight in weights.items()}


@pytest.mark.parametrize(
    ("demand", "weights"),
    [
        ({}, {}),
        ({100: 7}, {100: 1}),
        ({50: 3}, {50: Fraction(1, 2)}),
        ({30: 9}, {30: Fraction(1, 3)}),
        ({60: 5, 40: 2}, {60: 1, 40: 0}),  # there is more room beside the large ones than small ones ask for
        ({60: 2, 40: 9}, {60: Fraction(1, 2), 40: Fraction(1, 2)}),
        ({70: 4, 30: 0}, {70: 1}),
    ],
)
def test_small_programs(demand: dict[int, int], weights: dict[int, Fraction]) -> None:
    assert weights_of(demand) == weights


@pytest.mark.parametrize("seed", range(20))
def test_the_cover_costs_what_the_demand_weighs(seed: int) -> None:
    """Both sides of the program are feasible and equal: then both are best. Exactly."""
    rng = random.Random(seed)
    demand = {rng.randint(1, 100): rng.randint(1, 10_000) for _ in range(rng.randint(1, MOST_SIZES))}
    sizes = sorted(demand)
    basis = Basis(sizes, [demand[size] for size in sizes])
    pivots = 0
    while (entering := basis.entering())[0] is not None and basis.pivot(*entering):
        pivots += 1
    weights = weights_of(demand)
    assert pivots < MOST_PIVOTS / 5
    assert all(weight >= 0 for weight in weights.values())
    assert max(worth(weights)) <= 1, "no pattern weighs more than a device"
    held = [
        Fraction(sum(a * b for a, b in zip(row, (demand[s] for s in sizes), strict=True)), basis.denominator)
        for row in basis.inverse
    ]
    assert all(amount >= 0 for amount in held)
    assert sum(cost * amount for cost, amount in zip(basis.costs, held, strict=True)) == sum(
        demand[size] * weight for size, weight in weights.items()
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_core_finds_the_same_duals_or_says_that_numbers_are_too_large(seed: int) -> None:
    rng = random.Random(seed)
    most = 10 ** rng.randint(1, 7)
    sizes = sorted(rng.sample(range(1, 101), rng.randint(1, MOST_SIZES)))
    demand = [rng.randint(0, most) for _ in sizes]
    found = pattern_weights(sizes, demand, MOST_PIVOTS)
    exact = patterns._exact(sizes, demand)
    assert found in (exact, None)
    assert found is not None or len(sizes) > 20, "what few sizes come to is small"


def test_duals_are_exact_where_numbers_are_too_large_for_the_core() -> None:
    sizes, huge = [30, 100], [9 << 40, 1]
    assert pattern_weights(sizes, huge, MOST_PIVOTS) is None
    assert pattern_weights(sizes, [1 << 80, 1], MOST_PIVOTS) is None
    assert weights_of(dict(zip(sizes, huge, strict=True))) == {30: Fraction(1, 3), 100: 1}


@pytest.mark.parametrize(
    ("sizes", "demand"), [([], []), ([5], [1, 2]), ([5, 5], [1, 2]), ([0], [1]), ([101], [1]), ([5], [-1])]
)
def test_the_core_refuses_what_are_no_sizes(sizes: list[int], demand: list[int]) -> None:
    with pytest.raises(ValueError, match="sizes"):
        pattern_weights(sizes, demand, MOST_PIVOTS)


def test_of_many_sizes_the_most_wanted_are_told_apart() -> None:
    demand = {size: 1000 if size % 3 == 0 else 1 for size in range(1, 101)}
    weights = weights_of(demand)
    assert len(weights) == MOST_SIZES and set(weights) >= {*range(3, 100, 3), 100}
    assert max(worth(weights)) <= 1


def test_worth_never_falls_with_room() -> None:
    values = worth({23: 3, 32: 4, 46: 6})
    assert values == sorted(values)
    assert (values[0], values[22], values[23], values[45], values[46], values[69], values[CELLS]) == (
        0,
        0,
        3,
        4,
        6,
        9,
        12,
    )
