"""Is a device fit for tasks? A state machine per device, fed with readings, without clock or device of its own (sans-IO).

    healthy ──worry──▶ suspect ──broken──▶ failed ──quiet──▶ probation ──quiet──▶ healthy
       ▲                  │                  ▲                   │
       └──────quiet───────┘                  └──worry, broken────┘      (healthy ──broken──▶ failed)

Going down is at once, coming back takes quiet time: a device that failed once does come back (unlike in other systems), but a flapping
one comes back later each time. What the scheduler hears is `healthy`, `suspect` (gets no new work) or `failed`; probation is told as
suspect. The tables below are the whole behaviour; `symptoms.py` says what a reading is a sign of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from hetsched.agent.symptoms import Limits, Memory, Sign, Symptom, Thresholds, judge
from hetsched.wire import DeviceReading


class State(StrEnum):
    """Of one device; `told` is the word for the outside."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED = "failed"
    PROBATION = "probation"

    @property
    def told(self) -> str:
        """healthy | suspect | failed."""
        return State.SUSPECT.value if self is State.PROBATION else self.value


class Cause(StrEnum):
    """What moves a device: a bad sign, or enough time without one."""

    WORRY = "worry"
    BROKEN = "broken"
    QUIET = "quiet"


# A pair that is not here changes nothing.
MOVES: Mapping[tuple[State, Cause], State] = {
    (State.HEALTHY, Cause.WORRY): State.SUSPECT,
    (State.HEALTHY, Cause.BROKEN): State.FAILED,
    (State.SUSPECT, Cause.BROKEN): State.FAILED,
    (State.SUSPECT, Cause.QUIET): State.HEALTHY,
    (State.FAILED, Cause.QUIET): State.PROBATION,
    (State.PROBATION, Cause.WORRY): State.FAILED,
    (State.PROBATION, Cause.BROKEN): State.FAILED,
    (State.PROBATION, Cause.QUIET): State.HEALTHY,
}
_CAUSE_OF_SIGN = {Sign.WORRY: Cause.WORRY, Sign.BROKEN: Cause.BROKEN}


class Change(msgspec.Struct, frozen=True):
    """One device moved. `reason` is the symptom that moved it, or the one that it recovered from."""

    device: str
    before: State
    after: State
    reason: str
    at_ns: int


class _Patient:
    """What is remembered of one device. `quiet_since_ns`: the last bad sign, or when it came into its present state."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.memory = Memory()
        self.state = State.HEALTHY
        self.reason = ""
        self.quiet_since_ns = 0
        self.failures = 0
        self.failed_ns: int | None = None


class HealthTracker:
    """All devices of a node. Times are nanoseconds of one monotonic clock."""

    def __init__(self, devices: Mapping[str, Limits], thresholds: Thresholds | None = None) -> None:
        self._thresholds = thresholds or Thresholds()
        self._patients = {device: _Patient(limits) for device, limits in devices.items()}

    def observe(
        self, readings: Sequence[DeviceReading], now_ns: int, asked: Iterable[str] | None = None
    ) -> list[Change]:
        """Takes one round of readings. `asked`: the devices this round is about (None = all); one of them without a reading has vanished."""
        by_device = {reading.device: reading for reading in readings}
        changes = []
        for device in self._patients if asked is None else asked:
            patient = self._patients[device]
            symptom = judge(by_device.get(device), patient.memory, patient.limits, self._thresholds, now_ns)
            if (change := self._move(device, patient, symptom, now_ns)) is not None:
                changes.append(change)
        return changes

    def replace(self, devices: Mapping[str, Limits]) -> None:
        """The node has other devices now; those that stay keep their history."""
        old = self._patients
        self._patients = {device: old.get(device) or _Patient(limits) for device, limits in devices.items()}

    def state(self, device: str) -> State:
        """KeyError for a device that is not tracked."""
        return self._patients[device].state

    def stamped(self, reading: DeviceReading) -> DeviceReading:
        """The reading with the verdict of this machine in place of the vendor's momentary one."""
        patient = self._patients[reading.device]
        reason = f"probation after {patient.reason}" if patient.state is State.PROBATION else patient.reason
        return msgspec.structs.replace(reading, health=patient.state.told, reason=reason)

    def check(self) -> None:
        """Invariants: only a healthy device has no reason; a failed one has failed at least once; time is not in the future."""
        for device, patient in self._patients.items():
            assert (patient.reason == "") == (patient.state is State.HEALTHY), (device, patient.state, patient.reason)
            if patient.state in (State.FAILED, State.PROBATION):
                assert patient.failures >= 1 and patient.failed_ns is not None, device

    def _move(self, device: str, patient: _Patient, symptom: Symptom, now_ns: int) -> Change | None:
        if symptom.sign is not Sign.GOOD:
            cause = _CAUSE_OF_SIGN[symptom.sign]
            patient.quiet_since_ns = now_ns
        elif now_ns - patient.quiet_since_ns >= self._quiet_ns(patient):
            cause = Cause.QUIET
        else:
            return None
        after = MOVES.get((patient.state, cause))
        return None if after is None else self._enter(device, patient, after, symptom.reason or patient.reason, now_ns)

    def _enter(self, device: str, patient: _Patient, after: State, reason: str, now_ns: int) -> Change:
        change = Change(device, patient.state, after, reason, now_ns)
        patient.state, patient.quiet_since_ns = after, now_ns
        patient.reason = "" if after is State.HEALTHY else reason
        if after is State.FAILED:
            recent = patient.failed_ns is not None and now_ns - patient.failed_ns <= _ns(
                self._thresholds.relapse_memory_s
            )
            patient.failures = patient.failures + 1 if recent else 1
            patient.failed_ns = now_ns
        elif after is State.HEALTHY:
            patient.memory.forgive()
        return change

    def _quiet_ns(self, patient: _Patient) -> int:
        """How long without a bad sign until it may move on; after each further failure twice as long, to a limit."""
        t = self._thresholds
        if patient.state is State.FAILED:
            # The exponent is bounded so that a device that fails for years does not overflow anything.
            return _ns(min(t.failed_quiet_s * 2.0 ** min(patient.failures - 1, 30), t.failed_quiet_most_s))
        return _ns(t.probation_s if patient.state is State.PROBATION else t.suspect_quiet_s)


class PushRule:
    """Which readings leave at once: a change of health, or utilisation that crosses the threshold upwards.

    Edge-triggered: a device that stays busy is told once, and again only after it was clearly below.
    """

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._thresholds = thresholds or Thresholds()
        self._busy: set[str] = set()

    def due(self, readings: Sequence[DeviceReading], changes: Sequence[Change]) -> tuple[DeviceReading, ...]:
        """`readings` are stamped ones of the same round as `changes`; the answer keeps their order."""
        changed = {change.device for change in changes}
        return tuple(reading for reading in readings if self._crossed(reading) or reading.device in changed)

    def _crossed(self, reading: DeviceReading) -> bool:
        use, t = reading.utilization_percent, self._thresholds
        if use is None or use < t.push_utilization_percent - t.push_rearm_percent:
            self._busy.discard(reading.device)
        elif use > t.push_utilization_percent and reading.device not in self._busy:
            self._busy.add(reading.device)
            return True
        return False


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
