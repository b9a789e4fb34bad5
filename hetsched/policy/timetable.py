"""What of a node is free when, as far as a plan knows: a step function over time that reservations are taken out of.

Amounts are counted in the node's own dimensions (cores, memory, devices by model); an ask names some of them. Times are seconds from the
moment of planning.
"""

from __future__ import annotations

import math
from bisect import bisect_right

Ask = tuple[tuple[int, int], ...]
"""(dimension, amount)"""

NEVER = math.inf


class Timetable:
    """`kin`: equal for nodes that are alike and on which nothing stands yet; None from the first reservation on."""

    def __init__(self, free: list[int], kin: object = None) -> None:
        self.kin = kin
        self._times = [0.0]
        self._free = [list(free)]
        self._not_before: dict[Ask, float] = {}

    def copy(self) -> Timetable:
        """To try something on."""
        other = Timetable([], self.kin)
        other._times, other._free = list(self._times), [list(row) for row in self._free]
        other._not_before = dict(self._not_before)
        return other

    def earliest(self, ask: Ask, ready_s: float, for_s: float) -> float:
        """The first moment from `ready_s` on at which the ask fits for so long: in a gap where there is one (insertion); NEVER."""
        times, free = self._times, self._free
        known = self._not_before.get(ask, 0.0)
        start = max(ready_s, known)
        at = bisect_right(times, start) - 1
        fitted = False
        while True:
            row = free[at]
            for dimension, amount in ask:
                if row[dimension] < amount:
                    break
            else:
                if not fitted and ready_s <= known:
                    self._not_before[ask] = start  # reservations only take away: nothing of this ask ever fits before
                fitted = True
                if at + 1 == len(times) or times[at + 1] >= start + for_s - 1e-9:
                    return start
                at += 1
                continue
            at += 1
            if at == len(times):
                return NEVER
            start = times[at]

    def units(self, ask: Ask, at_s: float) -> int:
        """How many such asks fit at that moment."""
        row = self._free[bisect_right(self._times, at_s) - 1]
        return min((row[dimension] // amount for dimension, amount in ask if amount), default=0)

    def take(self, ask: Ask, begin_s: float, end_s: float, times: int = 1) -> None:
        """Reserve."""
        self.kin = None
        if end_s <= begin_s:
            return
        first, last = self._cut(begin_s), self._cut(end_s) if end_s < NEVER else len(self._times)
        for row in self._free[first:last]:
            for dimension, amount in ask:
                row[dimension] -= amount * times

    def _cut(self, at_s: float) -> int:
        """The step that begins at this moment."""
        at = bisect_right(self._times, at_s) - 1
        if self._times[at] == at_s:
            return at
        self._times.insert(at + 1, at_s)
        self._free.insert(at + 1, list(self._free[at]))
        return at + 1
