"""Numbers over time and numbers over tasks, as a summary tells them."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Weighted:
    """A value that stays until it is set again; its mean weighs every value with the time it stood."""

    def __init__(self) -> None:
        self.value = 0.0
        self._since_ns = 0
        self._area = 0.0

    def set(self, value: float, now_ns: int) -> None:
        """From `now_ns` on it is `value`."""
        self._area += self.value * (now_ns - self._since_ns)
        self.value, self._since_ns = value, now_ns

    def integral(self, now_ns: int) -> float:
        """Value times seconds from t = 0 to now."""
        return (self._area + self.value * (now_ns - self._since_ns)) / 1e9

    def mean(self, now_ns: int) -> float:
        """Over the time from t = 0 to now; the present value if no time has passed."""
        return self.integral(now_ns) * 1e9 / now_ns if now_ns else self.value


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """mean, p50, p95, p99, max; percentiles are values that occur (nearest rank). All None where there is no value."""
    if not values:
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    ordered = sorted(values)
    out: dict[str, float | None] = {"mean": rounded(math.fsum(ordered) / len(ordered))}
    for percent in (50, 95, 99):
        out[f"p{percent}"] = rounded(ordered[math.ceil(len(ordered) * percent / 100) - 1])
    out["max"] = rounded(ordered[-1])
    return out


def rounded(value: float) -> float:
    """To nanoseconds, or nine digits of a ratio: what lies beyond is noise of the arithmetic."""
    return round(value, 9)
