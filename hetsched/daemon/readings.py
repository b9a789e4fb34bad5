"""The devices as their agents last saw them: latest readings for people and metrics, changes of health for the scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from hetsched.daemon.greeting import short
from hetsched.scheduler.messages import DeviceHealth
from hetsched.wire import DeviceReading


class Seen(msgspec.Struct, frozen=True):
    """A reading and when it came (monotonic seconds)."""

    reading: DeviceReading
    at_s: float


class Readings:
    """By node, then device. Kept until the node is lost."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, Seen]] = {}

    def take(self, node: str, readings: Iterable[DeviceReading], *, whole: bool = False) -> list[DeviceHealth]:
        """Remember them; what the scheduler has to hear. `whole`: first report of a link, so say every health again, because
        changes may have been missed while nobody listened."""
        known = {} if whole else self._seen.get(node, {})
        now_s = time.monotonic()
        changed = []
        latest = dict(known)
        for reading in readings:
            before = known.get(reading.device)
            if before is None or (before.reading.health, before.reading.reason) != (reading.health, reading.reason):
                changed.append(_health(node, reading))
            latest[reading.device] = Seen(reading, now_s)
        self._seen[node] = latest
        return changed

    def forget(self, node: str) -> None:
        """The node is lost."""
        self._seen.pop(node, None)

    def of(self, node: str, device: str) -> dict[str, Any] | None:
        """The latest reading as JSON: units in the names, unknown values left out, `age_seconds`."""
        seen = self._seen.get(node, {}).get(device)
        if seen is None:
            return None
        told: dict[str, Any] = {}
        for field in _SHOWN:
            value = getattr(seen.reading, field)
            if value is not None:
                told[field] = value
        if seen.reading.xids:
            told["xids"] = list(seen.reading.xids)
        told["age_seconds"] = round(time.monotonic() - seen.at_s, 3)
        return told

    def all(self) -> Iterable[tuple[str, DeviceReading]]:
        """(node, reading) of every device that has one."""
        for node, devices in self._seen.items():
            for seen in devices.values():
                yield node, seen.reading


_SHOWN = (
    "utilization_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "temperature_celsius",
    "power_watts",
    "ecc_uncorrected",
)


def _health(node: str, reading: DeviceReading) -> DeviceHealth:
    return DeviceHealth(
        node=node, device=reading.device, health=reading.health, reason=short(reading.reason), actor=f"node:{node}"
    )
