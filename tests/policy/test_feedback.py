"""The feedback controller: what it sees, what it turns, and when it keeps its hands off."""

from __future__ import annotations

import pytest

from hetsched.config import Feedback
from hetsched.policy.feedback import PACE, WINDOW, Controller, Settings

BOUNDS = Feedback(enabled=True, gang_share_most=0.3, overcommit_least=0.25, sharers=4, sharers_most=16)
BEGIN = Settings(0, 1000, 4)


def after(controller: Controller, count: int, actual_ms: int, busy_milli: int = -1) -> Settings:
    """So many tasks end that were predicted to take a second; advice is followed."""
    for _ in range(count):
        controller.observe(1000, actual_ms, busy_milli)
        advice = controller.advice()
        if advice is not None:
            controller.set(advice)
    return controller.settings


def test_long_runs_favour_gangs_and_lend_less_step_by_step_within_bounds() -> None:
    controller = Controller(BOUNDS)
    assert after(controller, PACE - 1, 1400) == BEGIN, "too few have ended"
    assert after(controller, 1, 1400) == Settings(100, 750, 4)
    assert after(controller, PACE - 1, 1400) == Settings(100, 750, 4)
    assert after(controller, 1, 1400) == Settings(200, 500, 4)
    assert after(controller, 50 * PACE, 1400) == Settings(300, 250, 4)


def test_short_runs_on_idle_devices_let_more_share_one() -> None:
    controller = Controller(BOUNDS)
    assert after(controller, PACE, 700, 500).sharers == 8
    assert after(controller, 50 * PACE, 700, 500) == Settings(0, 1000, 16)


@pytest.mark.parametrize("busy", [-1, 600, 900])
def test_not_where_one_device_was_busy_or_nobody_knows(busy: int) -> None:
    controller = Controller(BOUNDS)
    after(controller, PACE - 1, 700, -1 if busy < 0 else 100)
    assert after(controller, 1, 700, busy) == BEGIN


@pytest.mark.parametrize("actual", [1300, 1160, 890, 800])
def test_at_the_bounds_and_between_them_nothing_moves(actual: int) -> None:
    controller = Controller(BOUNDS)
    controller.set(Settings(100, 750, 8))
    assert after(controller, 5 * PACE, actual, 100) == Settings(100, 750, 8)


def test_calm_brings_everything_back() -> None:
    controller = Controller(BOUNDS)
    controller.set(Settings(200, 500, 16))
    assert after(controller, PACE, 1000) == Settings(100, 750, 8)
    assert after(controller, 3 * PACE, 1000) == BEGIN


def test_what_was_packed_denser_is_let_out_when_work_slows_down() -> None:
    controller = Controller(BOUNDS)
    controller.set(Settings(0, 1000, 16))
    assert after(controller, PACE, 1400).sharers == 8


def test_only_the_last_thousand_count_and_one_outlier_moves_little() -> None:
    controller = Controller(BOUNDS)
    after(controller, WINDOW, 5000)
    assert controller.error_milli == 4000
    after(controller, WINDOW, 1000)
    assert (controller.error_milli, controller.judged) == (0, WINDOW)
    controller.observe(1, 10**9, -1)
    assert controller.error_milli == 10


def test_it_goes_on_from_where_it_was_saved() -> None:
    controller = Controller(BOUNDS)
    after(controller, 2 * PACE + 37, 1400, 100)
    again = Controller(BOUNDS)
    again.load(controller.save())
    assert after(again, PACE, 1400, 100) == after(controller, PACE, 1400, 100)
    assert again.save() == controller.save()
