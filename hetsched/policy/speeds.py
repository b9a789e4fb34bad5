"""How fast each device model is for a type of task: what was learned, and the cost model where little was learned yet.

Run times are known of some models only, and of those by a few runs at first. So a model's time is a weighted mean (of logarithms, for
speeds are ratios) of the median it has shown, weighing its runs, and of what the cost model expects, weighing `PRIOR_RUNS`: the time of
the known models, scaled by figures of the catalogue. The first runs go where the figures are best, every run corrects them, and after a
handful the figures say little. What ran little is taken for faster than it looks, or it would never be tried; what is being tried now
counts nearly as known, or many would try at once what turns out slow only when the first of them ends. A model without figures counts as
0.8 of the fastest, the sources' default for unknown history. Where figures are off for most types (`misjudged`), they are corrected for all,
those that have not run there yet, too.

*Why* (2026-11-29): with flat 0.8 for all unknown models and Gavel's measured throughputs as truth, a type that had only run on the first
device that was free stayed there: 22 % of an oracle's throughput on a cluster with idle devices. With the cost model and no curiosity it
was 81 % there for ever, for what a V100 is bad at was never tried elsewhere; with both 97 to 99 % after 400 runs
(loadtest/bench_heterogeneity.py). (2026-11-30): blind to what was being tried, it reached 77 % instead of 92 % where models are scarce.
Curious up to four times, every type tried the slow models that it was bad at, which then were taken by them for long: with more work than
devices single seeds stayed at 0.86 of the optimum. Curious up to twice, and no more, 0.95 where devices are idle, for Gavel's P100 is
better than its figures for nearly all types; and 0.81 where the fast devices alone would do, for nothing else was ever tried. So curious where
that takes from nobody, figures corrected by what most types have shown, and worth a run, not half of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from hetsched.model import DeviceSpec
from hetsched.policy import catalogue

NO_FACTORS: Mapping[str, float] = MappingProxyType({})
"""1 for every model."""

UNKNOWN_SPEED = 0.8
"""Scheduling document, calculate_priority: historical_performance.get(task.type, 0.8)."""

PRIOR_RUNS = 1.0
"""Runs that the cost model's opinion is worth."""

CURIOSITY = math.log(4)
"""How much faster (as a logarithm) than expected a model may be that never ran the type; halved by its first run, a ninth after eight. So much
where no model is scarce, and trying one takes nothing from anybody; and of models that nobody knows figures of."""

CURIOSITY_WHERE_SCARCE = math.log(1.5)
"""From a scarcity of 2 on, in between in proportion: who tries a device there keeps somebody from it who would gain."""

SCEPTICAL_TYPES = 2
"""As if so many types had run as fast as the figures say: before it is believed that these are off."""

TRYING_RUNS = 8
"""Runs that an attempt which is alive counts for in this, until it is over: one at a time satisfies it."""


class Shown(msgspec.Struct, frozen=True):
    """What a model has shown for a type and size: how many runs are kept, and their median. `trying`: attempts that are alive there."""

    runs: int
    median_ms: int
    trying: int = 0


NOTHING = Shown(0, 0)


def speeds(
    shown: Mapping[str, Shown],
    devices: Iterable[DeviceSpec],
    *,
    is_tensor: bool = False,
    scarce: Mapping[str, float] = NO_FACTORS,
    off: Mapping[str, float] = NO_FACTORS,
) -> dict[str, float]:
    """Relative speed by model of the devices, each over how scarce the model is (1 where it is not said; see `scarcity`); 1 = the best.
    "" for devices that name none. `off`: see `misjudged`."""
    ease = max(0.0, 2 - max(scarce.values(), default=1.0))
    curiosity = CURIOSITY_WHERE_SCARCE + ease * (CURIOSITY - CURIOSITY_WHERE_SCARCE)
    times = run_times(shown, devices, is_tensor=is_tensor, off=off, curiosity=curiosity)
    costs = {model: time * scarce.get(model, 1.0) for model, time in times.items()}
    least = min(costs.values(), default=1.0)
    return {model: least / cost for model, cost in costs.items()}


def run_times(
    shown: Mapping[str, Shown],
    devices: Iterable[DeviceSpec],
    *,
    is_tensor: bool = False,
    off: Mapping[str, float] = NO_FACTORS,
    curiosity: float = CURIOSITY,
) -> dict[str, float]:
    """Milliseconds by model, if any of them has shown some; else relative ones, 1 = of the fastest by its figures."""
    devices = list(devices)
    prior = {model: speed * off.get(model, 1.0) for model, speed in expected(devices, is_tensor=is_tensor).items()}
    blind = max(curiosity, CURIOSITY) if curiosity else 0.0
    doubts = {one.model or "": curiosity if _figures(one, is_tensor) else blind for one in devices}
    known = {model: one for model, one in shown.items() if model in prior and one.runs}
    if not known:
        return {model: 1 / speed for model, speed in prior.items()}
    runs = sum(one.runs for one in known.values())
    unit = sum(one.runs * math.log(one.median_ms * prior[model]) for model, one in known.items()) / runs
    return {
        model: math.exp(_log_time(shown.get(model, NOTHING), unit - math.log(prior[model]), doubts[model]))
        for model in prior
    }


def _log_time(shown: Shown, expected_log: float, curiosity: float) -> float:
    seen_log = shown.runs * math.log(max(1, shown.median_ms))
    known_log = (seen_log + PRIOR_RUNS * expected_log) / (shown.runs + PRIOR_RUNS)
    return known_log - curiosity / (1 + shown.runs + TRYING_RUNS * shown.trying)


def misjudged(
    types: Iterable[Mapping[str, Shown]], devices: Iterable[DeviceSpec], *, is_tensor: bool = False
) -> dict[str, float]:
    """How many times as fast as its figures say each model is, beside the others: the mean (of logarithms) over the types that ran on two
    or more, first runs counting half."""
    prior = expected(devices, is_tensor=is_tensor)
    sums, counted = dict.fromkeys(prior, 0.0), dict.fromkeys(prior, float(SCEPTICAL_TYPES))
    for shown in types:
        known = {model: one for model, one in shown.items() if model in prior and one.runs}
        if len(known) < 2:
            continue
        weights = {model: one.runs / (one.runs + 1) for model, one in known.items()}
        slower = {model: math.log(one.median_ms * prior[model]) for model, one in known.items()}
        usual = sum(weights[model] * slower[model] for model in known) / sum(weights.values())
        for model in known:
            sums[model] += weights[model] * (usual - slower[model])
            counted[model] += weights[model]
    return {model: math.exp(sums[model] / counted[model]) for model in prior}


def expected(devices: Iterable[DeviceSpec], *, is_tensor: bool = False) -> dict[str, float]:
    """Relative speed by model as the cost model has it: TOPS for tensor work, else two parts TFLOPS and one part memory bandwidth (0.6 to
    0.3), each over the largest; UNKNOWN_SPEED where a figure is missing."""
    figures = {device.model or "": _figures(device, is_tensor) for device in devices}
    known = [pair for pair in figures.values() if pair is not None]
    first, second = max((pair[0] for pair in known), default=0.0), max((pair[1] for pair in known), default=0.0)
    return {
        model: UNKNOWN_SPEED if pair is None else (0.6 * pair[0] / first + 0.3 * pair[1] / second) / (0.6 + 0.3)
        for model, pair in figures.items()
    }


def _figures(device: DeviceSpec, is_tensor: bool) -> tuple[float, float] | None:
    """Two positive figures, or None."""
    if is_tensor:
        pair = catalogue.tops(device), catalogue.tops(device)
    else:
        pair = catalogue.tflops(device), catalogue.bandwidth_gbs(device)
    return (pair[0], pair[1]) if pair[0] and pair[1] else None
