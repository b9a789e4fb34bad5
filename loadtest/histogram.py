"""Durations in logarithmic-linear buckets, after HdrHistogram: constant memory, vectors in, percentiles out.

Promises: every recorded value is told back within 1/1024 of itself (three significant digits); mean and max are exact;
`of` the parts of several equals one histogram of all values.

Values below 2048 ns have a bucket each; above, every doubling is cut into 1024 equal buckets.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

SUB_BITS = 10
SUB = 1 << SUB_BITS
LARGEST_NS = (1 << 46) - 1  # 19 hours; more counts as this
BUCKETS = (46 - SUB_BITS + 1) * SUB


def bucket_of(values_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket of each value; monotonic in the value."""
    values = np.clip(values_ns, 0, LARGEST_NS)
    # frexp is exact below 2^53: its exponent is the bit length.
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(bits - (SUB_BITS + 1), 0)
    buckets: NDArray[np.int64] = shift * SUB + (values >> shift)
    return buckets


def highest_of(bucket: int) -> int:
    """The largest value that falls into the bucket, in ns."""
    shift = max(bucket // SUB - 1, 0)
    return ((bucket - shift * SUB + 1) << shift) - 1


class Packed(msgspec.Struct, frozen=True):
    """A histogram to send: the buckets that are not empty (ascending) and what is in each."""

    buckets: list[int]
    counts: list[int]
    sum_ns: int
    max_ns: int


class Histogram:
    """Counts of durations, in ns."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(BUCKETS + SUB, dtype=np.int64)
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0

    @classmethod
    def of(cls, *parts: Packed) -> Histogram:
        """All that the parts have counted."""
        whole = cls()
        for part in parts:
            whole._counts[np.array(part.buckets, dtype=np.int64)] += np.array(part.counts, dtype=np.int64)
            whole.count += sum(part.counts)
            whole.sum_ns += part.sum_ns
            whole.max_ns = max(whole.max_ns, part.max_ns)
        return whole

    def percentile_ns(self, percent: float) -> int:
        """The smallest bucket's value that at least `percent` of the durations do not exceed; 0 when empty."""
        if self.count == 0:
            return 0
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(highest_of(bucket), self.max_ns)

    def summary_ms(self) -> dict[str, float]:
        """count, mean, p50, p95, p99, p999 and max; durations in milliseconds."""
        if self.count == 0:
            return {"count": 0}
        named = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
        return {
            "count": self.count,
            "mean_ms": self.sum_ns / self.count / 1e6,
            **{f"{name}_ms": self.percentile_ns(percent) / 1e6 for name, percent in named.items()},
            "max_ms": self.max_ns / 1e6,
        }


def packed(values_ns: ArrayLike) -> Packed:
    """The histogram of a vector of durations; negative ones count as 0."""
    values = np.maximum(np.asarray(values_ns, dtype=np.int64), 0)
    buckets, counts = np.unique(bucket_of(values), return_counts=True)
    return Packed(buckets.tolist(), counts.tolist(), int(values.sum()), int(values.max(initial=0)))
