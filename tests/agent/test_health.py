"""The health machine: down at once, back after quiet time, and what is pushed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.agent.health import MOVES, Cause, Change, HealthTracker, PushRule, State
from hetsched.agent.symptoms import Limits, Thresholds
from hetsched.config import Health
from hetsched.wire import DeviceReading

T = Thresholds()
S = 1_000_000_000


class Ward:
    """One device under observation, a clock that only moves on."""

    def __init__(self, limits: Limits = Limits(), thresholds: Thresholds = T) -> None:  # noqa: B008
        self.tracker = HealthTracker({"gpu-0": limits}, thresholds)
        self.now_s = 1000.0

    def sees(self, after_s: float = 1.0, health: str = "healthy", **fields: Any) -> list[str]:
        """One reading; the moves it made, as "healthy → failed"."""
        return self._round(after_s, [DeviceReading("gpu-0", health, **fields)])

    def misses(self, after_s: float = 1.0) -> list[str]:
        """A round in which the device is not there."""
        return self._round(after_s, [])

    def well_for(self, seconds: float, **fields: Any) -> list[str]:
        """A good reading every second."""
        return [move for _ in range(round(seconds)) for move in self.sees(1.0, **fields)]

    @property
    def state(self) -> State:
        return self.tracker.state("gpu-0")

    def _round(self, after_s: float, readings: list[DeviceReading]) -> list[str]:
        self.now_s += after_s
        changes = self.tracker.observe(readings, round(self.now_s * S))
        self.tracker.check()
        return [f"{change.before} → {change.after}" for change in changes]


def test_a_good_device_stays_healthy() -> None:
    assert Ward().well_for(100, temperature_celsius=60.0, ecc_uncorrected=0) == []


@pytest.mark.parametrize(("health", "state"), [("failed", "failed"), ("suspect", "suspect")])
def test_the_vendors_verdict_counts_at_once(health: str, state: str) -> None:
    assert Ward().sees(health=health, reason="lost") == [f"healthy → {state}"]


def test_a_vanished_device_has_failed() -> None:
    ward = Ward()
    assert ward.misses() == ["healthy → failed"]
    told = ward.tracker.stamped(DeviceReading("gpu-0", "healthy"))
    assert (told.health, told.reason.partition(":")[0]) == ("failed", "vanished")


def test_a_device_that_was_not_asked_is_not_missed() -> None:
    tracker = HealthTracker({"gpu-0": Limits(), "tpu-0": Limits()})
    assert tracker.observe([DeviceReading("gpu-0", "healthy")], S, ["gpu-0"]) == []
    assert [change.device for change in tracker.observe([], 2 * S, ["tpu-0"])] == ["tpu-0"]


def test_a_failed_device_comes_back_over_probation() -> None:
    ward = Ward()
    ward.sees(health="failed", reason="lost")
    assert ward.well_for(T.failed_quiet_s) == ["failed → probation"]
    told = ward.tracker.stamped(DeviceReading("gpu-0", "healthy"))
    assert (told.health, told.reason) == ("suspect", "probation after lost")
    assert ward.well_for(T.probation_s) == ["probation → healthy"]
    assert ward.tracker.stamped(DeviceReading("gpu-0", "healthy")).reason == ""


def test_a_suspect_device_needs_quiet_to_be_trusted_again() -> None:
    ward = Ward()
    ward.sees(health="suspect", reason="hm")
    assert ward.well_for(T.suspect_quiet_s - 1) == []
    assert ward.sees(health="suspect", reason="hm") == []
    assert ward.well_for(T.suspect_quiet_s - 1) == []
    assert ward.sees() == ["suspect → healthy"]


def test_one_worry_in_probation_is_a_relapse_and_the_next_wait_is_twice_as_long() -> None:
    ward = Ward()
    ward.sees(health="failed", reason="lost")
    ward.well_for(T.failed_quiet_s)
    assert ward.sees(health="suspect", reason="hm") == ["probation → failed"]
    assert ward.well_for(2 * T.failed_quiet_s - 1) == []
    assert ward.well_for(1) == ["failed → probation"]


def test_the_wait_has_a_limit_and_an_old_failure_is_forgotten() -> None:
    ward = Ward()
    for _ in range(200):
        ward.sees(after_s=T.failed_quiet_most_s, health="failed", reason="lost")
        ward.sees(after_s=T.failed_quiet_most_s)
    assert ward.state is State.PROBATION
    ward.sees(after_s=T.relapse_memory_s + T.probation_s)
    ward.sees(after_s=1, health="failed", reason="lost")
    assert ward.well_for(T.failed_quiet_s) == ["failed → probation"]


def test_what_cannot_be_read_is_suspect_and_in_the_end_failed() -> None:
    ward = Ward()
    moves = [move for _ in range(40) for move in ward.sees(health="suspect", reason="unreadable: no answer")]
    assert moves == ["healthy → suspect", "suspect → failed"]
    ward = Ward()
    ward.sees(health="suspect", reason="unreadable: no answer")
    ward.sees(after_s=29)
    assert ward.sees(health="suspect", reason="unreadable: no answer") == [], "it was read in between"


def test_a_peak_of_heat_is_nothing_and_lasting_heat_is_a_worry() -> None:
    ward = Ward()
    assert ward.well_for(9, temperature_celsius=91.0) == []
    assert ward.sees(temperature_celsius=80.0) == []
    assert ward.well_for(12, temperature_celsius=91.0) == ["healthy → suspect"]


def test_a_hot_device_counts_as_cool_only_when_it_is_clearly_below() -> None:
    ward = Ward()
    ward.well_for(12, temperature_celsius=91.0)
    assert ward.well_for(T.suspect_quiet_s + 5, temperature_celsius=88.0) == []
    assert ward.well_for(T.suspect_quiet_s + 1, temperature_celsius=84.0) == ["suspect → healthy"]


def test_the_devices_own_limits_of_heat_beat_the_configured_ones() -> None:
    ward = Ward(Limits(hot_celsius=70.0, critical_celsius=75.0))
    assert ward.well_for(12, temperature_celsius=71.0) == ["healthy → suspect"]
    assert ward.sees(temperature_celsius=75.0) == ["suspect → failed"]
    assert Ward(Limits(critical_celsius=110.0)).sees(temperature_celsius=104.0) == []
    assert Ward().sees(temperature_celsius=T.critical_celsius) == ["healthy → failed"]


def test_uncorrected_errors_worry_and_several_break() -> None:
    ward = Ward()
    assert ward.sees(ecc_uncorrected=1) == ["healthy → suspect"]
    assert ward.sees(ecc_uncorrected=1) == []
    assert ward.sees(ecc_uncorrected=T.ecc_failed) == ["suspect → failed"]


def test_old_errors_are_forgiven_once_it_was_healthy_again() -> None:
    ward = Ward()
    for count in range(1, 6):
        assert ward.sees(ecc_uncorrected=count) == ["healthy → suspect"]
        assert ward.well_for(T.suspect_quiet_s, ecc_uncorrected=count) == ["suspect → healthy"]
    assert ward.sees(ecc_uncorrected=0) == [], "the driver was loaded anew"


def test_a_replaced_set_of_devices_keeps_the_history_of_those_that_stay() -> None:
    ward = Ward()
    ward.sees(health="failed", reason="lost")
    ward.tracker.replace({"gpu-0": Limits(), "gpu-1": Limits()})
    assert (ward.state, ward.tracker.state("gpu-1")) == (State.FAILED, State.HEALTHY)


def test_every_state_has_a_way_back_to_healthy() -> None:
    """Issue of many a device plugin: once unhealthy, for ever unhealthy."""
    for state in State:
        if state is not State.HEALTHY:
            seen = set()
            while state is not State.HEALTHY and state not in seen:
                seen.add(state)
                state = MOVES[state, Cause.QUIET]
            assert state is State.HEALTHY


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["healthy", "suspect", "failed", "gone"]),
            st.one_of(st.none(), st.integers(20, 110)),
            st.integers(0, 5),
            st.integers(1, 400),
        ),
        max_size=40,
    )
)
def test_whatever_happens_enough_quiet_time_heals(story: list[tuple[str, int | None, int, int]]) -> None:
    ward = Ward()
    ecc = 0
    for health, celsius, errors, after_s in story:
        ecc += errors
        if health == "gone":
            ward.misses(after_s)
        else:
            ward.sees(after_s, health=health, temperature_celsius=celsius, ecc_uncorrected=ecc)
    for _ in range(3):
        ward.sees(T.failed_quiet_most_s, ecc_uncorrected=ecc)
    assert ward.state is State.HEALTHY


def test_busy_is_pushed_on_the_way_up_only() -> None:
    rule = PushRule()
    told = [
        bool(rule.due([DeviceReading("gpu-0", "healthy", "", use)], []))
        for use in (10, 89, 90, 91, 95, 91, 86, 92, 84, 91, None, 91)
    ]
    assert told == [False, False, False, True, False, False, False, False, False, True, False, True]


def test_a_change_of_health_is_pushed_with_the_reading_as_judged() -> None:
    rule = PushRule()
    readings = [DeviceReading("gpu-0", "healthy", "", 10.0), DeviceReading("gpu-1", "failed", "lost")]
    change = Change("gpu-1", State.HEALTHY, State.FAILED, "lost", S)
    assert rule.due(readings, [change]) == (readings[1],)


def test_the_configured_thresholds_are_taken_over() -> None:
    thresholds = Thresholds.of(Health(push_utilization=50.0, hot_celsius=70.0, critical_celsius=80.0))
    rule = PushRule(thresholds)
    assert rule.due([DeviceReading("gpu-0", "healthy", "", 51.0)], [])
    assert Ward(thresholds=thresholds).sees(temperature_celsius=80.0) == ["healthy → failed"]
