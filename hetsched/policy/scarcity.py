"""How scarce each device model is: 1 = there is enough of it; at 2 a task should go elsewhere unless it runs more than twice as fast there.

Two types of task want the same few fast devices, but one gains fourfold there and the other a tenth: the fast ones belong to the first, and
the second loses little. So what ranks a model is not how fast the type runs there but what that costs: run time times scarcity
(comparative advantage). Scarcities are the prices of this linear program, whose optimum no scheduler can pass:

    most T, so that   sum_j y_ij = T f_i          f_i: runs of class i in the mix, y_ij of them a second on model j
                      sum_i y_ij t_ij <= c_j      t_ij: device-seconds of such a run, c_j: devices
                      sum_ij y_ij t_ij <= busy    devices that there is work for

found by letting prices grope (Walras' tatonnement): every class spreads over the models that are cheapest for it, a model that is asked for
more than there is of it gets dearer, the cheapest one costs 1. By weak duality any scarcities at all prove a bound on T: `bound`.

*Why* (2026-11-30): ranked by speed alone, Gavel's 26 jobs on 36 K80, P100 and V100 each reached 97, 91 and 84 % of that optimum with half,
three quarters and all but 8 of the devices busy, even with the true speeds known; with true scarcities 98, 96 and 93 %, and with learned
ones 98, 94 and 91 %. In the order `weighted`, where what suits a freed device best goes first, 97 instead of 85 % with more work than devices
(loadtest/bench_heterogeneity.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

ROUNDS = 120
WARMEST, COLDEST = 0.3, 0.01
"""How far classes spread over models that are not the cheapest, as a logarithm of cost, at first and in the end."""

FIRST_STEP, LAST_STEP = 0.5, 0.02
"""How far a price moves where twice as much is asked as there is, as logarithms."""

MOST_CLASSES = 64
"""Classes counted with, the most frequent ones: 64 on 8 models take 9 ms."""

Floats = NDArray[np.float64]


class Class(msgspec.Struct, frozen=True):
    """Tasks of one type and size: `runs` in the mix, and `device_s` of one by model: its run time times the devices that it holds."""

    runs: float
    device_s: Mapping[str, float]


def scarcities(classes: Sequence[Class], capacity: Mapping[str, int], busy: float) -> dict[str, float]:
    """By model. `capacity`: devices by model; `busy`: how many are in use or waited for."""
    models = [model for model, count in sorted(capacity.items()) if count > 0]
    asking = [one for one in classes if one.runs > 0 and any(model in one.device_s for model in models)]
    if len(models) < 2 or not asking or busy <= 0:
        return dict.fromkeys(models, 1.0)
    asking = sorted(asking, key=lambda one: -one.runs)[:MOST_CLASSES]
    runs = np.array([one.runs for one in asking])
    times = np.array([[one.device_s.get(model, np.inf) for model in models] for one in asking])
    have = np.array([float(capacity[model]) for model in models])
    found = _grope(runs, times, have, min(busy, float(have.sum())))
    return {model: float(price) for model, price in zip(models, found, strict=True)}


def _grope(runs: Floats, times: Floats, have: Floats, busy: float) -> Floats:
    """The prices, the least of them 1: of all that were tried those that prove the lowest bound."""
    prices = np.ones(have.size)
    best, lowest = prices, _bound(prices, runs, times, have, busy)
    for warmth, step in zip(
        np.geomspace(WARMEST, COLDEST, ROUNDS), np.geomspace(FIRST_STEP, LAST_STEP, ROUNDS), strict=True
    ):
        cost = np.log(times) + np.log(prices)
        spread = np.exp((cost.min(axis=1, keepdims=True) - cost) / warmth)
        spread /= spread.sum(axis=1, keepdims=True)
        asked = (runs[:, None] * spread * np.where(spread > 0, times, 0.0)).sum(axis=0)
        asked *= busy / asked.sum()
        prices = prices * np.exp(step * np.clip(np.log(np.maximum(asked, 1e-9) / have), -1, 1))
        prices = np.maximum(prices / prices.min(), 1.0) if busy >= have.sum() else np.maximum(prices, 1.0)
        proven = _bound(prices, runs, times, have, busy)
        if proven < lowest:
            best, lowest = prices, proven
    least: Floats = best / best.min()
    return least


def _bound(prices: Floats, runs: Floats, times: Floats, have: Floats, busy: float) -> float:
    """No scheduler ends more such mixes a second: any prices from 1 on prove one."""
    return float((have @ (prices - 1) + busy) / (runs @ (times * prices).min(axis=1)))


def bound(scarce: Mapping[str, float], classes: Sequence[Class], capacity: Mapping[str, int], busy: float) -> float:
    """Mixes a second that nobody can pass, as these scarcities (all from 1 on) prove."""
    paid = sum(count * (scarce[model] - 1) for model, count in capacity.items()) + min(busy, sum(capacity.values()))
    return paid / sum(one.runs * min(scarce[m] * s for m, s in one.device_s.items() if m in scarce) for one in classes)
