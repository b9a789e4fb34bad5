"""The saturation search: the highest rate at which a run still reaches its targets.

From the rate given upward by doubling until a target is missed, then by halving the interval (on a logarithmic scale) until its ends are
within a tenth. A miss is tried once more before it counts: one hiccup of a shared machine is not a limit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

from loadtest.options import LONGEST_S, MOST_TASKS, Options
from loadtest.tally import Figures
from loadtest.targets import Target, judge

CLOSE = 1.1
MOST_RUNS = 24


class Searched:
    """What each rate came to, lowest first."""

    def __init__(self) -> None:
        self.reached: dict[float, Figures] = {}
        self.missed: dict[float, str] = {}

    def next_rate(self, first: float) -> float | None:
        """The rate to try now; None = the ends are close enough."""
        if not self.missed:
            return first if not self.reached else 2 * max(self.reached)
        high = min(self.missed)
        low = max((rate for rate in self.reached if rate < high), default=None)
        if low is None:
            return high / 2
        return None if high / low <= CLOSE else math.sqrt(low * high)


def search(options: Options, targets: Sequence[Target], measure: Callable[[Options], Figures]) -> Figures:
    """The figures of the best run, with `search`: every rate tried. The first rate's if none reached the targets."""
    first, searched, last = options.rps, Searched(), {}
    assert options.duration <= LONGEST_S
    for _ in range(MOST_RUNS):
        rate = searched.next_rate(first)
        if rate is None or rate < first / 64 or rate * options.duration > MOST_TASKS:
            break
        options.rps = rate
        missed = ""
        for _ in range(2):
            last = measure(options)
            missed = ", ".join(
                f"{each.target.figure} {each.measured}" for each in judge(list(targets), last) if not each.reached
            )
            if not missed:
                break
        if missed:
            searched.missed[rate] = missed
        else:
            searched.reached[rate] = last
        print(f"{rate:>12,.0f}/s: {'missed ' + missed if missed else 'reached'}", file=sys.stderr, flush=True)
    best = max(searched.reached, default=None)
    figures = searched.reached[best] if best is not None else last
    options.rps = best if best is not None else first
    rows = [(rate, "") for rate in searched.reached] + list(searched.missed.items())
    return figures | {
        "search": {
            "best_per_s": best or 0.0,
            "tried": [{"rate_per_s": rate, "missed": why} for rate, why in sorted(rows)],
        }
    }
