"""What a device's parts are worth: duals of "fewest whole devices that hold all that is asked".

The cutting-stock problem of Gilmore and Gomory (A Linear Programming Approach to the Cutting-Stock Problem, Operations Research 9, 1961):
a pattern is a multiset of sizes that fit on one device together; cover the demand for every size with as few patterns as possible. Its
linear relaxation is solved by columns made on demand: the pattern that is worth most under the present duals (a knapsack on the cells of
a device) enters, until none is worth more than the device that it takes.

Exact: the inverse of the basis is kept as integers over one common denominator (Edmonds, Systems of Distinct Representatives and Linear
Algebra, 1967), so that every machine finds the same duals. About as many pivots as there are sizes, at most `MOST_PIVOTS`. The core does it
pivot by pivot as here, while numbers stay small; where they outgrow it, this does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import mul

from hetsched._core import pattern_weights

CELLS = 100
"""Parts that a device is cut into: sizes are rounded up to hundredths of a device."""

MOST_SIZES = 40
"""Sizes told apart: the most wanted ones; the others count as the next larger of those. Forty take 40 ms here, a hundred took 1.8 s."""

MOST_PIVOTS = 1_000
"""A guard, eight times what forty sizes take: the duals of an unfinished run are usable all the same."""

Matrix = list[list[int]]


def duals(demand: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """`demand`: devices asked for by size in cells, 1..CELLS. Returns weights by size and the denominator that they are over."""
    merged = _most_wanted({size: count for size, count in demand.items() if count > 0})
    if not merged:
        return {}, 1
    sizes = sorted(merged)
    asked = [merged[size] for size in sizes]
    weights, denominator = pattern_weights(sizes, asked, MOST_PIVOTS) or _exact(sizes, asked)
    return dict(zip(sizes, (max(0, weight) for weight in weights), strict=True)), denominator


def worth(weights: Mapping[int, int]) -> list[int]:
    """By free cells, 0..CELLS: the most that sizes that fit in there together weigh."""
    sizes = sorted(weights)
    best, _ = _knapsack(sizes, [weights[size] for size in sizes])
    return best


def _exact(sizes: Sequence[int], demand: Sequence[int]) -> tuple[list[int], int]:
    """`pattern_weights`, however large numbers become."""
    basis = Basis(sizes, demand)
    for _ in range(MOST_PIVOTS):
        column, cost = basis.entering()
        if column is None or not basis.pivot(column, cost):
            break
    return basis.duals(), basis.denominator


def _most_wanted(demand: Mapping[int, int]) -> dict[int, int]:
    """At most MOST_SIZES sizes, the largest among them; nobody's gets smaller."""
    if len(demand) <= MOST_SIZES:
        return dict(demand)
    wanted = sorted(demand, key=lambda size: (size == max(demand), demand[size], size), reverse=True)
    kept = sorted(wanted[:MOST_SIZES])
    merged = dict.fromkeys(kept, 0)
    for size, count in demand.items():
        merged[kept[bisect_left(kept, size)]] += count
    return merged


class Basis:
    """The basis of the linear program as the inverse of its matrix: `inverse` / `denominator`, row by row what a basic column covers."""

    def __init__(self, sizes: Sequence[int], demand: Sequence[int]) -> None:
        self.sizes = sizes
        self.demand = demand
        self.denominator = 1  # of the first basis: one piece a device; its matrix is the unit matrix
        self.inverse: Matrix = [[int(row == at) for at in range(len(sizes))] for row in range(len(sizes))]
        self.costs = [1] * len(sizes)  # 1: a pattern; 0: covers too much of a size

    def duals(self) -> list[int]:
        """Weights of the sizes, over `denominator`."""
        paid = [row for cost, row in zip(self.costs, self.inverse, strict=True) if cost]
        return [sum(column) for column in zip(*paid, strict=True)] if paid else [0] * len(self.sizes)

    def entering(self) -> tuple[list[int] | None, int]:
        """A column that makes the cover cheaper and what it costs: covering too much of a size where its weight is below 0, else the
        pattern that is worth most. None: there is none, the basis is best."""
        weights = self.duals()
        lowest = min(weights)
        if lowest < 0:
            return [-1 if at == weights.index(lowest) else 0 for at in range(len(self.sizes))], 0
        best, pattern = _knapsack(self.sizes, weights)
        return (pattern, 1) if best[CELLS] > self.denominator else (None, 0)

    def pivot(self, column: Sequence[int], cost: int) -> bool:
        """The column enters, the basic one that runs out first leaves (the first of equals). False: none runs out."""
        entering = [_dot(row, column) for row in self.inverse]
        held = [_dot(row, self.demand) for row in self.inverse]
        leaving = -1
        for row, rate in enumerate(entering):
            if rate > 0 and (leaving < 0 or held[row] * entering[leaving] < held[leaving] * rate):
                leaving = row
        if leaving < 0:
            return False
        rate, gone = entering[leaving], self.inverse[leaving]
        self.inverse = [
            gone if row == leaving else _eliminate(values, gone, entering[row], rate, self.denominator)
            for row, values in enumerate(self.inverse)
        ]
        self.costs[leaving] = cost
        self.denominator = rate
        return True


def _eliminate(values: list[int], gone: list[int], factor: int, rate: int, denominator: int) -> list[int]:
    if factor == 0:
        return values if rate == denominator else [rate * value // denominator for value in values]
    return [(rate * value - factor * other) // denominator for value, other in zip(values, gone, strict=True)]


def _dot(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(map(mul, one, other))


def _knapsack(sizes: Sequence[int], weights: Sequence[int]) -> tuple[list[int], list[int]]:
    """Most weight by free cells, and how many of each size make the most of a whole device. Sizes ascend and may be used again; one that
    weighs no more than a smaller one adds nothing."""
    best = [0] * (CELLS + 1)
    choice = [-1] * (CELLS + 1)
    most = 0
    for at, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        if weight > most:
            most = weight
            for cells in range(size, CELLS + 1):
                with_it = best[cells - size] + weight
                if with_it > best[cells]:
                    best[cells] = with_it
                    choice[cells] = at
    for cells in range(1, CELLS + 1):
        if best[cells] <= best[cells - 1]:
            best[cells], choice[cells] = best[cells - 1], -1
    return best, _unpack(sizes, choice)


def _unpack(sizes: Sequence[int], choice: Sequence[int]) -> list[int]:
    pattern = [0] * len(sizes)
    cells = CELLS
    while cells > 0:
        if choice[cells] < 0:
            cells -= 1
        else:
            pattern[choice[cells]] += 1
            cells -= sizes[choice[cells]]
    return pattern
