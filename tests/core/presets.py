"""The presets' formulas, written down a second time: slow, in plain Python, from the papers and CONTRACT's words and not from the core.

A node is what a placement policy of the literature knows: CPU, memory, the free thousandths of its GPUs, their model, and how many
devices the tasks on it have. Every `choose_*` returns (node, devices) or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

MOST_CPU, MOST_MILLI = 128_000, 8_000  # of the largest node of the worlds below


class Ask(NamedTuple):
    cpu: int  # millicores
    memory: int  # MiB
    count: int
    milli: int  # of each device, 1000 = whole


@dataclass
class Place:
    cpu: int
    memory: int
    shares: list[int]
    model: int
    sizes: list[int] = field(default_factory=list)  # devices of every task here that has any; 0: a part of one

    def fits(self, ask: Ask) -> bool:
        enough = sum(share >= ask.milli for share in self.shares) >= ask.count
        return self.cpu >= ask.cpu and self.memory >= ask.memory and enough

    def after(self, ask: Ask, devices: Sequence[int]) -> Place:
        shares = [share - ask.milli * (at in devices) for at, share in enumerate(self.shares)]
        sizes = [*self.sizes, size_of(ask)] if ask.count else self.sizes
        return replace(self, cpu=self.cpu - ask.cpu, memory=self.memory - ask.memory, shares=shares, sizes=sizes)


Choice = tuple[int, tuple[int, ...]] | None
Score = Callable[[Place, Ask], float]


def size_of(ask: Ask) -> int:
    return 0 if ask.count == 1 and ask.milli < 1000 else ask.count


def roomy(place: Place, ask: Ask) -> list[int]:
    return [at for at, share in enumerate(place.shares) if share >= ask.milli]


def tightest(place: Place, ask: Ask) -> tuple[int, ...]:
    by_room = sorted(roomy(place, ask), key=lambda at: place.shares[at])
    return tuple(by_room[: ask.count])


def best(
    places: list[Place], ask: Ask, score: Score, devices: Callable[[Place, Ask], tuple[int, ...]] = tightest
) -> Choice:
    """Highest score, lowest node."""
    fitting = [at for at, place in enumerate(places) if place.fits(ask)]
    if not fitting:
        return None
    node = max(fitting, key=lambda at: (score(places[at], ask), -at))
    return node, devices(places[node], ask)


# ---------------------------------------------------------------- as published (artifact of Weng et al., USENIX ATC 2023)


def best_fit(place: Place, ask: Ask) -> float:
    left = (place.cpu - ask.cpu) / MOST_CPU * 0.5 + (sum(place.shares) - ask.count * ask.milli) / MOST_MILLI * 0.5
    return math.floor((1 - left) * 100)


def dot_product(place: Place, ask: Ask) -> float:
    cpu = place.cpu / MOST_CPU * (ask.cpu / MOST_CPU)
    devices = sum(place.shares) / MOST_MILLI * (ask.count * ask.milli / MOST_MILLI)
    return math.floor(100 * (1 - (cpu + devices) / 2))


def packing(place: Place, ask: Ask) -> float:
    if not ask.count:
        return 0
    free = place.shares.count(1000)
    if free == len(place.shares):
        return max(100 // 3 - free, free)
    used = [share for share in sorted(place.shares) if share >= ask.milli][: ask.count]
    opened = used.count(1000)
    if opened:
        return max(100 // 2 - opened, 100 // 3)
    return max(100 - sum(share * 100 // 1000 for share in used) // 10, 50)


def clustering(place: Place, ask: Ask) -> float:
    if not ask.count:
        return 0
    fuller = 25 * (MOST_MILLI - sum(place.shares)) // MOST_MILLI
    kinds = set(place.sizes)
    if size_of(ask) in kinds:
        return fuller + (75 if len(kinds) == 1 else 50)
    return fuller + (0 if kinds else 25)


class Fgd:
    """Least growth of the fragment. `typical`: (cpu, count, milli) → times asked, those that make up 95 %."""

    def __init__(self, asked: dict[Ask, int]) -> None:
        counts: dict[tuple[int, int, int], int] = {}
        for ask, times in asked.items():
            key = (ask.cpu, ask.count, ask.milli)
            counts[key] = counts.get(key, 0) + times
        self.typical: list[tuple[tuple[int, int, int], int]] = []
        covered, total = 0, sum(counts.values())
        for key, times in sorted(counts.items(), key=lambda one: -one[1]):
            if covered * 20 >= total * 19:
                break
            self.typical.append((key, times))
            covered += times
        self.total = covered

    def fragment(self, place: Place) -> int:
        lost = 0
        for (cpu, count, milli), times in self.typical:
            usable = [share for share in place.shares if share >= milli] if count else []
            fits = count and place.cpu >= cpu and len(usable) >= count
            lost += times * (sum(place.shares) - (sum(usable) if fits else 0))
        return lost

    def rate(self, place: Place, ask: Ask, devices: tuple[int, ...]) -> int:
        gained = (self.fragment(place) - self.fragment(place.after(ask, devices))) / self.total
        return math.floor(100 / (1 + math.exp(-gained / 1000)))

    def devices(self, place: Place, ask: Ask) -> tuple[int, ...]:
        if size_of(ask) != 0 or not ask.count:
            return tightest(place, ask)
        return max(((at,) for at in roomy(place, ask)), key=lambda one: (self.rate(place, ask, one), -one[0]))

    def choose(self, places: list[Place], ask: Ask) -> Choice:
        return best(places, ask, lambda place, ask: self.rate(place, ask, self.devices(place, ask)), self.devices)


# ---------------------------------------------------------------- price


@dataclass
class Priced:
    """Potential of a node as `_core/price.pxi` has it, in exact fractions."""

    values: list[int]
    premiums: dict[int, int]
    cpu_rate: int
    memory_rate: int
    apart: tuple[int, ...] = ()
    wide: tuple[int, ...] = ()

    def worth(self, place: Place) -> Fraction:
        premium = Fraction(self.premiums.get(place.model, 0), 1000)
        devices = sum(self.values[share] + share * premium / 2 for share in place.shares)
        free = sum(place.shares)
        stranded_cpu = max(0, free - (place.cpu * self.cpu_rate >> 20))
        stranded_memory = max(0, free - (place.memory * self.memory_rate >> 20))
        return devices - Fraction(stranded_cpu, 2) - Fraction(stranded_memory, 5)

    def gained(self, place: Place, ask: Ask, devices: tuple[int, ...]) -> Fraction:
        after = place.after(ask, devices)
        apart_tenths = (self.apart_of(after) - self.apart_of(place)) // 100
        taken = sum(place.shares) - sum(after.shares)
        wide_tenths = taken * self.wide[min(len(place.shares), len(self.wide) - 1)] // 100 if self.wide else 0
        return self.worth(after) - self.worth(place) - Fraction(apart_tenths + wide_tenths, 10)

    def apart_of(self, place: Place) -> int:
        """What its free capacity is worth less for want of whole devices beside it, thousandths of a milli."""
        whole = place.shares.count(1000)
        return sum(place.shares) * self.apart[whole] if whole < len(self.apart) else 0

    def devices(self, place: Place, ask: Ask) -> tuple[int, ...]:
        """The exact loss decides, then the tighter device, then the lower one."""

        def loss(at: int) -> int:
            return self.values[place.shares[at]] - self.values[place.shares[at] - ask.milli]

        by_loss = sorted(roomy(place, ask), key=lambda at: (loss(at), place.shares[at], at))
        return tuple(by_loss[: ask.count])

    def choose(self, places: list[Place], ask: Ask) -> Choice:
        return best(places, ask, lambda place, ask: self.step(place, ask), self.devices)

    def step(self, place: Place, ask: Ask) -> int:
        return math.floor(self.gained(place, ask, self.devices(place, ask)) / 20)
