"""The feedback controller: how far predicted run times were from actual ones, and what is turned because of it. Pure, in integers.

Error of one ended task: (actual - predicted) / predicted, predicted when it was placed; above 0 it ran longer. So in the architecture that
this follows (its AdaptiveFeedbackController, with the same window of 1,000 and the same bounds). With the mean over the window

    above  0.3: work takes longer than planned, so starts slip and gangs, which need everything at once, slip most, and what was lent will be
                wanted back: gangs get a larger share ahead of single tasks, less is lent, what had been packed denser is let out again;
    below -0.2, and the last 100 utilisations of devices all below 0.6: devices idle under work that ends early: more share a device;
    between -0.1 and 0.15: calm, everything goes back one step towards where it began.

Between those nothing moves (hysteresis). One step at a time, each after `PACE` more tasks, within bounds; so no run of tasks can throw it.
"""

from __future__ import annotations

from collections import deque

import msgspec

from hetsched.config import Feedback

WINDOW = 1_000
PACE = 100
"""Ended tasks between two steps, and before the first."""

UTILISATIONS = 100
SLOW_MILLI, EARLY_MILLI = 300, -200
CALM_MILLI = (-100, 150)
IDLE_MILLI = 600
GANG_STEP_MILLI, OVERCOMMIT_STEP_MILLI = 100, 250
MOST_ERROR_MILLI = 10_000
"""One task that ran a thousand times as long counts as one that ran eleven times as long."""


class Settings(msgspec.Struct, frozen=True, array_like=True):
    """What is turned. `gang_share_milli`: of the cluster, that gangs may hold ahead of single tasks; `overcommit_milli`: of what the
    configured ratios allow to be lent; `sharers`: so many share a device before another one is begun, 0 = as the preset likes."""

    gang_share_milli: int = 0
    overcommit_milli: int = 1000
    sharers: int = 0


NEUTRAL = Settings()
"""Without feedback."""


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """One ended task. `utilization_milli`: mean of its devices over its run, -1 = not known."""

    error_milli: int
    utilization_milli: int


class SavedFeedback(msgspec.Struct, frozen=True, array_like=True):
    """In snapshots."""

    window: tuple[Ended, ...]
    utilizations: tuple[int, ...]
    since: int
    settings: Settings


class Controller:
    """One per cluster. `settings`: in effect; only `set` changes them, from a word fact, so that a replay does what was done."""

    def __init__(self, bounds: Feedback) -> None:
        self._bounds = bounds
        self._start = Settings(sharers=bounds.sharers)
        self.settings = self._start
        self._window: deque[Ended] = deque(maxlen=WINDOW)
        self._utilizations: deque[int] = deque(maxlen=UTILISATIONS)
        self._sum_milli = 0
        self._since = 0

    def observe(self, predicted_ms: int, actual_ms: int, utilization_milli: int) -> None:
        """A task ended, of which somebody had predicted how long it would run."""
        error_milli = min(MOST_ERROR_MILLI, (actual_ms - predicted_ms) * 1000 // max(1, predicted_ms))
        if len(self._window) == WINDOW:
            self._sum_milli -= self._window[0].error_milli
        self._window.append(Ended(error_milli, utilization_milli))
        self._sum_milli += error_milli
        self._since += 1
        if utilization_milli >= 0:
            self._utilizations.append(utilization_milli)

    @property
    def error_milli(self) -> int:
        """Mean over the window; 0 where nothing has ended."""
        return self._sum_milli // len(self._window) if self._window else 0

    @property
    def judged(self) -> int:
        """Tasks in the window."""
        return len(self._window)

    def advice(self) -> Settings | None:
        """What should be set now, if anything."""
        if self._since < PACE:
            return None
        error = self.error_milli
        if error > SLOW_MILLI:
            wanted = self._moved(gangs=1, lending=-1, sharing=-1)
        elif error < EARLY_MILLI and self._is_idle():
            wanted = self._moved(gangs=0, lending=0, sharing=1)
        elif CALM_MILLI[0] <= error <= CALM_MILLI[1]:
            wanted = self._moved(gangs=-1, lending=1, sharing=-1)
        else:
            return None
        return None if wanted == self.settings else wanted

    def set(self, settings: Settings) -> None:
        """They are in effect; the next step waits for as many tasks again."""
        self.settings = settings
        self._since = 0

    def _is_idle(self) -> bool:
        return len(self._utilizations) == UTILISATIONS and max(self._utilizations) < IDLE_MILLI

    def _moved(self, *, gangs: int, lending: int, sharing: int) -> Settings:
        """A step in each direction (1 up, -1 down, 0 none), within bounds."""
        now, bounds = self.settings, self._bounds
        most_gangs, least_lent = round(bounds.gang_share_most * 1000), round(bounds.overcommit_least * 1000)
        sharers = {1: now.sharers * 2, 0: now.sharers, -1: now.sharers // 2}[sharing]
        return Settings(
            gang_share_milli=_within(now.gang_share_milli + gangs * GANG_STEP_MILLI, 0, most_gangs),
            overcommit_milli=_within(now.overcommit_milli + lending * OVERCOMMIT_STEP_MILLI, least_lent, 1000),
            sharers=_within(sharers, bounds.sharers, bounds.sharers_most),
        )

    # -- snapshot

    def save(self) -> SavedFeedback:
        return SavedFeedback(tuple(self._window), tuple(self._utilizations), self._since, self.settings)

    def load(self, saved: SavedFeedback) -> None:
        self._window.extend(saved.window)
        self._utilizations.extend(saved.utilizations)
        self._sum_milli = sum(one.error_milli for one in self._window)
        self._since, self.settings = saved.since, saved.settings


def _within(value: int, least: int, most: int) -> int:
    return max(least, min(most, value))
