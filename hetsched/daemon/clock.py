"""The daemon's only clock: wall time that never goes back.

`now_ns` is what every turn is stamped with, so it must not repeat an earlier turn's past: not when NTP steps the wall clock,
not after a restart on a machine whose clock was set back. It runs on the monotonic clock and leans towards the wall
clock by at most one part in twenty, so that deadlines given as dates stay true on a machine whose clock was corrected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LEAN = 20
"""The wall clock is followed at ±1/20 of the speed of time: an hour's error is gone in twenty."""


class Clock:
    """`not_before_ns`: the last time that the journal knows; `now_ns` starts no earlier."""

    def __init__(
        self,
        not_before_ns: int = 0,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._seen_ns = monotonic_ns()
        self._now_ns = max(wall_ns(), not_before_ns)

    def now_ns(self) -> int:
        """Nanoseconds since 1970; never less than an earlier answer."""
        monotonic_ns = self._monotonic_ns()
        elapsed_ns = monotonic_ns - self._seen_ns
        self._seen_ns = monotonic_ns
        most_ns = elapsed_ns // LEAN
        behind_ns = self._wall_ns() - (self._now_ns + elapsed_ns)
        self._now_ns += elapsed_ns + max(-most_ns, min(most_ns, behind_ns))
        return self._now_ns

    def seconds_until(self, at_ns: int) -> float:
        """Seconds from now; 0 for what is already past."""
        return max(0.0, (at_ns - self.now_ns()) / 1e9)
