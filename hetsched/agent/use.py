"""What attempts use of what they hold: which measurements are worth telling. Pure: looks in, uses to tell out.

A use is told in sixteenths of what is held, rounded up, and only when it matters: a rise at once, for somebody may stand on what was idle; a
fall when the most of the last `LOOKS` looks has fallen, so that what comes and goes is not lent. Who has not been looked at so often uses
all it holds. A steady task costs nothing after its first looks, neither on the line nor in the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from hetsched.agent.attempts import Holds, Key
from hetsched.wire import AttemptUse

STEPS = 16
LOOKS = 5
BUSY_STEPS = 2
"""Utilisation of devices is a mean, for feedback only: an eighth more or less is news."""


class Look(msgspec.Struct, frozen=True):
    """One attempt, one moment; -1 = cannot be measured here."""

    cpu_milli: int
    memory_bytes: int
    utilization_milli: int = -1


class Meter:
    """One attempt's. `told`: what the daemon knows; None = nothing."""

    def __init__(self, key: Key, holds: Holds) -> None:
        self.key = key
        self.told: AttemptUse | None = None
        self._holds = holds
        self._looks: deque[Look] = deque(maxlen=LOOKS)

    def see(self, look: Look) -> AttemptUse | None:
        """What is to be told now, if anything."""
        self._looks.append(look)
        if len(self._looks) < LOOKS:
            return None
        use = AttemptUse(
            self.key.task,
            self.key.attempt,
            _rounded_up(max(one.cpu_milli for one in self._looks), self._holds.cpu_milli),
            _rounded_up(max(one.memory_bytes for one in self._looks), self._holds.memory_bytes),
            self._busy(),
        )
        if use == self.told:
            return None
        self.told = use
        return use

    def _busy(self) -> int:
        """The mean, unless what was told is near enough."""
        seen = [one.utilization_milli for one in self._looks if one.utilization_milli >= 0]
        if not seen:
            return -1
        mean = round(sum(seen) / len(seen) * STEPS / 1000) * 1000 // STEPS
        before = -1 if self.told is None else self.told.utilization_milli
        return before if before >= 0 and abs(mean - before) < BUSY_STEPS * 1000 // STEPS else mean


class Meters:
    """All attempts that run."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Meter] = {}

    def see(self, looks: Mapping[Key, Look], holds: Mapping[Key, Holds]) -> tuple[AttemptUse, ...]:
        """One round; who is not in it has ended. What is to be told."""
        self._by_key = {key: self._by_key.get(key) or Meter(key, holds[key]) for key in looks}
        told = (self._by_key[key].see(look) for key, look in looks.items())
        return tuple(use for use in told if use is not None)

    def forget_told(self) -> None:
        """Another daemon, or another life of it: it is told all anew."""
        for meter in self._by_key.values():
            meter.told = None


def _rounded_up(used: int, held: int) -> int:
    """The next sixteenth of what is held, at most all of it; -1 stays -1."""
    if used < 0:
        return -1
    steps = min(STEPS, -(-used * STEPS // held)) if held else STEPS
    return steps * held // STEPS
