"""What free capacity is worth under what is asked: the tables behind the preset `price` (`_core/price.pxi` says how they are used).

Counts what is asked, placed or not; in thousandths of a device, per kind:

- v(r), what r free thousandths of one device are worth: the most that sizes which fit in there together weigh, by the duals of
  `patterns` (Gilmore and Gomory 1961), rounded. A rest that nothing asked for fits in is worth nothing; a device that is begun loses BEGUN.
- The premium of a model, 0..1: the demand that names models, scaled to the size of the cluster and spread over the models that it
  accepts, over the model's capacity. Its devices are worth premium / 2 more for tasks that could go elsewhere.
- What CPU and memory go with a device: the sums that tasks which ask for the kind ask for. Where CPU is short, devices strand.

It is a bid-price policy (Talluri and van Ryzin, An Analysis of Bid-Price Controls for Network Revenue Management, Management Science 44,
1998): place where the opportunity cost of what is taken is least. Found and tuned on the traces of Weng et al. (USENIX ATC 2023).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from hetsched._core import Core
from hetsched.policy.patterns import CELLS, duals, worth

FIRST_ASKED = 50
"""Device tasks after which capacity is priced first; then after twice as many, and so on."""

BEGUN = 60
"""Thousandths that a device is worth less than its parts once it is not whole: what is begun is filled before another is begun. The duals
do not know this, for they fill everything in the end. Where tasks leave again (30,000 arrivals at 110 % load, those that do not fit lost)
it gives 90.6 instead of 90.1 % of the GPUs, and 0.05 points more where nothing leaves; 200 gives 90.7 and costs 0.2 there."""

RATE_ONE = 1 << 20
"""Rates are fixed-point."""

MOST_RATE = 1 << 30

Ask = tuple[int, int, int, int, int]
Demand = Sequence[tuple[int, int, int, tuple[Ask, ...]]]
Supply = dict[tuple[int, int], int]


class Prices(msgspec.Struct, frozen=True):
    """Of one kind. `values`: worth by free thousandths, 0..1000; `premiums`: model → thousandths; rates: thousandths of a device that go with
    a millicore and with a MiB, times RATE_ONE."""

    values: tuple[int, ...]
    premiums: dict[int, int]
    cpu_rate: int
    memory_rate: int


class Known(msgspec.Struct, frozen=True):
    """Prices by kind, and how many more device tasks are to be asked before they are computed anew."""

    prices: dict[int, Prices]
    left: int


class Pricer:
    """Keeps a core's prices up to date; `turn` is cheap while nothing is due."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._due = FIRST_ASKED
        self._prices: dict[int, Prices] = {}

    def turn(self) -> bool:
        """Price anew if so many tasks came that it is due; whether it was. Called before a decision."""
        asked = self._core.asked
        if asked < self._due:
            return False
        while self._due <= asked:
            self._due *= 2
        self._prices.update(price(self._core.demand(), self._core.supply()))
        self._tell()
        return True

    def _tell(self) -> None:
        for kind, prices in self._prices.items():
            self._core.set_prices(kind, prices.values, prices.premiums, prices.cpu_rate, prices.memory_rate)

    def known(self) -> Known:
        """What a copy of the core has to be told to decide alike."""
        return Known(dict(self._prices), self._due - self._core.asked)

    def adopt(self, known: Known) -> None:
        """Go on from another's prices; `asked` of a loaded core starts lower, so what counts is how many are left until the next time."""
        self._prices, self._due = dict(known.prices), self._core.asked + known.left
        self._tell()


def price(demand: Demand, supply: Supply) -> dict[int, Prices]:
    """`demand`: (times asked, cpu_milli, memory_bytes, asks (kind, whole, parts, part_milli, mask of models or 0)); `supply`: milli of
    devices by (kind, model). Returns prices of every kind that is asked for."""
    kinds = sorted({ask[0] for row in demand for ask in row[3]})
    return {kind: _price_kind(kind, demand, supply) for kind in kinds}


def _price_kind(kind: int, demand: Demand, supply: Supply) -> Prices:
    sizes: dict[int, int] = defaultdict(int)
    named: dict[int, int] = defaultdict(int)
    device_milli = cpu_milli = memory_mib = 0
    for count, cpu, memory, asks in demand:
        for _, whole, parts, part_milli, models in (ask for ask in asks if ask[0] == kind):
            sizes[CELLS] += count * whole
            sizes[cells_of(part_milli)] += count * parts
            milli = count * (whole * 1000 + parts * part_milli)
            device_milli += milli
            named[models] += milli
            cpu_milli += count * cpu
            memory_mib += count * (memory >> 20)
    return Prices(
        values=_values(sizes),
        premiums=_premiums(named, {model: milli for (of, model), milli in supply.items() if of == kind}),
        cpu_rate=_rate(device_milli, cpu_milli),
        memory_rate=_rate(device_milli, memory_mib),
    )


def cells_of(milli: int) -> int:
    """Cells that a part needs, rounded up."""
    return -(-milli * CELLS // 1000)


def _values(sizes: dict[int, int]) -> tuple[int, ...]:
    weights, denominator = duals({size: count for size, count in sizes.items() if size > 0})
    by_cells = [min(1000, (2000 * weight + denominator) // (2 * denominator)) for weight in worth(weights)]
    begun = [value * (1000 - BEGUN) // 1000 for value in by_cells]
    return (*(begun[milli * CELLS // 1000] for milli in range(1000)), by_cells[CELLS])


def _premiums(named: dict[int, int], capacity: dict[int, int]) -> dict[int, int]:
    asked, there = sum(named.values()), sum(capacity.values())
    premiums: dict[int, int] = {}
    for model in sorted(model for model in capacity if model >= 0):
        share, of = 0, 1  # a sum of fractions with different denominators, kept exact
        for models, milli in sorted(named.items()):
            if models >> model & 1:
                accepted = sum(milli for other, milli in capacity.items() if other >= 0 and models >> other & 1)
                share, of = share * asked * accepted + milli * there * of, of * asked * accepted
        premiums[model] = min(1000, 1000 * share // of)
    return premiums


def _rate(device_milli: int, amount: int) -> int:
    return min(MOST_RATE, device_milli * RATE_ONE // amount) if amount > 0 else MOST_RATE
