"""What one reading of a device is a sign of: good, a worry, or broken. Thresholds in one place, a reason for each number.

Pure: what has to be remembered from one reading to the next is in a `Memory` that the caller keeps.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from hetsched.config import Health
from hetsched.wire import DeviceReading


class Sign(IntEnum):
    """Graver is greater."""

    GOOD = 0
    WORRY = 1
    BROKEN = 2


class Symptom(msgspec.Struct, frozen=True):
    """`reason` starts with a coded word; "" when good."""

    sign: Sign = Sign.GOOD
    reason: str = ""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, percent, °C, counts."""

    push_utilization_percent: float = 90.0
    push_rearm_percent: float = 5.0  # so far below the push threshold it must fall before it can push again
    hot_celsius: float = 90.0  # where the device does not tell its own limit
    critical_celsius: float = 100.0
    cool_by_celsius: float = 5.0  # a hot device must get so far below the limit to count as cool
    hot_for_s: float = 10.0  # a peak of a few seconds is no symptom: cards ride on their limit by design
    ecc_failed: int = 4  # uncorrected errors in one episode; each one has killed a task already
    unreadable_failed_s: float = 30.0  # a driver reload takes seconds, a hung one is for ever
    suspect_quiet_s: float = 60.0
    failed_quiet_s: float = 60.0  # doubles with every failure within `relapse_memory_s`
    failed_quiet_most_s: float = 3600.0
    probation_s: float = 300.0
    relapse_memory_s: float = 86_400.0

    @classmethod
    def of(cls, health: Health) -> Thresholds:
        """The configured ones; what the configuration does not speak of keeps its default."""
        return cls(
            push_utilization_percent=health.push_utilization,
            hot_celsius=health.hot_celsius,
            critical_celsius=health.critical_celsius,
        )


class Limits(msgspec.Struct, frozen=True):
    """What the device itself says it bears; None = take the configured."""

    hot_celsius: float | None = None
    critical_celsius: float | None = None


class Memory(msgspec.Struct):
    """Of one device. `ecc_fresh`: uncorrected errors since it was last healthy. The times are None while it is not so."""

    ecc_last: int = 0
    ecc_fresh: int = 0
    hot: bool = False
    hot_since_ns: int | None = None
    unreadable_since_ns: int | None = None

    def forgive(self) -> None:
        """It is healthy again: a new episode begins."""
        self.ecc_fresh = 0


def judge(
    reading: DeviceReading | None, memory: Memory, limits: Limits, thresholds: Thresholds, now_ns: int
) -> Symptom:
    """The gravest symptom in one reading; None = the device was asked for and is not there. Updates `memory`."""
    if reading is None:
        return Symptom(Sign.BROKEN, "vanished: the device is not there any more")
    symptoms = [
        _vendor(reading, memory, thresholds, now_ns),
        _ecc(reading, memory, thresholds),
        _heat(reading, memory, limits, thresholds, now_ns),
    ]
    return max(symptoms, key=lambda symptom: symptom.sign)


def _vendor(reading: DeviceReading, memory: Memory, thresholds: Thresholds, now_ns: int) -> Symptom:
    """The vendor's own verdict. One that cannot be read is given a while: then it is as good as broken."""
    if not reading.reason.startswith("unreadable"):
        memory.unreadable_since_ns = None
    elif memory.unreadable_since_ns is None:
        memory.unreadable_since_ns = now_ns
    elif now_ns - memory.unreadable_since_ns >= thresholds.unreadable_failed_s * 1e9:
        return Symptom(Sign.BROKEN, reading.reason)
    if reading.health == "failed":
        return Symptom(Sign.BROKEN, reading.reason or "failed")
    if reading.health == "suspect":
        return Symptom(Sign.WORRY, reading.reason or "suspect")
    return Symptom()


def _ecc(reading: DeviceReading, memory: Memory, thresholds: Thresholds) -> Symptom:
    """Counted from the driver's start, so errors from before this agent's start count too, once."""
    count = reading.ecc_uncorrected
    if count is None:
        return Symptom()
    fresh = max(0, count - memory.ecc_last)  # less than before: the driver was loaded anew
    memory.ecc_last = count
    memory.ecc_fresh += fresh
    if not fresh:
        return Symptom()
    sign = Sign.BROKEN if memory.ecc_fresh >= thresholds.ecc_failed else Sign.WORRY
    return Symptom(sign, f"ecc_uncorrected: {memory.ecc_fresh} new")


def _heat(reading: DeviceReading, memory: Memory, limits: Limits, thresholds: Thresholds, now_ns: int) -> Symptom:
    celsius = reading.temperature_celsius
    if celsius is None:
        memory.hot, memory.hot_since_ns = False, None
        return Symptom()
    hot = thresholds.hot_celsius if limits.hot_celsius is None else limits.hot_celsius
    critical = thresholds.critical_celsius if limits.critical_celsius is None else limits.critical_celsius
    if celsius >= critical:
        return Symptom(Sign.BROKEN, f"too_hot: {celsius:.0f} °C of {critical:.0f}")
    if celsius < hot - (thresholds.cool_by_celsius if memory.hot else 0):
        memory.hot, memory.hot_since_ns = False, None
        return Symptom()
    if memory.hot_since_ns is None:
        memory.hot_since_ns = now_ns
    memory.hot = memory.hot or now_ns - memory.hot_since_ns >= thresholds.hot_for_s * 1e9
    return Symptom(Sign.WORRY, f"hot: {celsius:.0f} °C of {hot:.0f}") if memory.hot else Symptom()
