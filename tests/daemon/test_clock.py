"""Time for turns never goes back, whatever the wall clock does."""

from __future__ import annotations

from hetsched.daemon.clock import Clock

SECOND = 1_000_000_000


class Times:
    """Two clocks that are set by hand."""

    def __init__(self) -> None:
        self.wall_ns = 1000 * SECOND
        self.monotonic_ns = 5 * SECOND

    def clock(self, not_before_ns: int = 0) -> Clock:
        return Clock(not_before_ns, wall_ns=lambda: self.wall_ns, monotonic_ns=lambda: self.monotonic_ns)

    def go_on(self, seconds: float) -> None:
        self.wall_ns += round(seconds * SECOND)
        self.monotonic_ns += round(seconds * SECOND)


def test_it_runs_with_the_wall_clock() -> None:
    times = Times()
    clock = times.clock()
    times.go_on(3)
    assert clock.now_ns() == 1003 * SECOND


def test_a_wall_clock_set_back_slows_it_but_never_turns_it() -> None:
    times = Times()
    clock = times.clock()
    times.wall_ns -= 600 * SECOND
    before = clock.now_ns()
    for _ in range(100):
        times.go_on(1)
        now = clock.now_ns()
        assert 0.9 * SECOND < now - before <= SECOND
        before = now


def test_a_wall_clock_set_forward_is_reached_in_time() -> None:
    times = Times()
    clock = times.clock()
    times.wall_ns += 10 * SECOND
    for _ in range(400):
        times.go_on(1)
        clock.now_ns()
    assert clock.now_ns() == times.wall_ns


def test_it_starts_no_earlier_than_the_journal_knows() -> None:
    assert Times().clock(2000 * SECOND).now_ns() == 2000 * SECOND


def test_the_same_moment_twice_is_no_step_back() -> None:
    clock = Times().clock()
    assert clock.now_ns() == clock.now_ns()
