"""What free capacity is worth under what is asked: the tables behind the preset `price` (`_core/price.pxi` says how they are used).

Counts what is asked, placed or not; in thousandths of a device, per kind:

- v(r), what r free thousandths of one device are worth: the most that sizes which fit in there together weigh, by the duals of
  `patterns` (Gilmore and Gomory 1961), rounded. A rest that nothing asked for fits in is worth nothing; a device that is begun loses BEGUN.
- The premium of a model, 0..1: the demand that names models, scaled to the size of the cluster and spread over the models that it
  accepts, over the model's capacity. Its devices are worth premium / 2 more for tasks that could go elsewhere.
- What CPU and memory go with a device: the sums that tasks which ask for the kind ask for. Where CPU is short, devices strand.

Duals are for what fills up in the end. Where tasks leave again (`Season`) two things count besides:

- Whole devices that stand together: what is free on a node loses APART x the share of what is asked that asks for more whole devices
  than are wholly free there, and a little (MAY_COME) in case that comes which never did. Else the first that goes from an empty node costs
  nothing, and tasks for all of it find none.
- Where tasks wait, how many devices a node has: what is free there is worth more by APART x the share of what is asked that asks for several
  whole devices, but for no more than the node has. Else small tasks fill up wide nodes that are begun while narrow ones stand empty, and
  who waits for a whole node waits for the last of them.
- Where nobody waits, what the next arrival can use: v(r) loses LOOSE x r x the share of what is asked that does not fit in there (the
  fragment of Weng et al. for one device). Where tasks wait, one of them fits, so the duals stay.

*Why* (2026-11-30): of the Philly trace's jobs 40,000 to 51,999 at 110 % load, replayed on a cluster like openb's, small jobs held 27 GPUs of
wide nodes while 60 of narrow ones were idle and jobs for four or eight waited. With `wide` 91.6 instead of 89.6 % of the bound are used there,
and the p99 of jobs for eight is 45.6 instead of 54.9 h; two other windows stay as they are. Where what does not fit is lost (openb at 110 %) it
cost 0.1 points of the GPUs in use as long as it counted where nobody waits, too.

It is a bid-price policy (Talluri and van Ryzin, An Analysis of Bid-Price Controls for Network Revenue Management, Management Science 44,
1998): place where the opportunity cost of what is taken is least. Found and tuned on the traces of Weng et al. (USENIX ATC 2023).
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

from hetsched._core import PLACED, QUEUED, RUNNING, Core
from hetsched.policy.patterns import CELLS, duals, worth

FIRST_ASKED = 50
"""Device tasks after which what is asked is known well enough; then priced anew after twice as many, and so on. Before, it is priced whenever a
quarter more were asked for: a guess of what goes with a device that is wrong strews the first tasks over the cluster."""

EARLY = 4
"""A quarter. After each of the first fifty, as it once was, fills made clusters of 80 nodes no better (97.69 ± 0.05 %, by a quarter 97.67,
by a half 97.68; 200 seeds), makes tasks wait no less where they leave (22.2 and 22.0 s, 100 seeds on 60), and was a third of what deciding
cost on openb."""

MOST_WHOLE = 64
"""Devices of a node that are told apart."""

MAY_COME = tuple(200 * (MOST_WHOLE - whole) // MOST_WHOLE for whole in range(MOST_WHOLE + 1))
"""What `apart` is before FIRST_ASKED, and is more where tasks leave: nobody knows whether whole nodes will be asked for that never were yet, so
nodes with few wholly free devices go first. On clusters of 80 made nodes that fill up it costs 0.03 points (400 seeds), ten times as much
0.2; where tasks leave nothing (openb: 0.00 ± 0.01 points, six seeds)."""

BEGUN = 60
"""Thousandths that a device is worth less than its parts once it is not whole: what is begun is filled before another is begun. The duals
do not know this, for they fill everything in the end. Where tasks leave again (30,000 arrivals at 110 % load, those that do not fit lost)
it gives 90.6 instead of 90.1 % of the GPUs, and 0.05 points more where nothing leaves; 200 gives 90.7 and costs 0.2 there."""

COLD = (*(milli * 4 // 5 for milli in range(1000)), 1000)
"""v(r) before FIRST_ASKED: a part is worth its size, and a device that is begun a fifth less, so that a part goes where one has room; BEGUN is
too little for that, for what a few tasks tell of the cores that go with a device strews them over unlike nodes. The duals of a few tasks
take these for all that will ever come: of a half and three tenths the second would begin a device of its own, to keep the rest of the first for
another half, and who asks for all others finds one too few."""

APART = 2
LOOSE = 1
"""Chosen on the openb trace with its own durations, cut at a day, at 85, 95 and 110 % load, seeds 101 to 108. Where nobody waits and what
does not fit is lost, it gives without both 93.0 % of the GPUs at 95 % load and 96.3 at 110 (fgd 92.7 and 96.5, best-fit 93.1 and 94.9),
with both 94.2 and 96.8: APART keeps nodes for tasks of 8 devices, LOOSE leaves fewer rests. With LOOSE where many wait, waits grow by 2 %,
so there the duals stay. Where nothing leaves the two cost 0.1 to 0.4 points. APART counts devices asked for, not tasks: on the Philly trace
one job in forty asks for eight, and they are 0.7 of the work; counted by tasks their waits at 110 % load were longer (docs/quality.md)."""

LEAVING = 8
"""Tasks leave, once an eighth of what was asked for has given back what it held."""

BACKLOG = 32
"""Many wait: more than one for so many that run."""

LOOK_EVERY = 500
"""Device tasks after which it is looked at again whether tasks leave and wait."""

_CELL_OF = [milli * CELLS // 1000 for milli in range(1000)]
"""The cells of a device that so many thousandths fill."""

RATE_ONE = 1 << 20
"""Rates are fixed-point."""

MOST_RATE = 1 << 30

Ask = tuple[int, int, int, int, int]
Demand = Sequence[tuple[int, int, int, tuple[Ask, ...]]]
Supply = dict[tuple[int, int], int]


class Season(enum.IntEnum):
    """What becomes of free capacity: it fills up and stays so; it is filled by who waits; by who comes next."""

    FILLING = 0
    WAITING = 1
    LOOSE = 2


class Prices(msgspec.Struct, frozen=True):
    """Of one kind. `values`: worth by free thousandths, 0..1000; `parts`: how often is asked, by the thousandths that one device must have free
    for it; `apart`: thousandths that what is free on a node loses, by its wholly free devices; `premiums`: model → thousandths; rates:
    thousandths of a device that go with a millicore and with a MiB, times RATE_ONE."""

    values: tuple[int, ...]
    parts: dict[int, int]
    apart: tuple[int, ...]
    premiums: dict[int, int]
    cpu_rate: int
    memory_rate: int

    @property
    def wide(self) -> tuple[int, ...]:
        """Thousandths that what is free on a node is worth more where tasks wait, by its devices, free or not; beyond the end as at the end."""
        if len(self.apart) < 2:
            return ()
        return tuple(self.apart[1] - min(self.apart[1], apart) for apart in (*self.apart, 0))

    @property
    def loose(self) -> tuple[int, ...]:
        """`values` where the next arrival counts."""
        return _loose(self.values, self.parts)


class Known(msgspec.Struct, frozen=True):
    """Prices by kind, for which season they were told, whether before FIRST_ASKED, and how many more device tasks are to be asked before they
    are computed anew and before it is looked at the season again."""

    prices: dict[int, Prices]
    season: Season
    is_cold: bool
    left: int
    look: int


class Pricer:
    """Keeps a core's prices up to date; `turn` is cheap while nothing is due."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._due = self._look = 1
        self._asked = core.asked
        self._season, self._is_cold = Season.FILLING, True
        self._prices: dict[int, Prices] = {}

    def turn(self) -> bool:
        """Price anew if so many tasks came that it is due; whether it was. Called before a decision."""
        asked = self._core.asked
        came, self._asked = asked - self._asked, asked
        if asked < self._look and not self._has_begun_to_leave():
            return False
        season, is_due = self._season_now(came), asked >= self._due
        while self._due <= asked:
            self._due = _next_due(self._due)
        self._look = min(self._due, asked + LOOK_EVERY)
        if is_due:
            self._prices.update(price(self._core.demand(), self._core.supply()))
        if is_due or season is not self._season:
            self._season, self._is_cold = season, asked < FIRST_ASKED
            self._tell()
        return is_due

    def _has_begun_to_leave(self) -> bool:
        """Since it was last looked at."""
        core = self._core
        return self._season is Season.FILLING and core.asked >= FIRST_ASKED and core.left * LEAVING >= core.asked

    def _season_now(self, came: int) -> Season:
        """`came`: device tasks since the last turn; these wait for nobody yet."""
        core = self._core
        if core.asked < FIRST_ASKED or core.left * LEAVING < core.asked:
            return Season.FILLING
        counts = core.counts()
        waiting, there = counts[QUEUED] - came, counts[PLACED] + counts[RUNNING]
        return Season.WAITING if waiting * BACKLOG > there else Season.LOOSE

    def _tell(self) -> None:
        for kind, prices in self._prices.items():
            values = COLD if self._is_cold else prices.loose if self._season is Season.LOOSE else prices.values
            apart = self._apart_now(prices.apart)
            wide = prices.wide if self._season is Season.WAITING else ()
            self._core.set_prices(kind, values, prices.premiums, prices.cpu_rate, prices.memory_rate, apart, wide)

    def _apart_now(self, known: tuple[int, ...]) -> tuple[int, ...]:
        if self._season is Season.FILLING:
            return MAY_COME if self._is_cold else ()
        return tuple(map(sum, zip_longest(known, MAY_COME, fillvalue=0)))

    def known(self) -> Known:
        """What a copy of the core has to be told to decide alike."""
        asked = self._core.asked
        return Known(dict(self._prices), self._season, self._is_cold, self._due - asked, self._look - asked)

    def adopt(self, known: Known) -> None:
        """Go on from another's prices; `asked` of a loaded core starts lower, so what counts is how many are left until the next time."""
        asked = self._core.asked
        self._prices, self._season, self._is_cold = dict(known.prices), known.season, known.is_cold
        self._due, self._look, self._asked = asked + known.left, asked + known.look, asked
        self._tell()


def _next_due(due: int) -> int:
    """Device tasks after which to price again, once that was due after so many."""
    return 2 * due if due >= FIRST_ASKED else min(FIRST_ASKED, due + max(1, due // EARLY))


def wanted_together(apart: Sequence[int], whole: int) -> float:
    """What part of what is asked for is asked for by tasks that want more whole devices together than these, as the core was told."""
    told = apart[min(whole, len(apart) - 1)] - MAY_COME[min(whole, MOST_WHOLE)]
    return max(0, told) / (1000 * APART)


def price(demand: Demand, supply: Supply) -> dict[int, Prices]:
    """`demand`: (times asked, cpu_milli, memory_bytes, asks (kind, whole, parts, part_milli, mask of models or 0)); `supply`: milli of
    devices by (kind, model). Returns prices of every kind that is asked for."""
    kinds = sorted({ask[0] for row in demand for ask in row[3]})
    return {kind: _price_kind(kind, demand, supply) for kind in kinds}


def _price_kind(kind: int, demand: Demand, supply: Supply) -> Prices:
    sizes: dict[int, int] = defaultdict(int)
    parts_asked: dict[int, int] = defaultdict(int)
    wholes_asked: dict[int, int] = defaultdict(int)
    named: dict[int, int] = defaultdict(int)
    device_milli = cpu_milli = memory_mib = 0
    for count, cpu, memory, asks in demand:
        for _, whole, parts, part_milli, models in (ask for ask in asks if ask[0] == kind):
            sizes[CELLS] += count * whole
            sizes[cells_of(part_milli)] += count * parts
            parts_asked[1000 if whole else part_milli] += count
            wholes_asked[min(whole, MOST_WHOLE)] += count
            milli = count * (whole * 1000 + parts * part_milli)
            device_milli += milli
            named[models] += milli
            cpu_milli += count * cpu
            memory_mib += count * (memory >> 20)
    values = _values(sizes)
    return Prices(
        values=values,
        parts=dict(parts_asked),
        apart=_apart(wholes_asked),
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
    return (*(begun[cells] for cells in _CELL_OF), by_cells[CELLS])


def _loose(values: Sequence[int], asked: Mapping[int, int]) -> tuple[int, ...]:
    """`asked`: how often by the thousandths that one device must have free for it. Never falls, for more that is free is not worth less."""
    total, fitting, worth_so_far = sum(asked.values()), 0, 0
    loose = []
    for milli, value in enumerate(values):
        fitting += asked.get(milli, 0)
        worth_so_far = max(worth_so_far, value - LOOSE * milli * (total - fitting) // total)
        loose.append(worth_so_far)
    return tuple(loose)


def _apart(asked: Mapping[int, int]) -> tuple[int, ...]:
    """`asked`: how often by whole devices, 0 among them; who asks for more counts for more. One by itself never stands apart."""
    weights = {whole: times * max(whole, 1) for whole, times in asked.items()}
    total, most = sum(weights.values()), max(asked)
    return tuple(
        APART * 1000 * sum(weight for whole, weight in weights.items() if whole > max(have, 1)) // total
        for have in range(most)
    )


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
