"""The histogram tells back what was put in, to three digits."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from loadtest.histogram import LARGEST_NS, Histogram, Packed, bucket_of, highest_of, packed


def test_every_value_lies_in_its_bucket_and_buckets_are_narrow() -> None:
    values = np.unique(np.concatenate([np.arange(5000), np.geomspace(1, LARGEST_NS, 20_000).astype(np.int64)]))
    for value, bucket in zip(values.tolist(), bucket_of(values).tolist(), strict=True):
        assert value <= highest_of(bucket) <= value * (1 + 1 / 1024)


def test_buckets_follow_each_other_without_a_gap() -> None:
    for bucket in range(30_000):
        assert bucket_of(np.array([highest_of(bucket), highest_of(bucket) + 1])).tolist() == [bucket, bucket + 1]


@pytest.mark.parametrize("percent", [1, 50, 95, 99, 99.9, 100])
def test_percentiles_agree_with_sorting(percent: float) -> None:
    values = np.random.default_rng(4).lognormal(15, 2, 50_000).astype(np.int64)
    histogram = Histogram.of(packed(values))
    exact = np.sort(values)[max(1, int(np.ceil(len(values) * percent / 100))) - 1]
    assert exact <= histogram.percentile_ns(percent) <= exact * (1 + 1 / 1024)


def test_the_parts_of_several_machines_are_one_histogram() -> None:
    values = np.random.default_rng(4).integers(0, 10**12, 5000)
    parts = msgspec.json.decode(msgspec.json.encode([packed(values[:1234]), packed(values[1234:])]), type=list[Packed])
    assert Histogram.of(*parts).summary_ms() == Histogram.of(packed(values)).summary_ms()


def test_mean_and_max_are_exact() -> None:
    histogram = Histogram.of(packed([1_000_001, 2_000_002, 9_999_999]))
    assert histogram.summary_ms()["mean_ms"] == pytest.approx((1_000_001 + 2_000_002 + 9_999_999) / 3e6)
    assert histogram.summary_ms()["max_ms"] == 9.999999


def test_nothing_recorded_is_said_so() -> None:
    for nothing in (Histogram.of(), Histogram.of(packed([]))):
        assert nothing.summary_ms() == {"count": 0}
        assert nothing.percentile_ns(99) == 0


def test_negative_durations_count_as_none() -> None:
    histogram = Histogram.of(packed([-5, 0]))
    assert (histogram.count, histogram.max_ns, histogram.sum_ns) == (2, 0, 0)
