"""Arrivals are a Poisson process, whoever asks and however late."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.arrivals import CHUNK, PoissonArrivals
from loadtest.board import capacity_for

SECOND = 1_000_000_000


def drawn(*, rate_per_s: float, seconds: int, seed: int) -> np.ndarray:
    return PoissonArrivals(rate_per_s=rate_per_s, start_ns=7 * SECOND, seed=seed).until((7 + seconds) * SECOND)


def test_the_mean_rate_is_the_one_asked_for() -> None:
    counts = [len(drawn(rate_per_s=1000, seconds=20, seed=seed)) for seed in range(20)]
    # 20 runs of 20,000: the mean's standard deviation is 32.
    assert abs(np.mean(counts) - 20_000) < 5 * 32


def test_counts_per_slice_vary_as_much_as_they_are_large() -> None:
    """Variance over mean is 1 for Poisson, 0 for a metronome, large for bursts."""
    times = drawn(rate_per_s=5000, seconds=100, seed=3)
    counts = np.bincount((times - 7 * SECOND) // (SECOND // 100), minlength=10_000)[:10_000]
    assert 0.93 < counts.var() / counts.mean() < 1.07


def test_gaps_are_exponential() -> None:
    gaps_s = np.sort(np.diff(drawn(rate_per_s=100, seconds=1000, seed=5)) / 1e9)
    expected = 1 - np.exp(-100 * gaps_s)
    measured = np.arange(1, len(gaps_s) + 1) / len(gaps_s)
    # Kolmogorov-Smirnov at one in ten thousand: 2.2 / sqrt(n).
    assert np.abs(measured - expected).max() < 2.2 / np.sqrt(len(gaps_s))


def test_asking_late_or_often_changes_nothing() -> None:
    """Open loop: what arrives does not depend on the one who asks. Also across chunks of draws."""
    whole = drawn(rate_per_s=10_000, seconds=10, seed=1)
    assert len(whole) > 4 * CHUNK
    arrivals = PoissonArrivals(rate_per_s=10_000, start_ns=7 * SECOND, seed=1)
    random = np.random.default_rng(0)
    asked = np.sort(random.integers(7 * SECOND, 17 * SECOND, 300)).tolist()
    pieces = [arrivals.until(now_ns) for now_ns in [*asked, 17 * SECOND]]
    assert np.array_equal(np.concatenate(pieces), whole)


def test_next_is_the_first_that_was_not_handed_out() -> None:
    arrivals = PoissonArrivals(rate_per_s=100, start_ns=0, seed=2)
    first = arrivals.next_ns()
    assert arrivals.until(first - 1).size == 0
    assert arrivals.until(first).tolist() == [first]
    assert arrivals.next_ns() > first


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_no_rate_no_arrivals(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        PoissonArrivals(rate_per_s=rate, start_ns=0, seed=0)


def test_the_board_holds_what_arrives() -> None:
    for seed in range(50):
        assert len(drawn(rate_per_s=300, seconds=3, seed=seed)) <= capacity_for(rate_per_s=300, duration_s=3)
