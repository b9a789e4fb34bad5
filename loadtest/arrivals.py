"""When tasks arrive: a Poisson process drawn in vectors.

Promises: the arrival times depend on rate, start and seed alone, never on how often or how late one asks. That is what makes
the load open-loop: a server that stalls is met by all that arrived meanwhile. Independent processes of rate r/n add up to one
of rate r, so every generator process draws its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

CHUNK = 16_384  # gaps drawn at once: 130 kB, 0.1 ms


class PoissonArrivals:
    """Arrivals at `rate_per_s` tasks a second from `start_ns` on (the caller's clock, nanoseconds)."""

    def __init__(self, *, rate_per_s: float, start_ns: int, seed: int) -> None:
        if not rate_per_s > 0:
            raise ValueError(f"an arrival rate is above 0, not {rate_per_s}")
        self._mean_gap_ns = 1e9 / rate_per_s
        self._random = np.random.default_rng(seed)
        self._last_ns = float(start_ns)
        self._ahead = self._draw()
        self._next = 0

    def until(self, now_ns: int) -> Times:
        """All arrivals up to `now_ns` that were not handed out yet, in order."""
        parts = []
        while True:
            end = int(np.searchsorted(self._ahead, now_ns, side="right"))
            parts.append(self._ahead[self._next : end])
            self._next = end
            if end < len(self._ahead):
                return parts[0] if len(parts) == 1 else np.concatenate(parts)
            self._ahead, self._next = self._draw(), 0

    def next_ns(self) -> int:
        """When the next one arrives."""
        return int(self._ahead[self._next])

    def _draw(self) -> Times:
        gaps = self._random.exponential(self._mean_gap_ns, CHUNK)
        times = self._last_ns + np.cumsum(gaps)
        self._last_ns = float(times[-1])
        return times.astype(np.int64)
