"""How long the batch lane gathers, tuned while the daemon runs: as long as the mean latency that is wanted allows, for a longer window
packs better and costs less a task, and no longer.

A task's latency is what it waits in the window and the rest: from the turn that decides to the journal's word that it is on disk. Both are
followed as means that forget with MEMORY_S, and the window is what is left of `batch.latency` after the rest, between `batch.min_wait` and
`batch.max_wait`. Where tasks come one by one each waits for the whole window, where they come in streams for half of it; so what the tasks
of the last flushes did wait, as a part of their windows, is followed too.

Stable: a shorter window makes more turns, never longer ones, so the rest does not grow by it; and no flush moves the window by more than
STEP. Who is decided at once because nobody else is to be expected (`Window.eager`) does not count here. A simulator's window is not tuned (its
clock is not spent by deciding).
"""

from __future__ import annotations

import math

MEMORY_S = 1.0
STEP = 1.25


class Mean:
    """An exponential mean of samples that come at uneven times, seconds."""

    def __init__(self, first: float) -> None:
        self.value = first
        self._at_s = -math.inf

    def add(self, sample: float, now_s: float) -> None:
        """One sample at a time; the first counts whole."""
        part = 1.0 - math.exp(-(now_s - self._at_s) / MEMORY_S)
        self.value += (sample - self.value) * part
        self._at_s = now_s


class Tuner:
    """`wait_s`: how long the window should be now. `latency_s` 0: always `most_s`."""

    def __init__(self, latency_s: float, least_s: float, most_s: float) -> None:
        self.latency_s, self.least_s, self.most_s = latency_s, least_s, most_s
        self.wait_s = most_s
        self.rest_s = Mean(0.0)
        self.part = Mean(1.0)

    def flushed(self, part: float, now_s: float) -> None:
        """The window was flushed; its tasks waited for so much of it in the mean, 0 to 1."""
        self.part.add(part, now_s)

    def released(self, rest_s: float, now_s: float) -> float:
        """A turn with facts is durable, so long after it began. Returns the window to use from now on."""
        self.rest_s.add(rest_s, now_s)
        if self.latency_s > 0:
            wanted_s = (self.latency_s - self.rest_s.value) / max(self.part.value, 0.25)
            wanted_s = min(max(wanted_s, self.wait_s / STEP), self.wait_s * STEP)
            self.wait_s = min(max(wanted_s, self.least_s), self.most_s)
        return self.wait_s
