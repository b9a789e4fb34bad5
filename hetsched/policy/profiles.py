"""What was learned of run times: per (task type, device model, size class) the last ones, their quantiles, and how wrong they were.

Learned online from attempts that succeeded, in the order of the journal, in integers: a replay learns the same. Each prediction is judged
before its outcome is learned, beside the submitter's `estimate`; a profile replaces the estimate only where it has proven better.
Bounded: `RUNS_KEPT` run times a profile, `limit` profiles, the one longest without news goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

import msgspec

from hetsched import _core
from hetsched.model import Resources, Task
from hetsched.policy.classify import task_type
from hetsched.policy.speeds import Shown

RUNS_KEPT = 64
FEWEST_RUNS = 3
"""Below, a median says little."""

FEWEST_JUDGED = 5
"""Predictions that must have been judged before a profile may replace an estimate."""

ERROR_STEP = 8
"""The error is a moving mean: each new one counts for an eighth."""

MOST_ERROR_MILLI = 100_000
UNKNOWN_MILLI = -1
MOST_EXPECTED_S = 1e8

Key = tuple[str, str, str]
Class = tuple[str, str]
"""Type and size: what different models are compared within."""


class Profile(msgspec.Struct, array_like=True):
    """`runs`: run times learned so far; `times_ms`: the last of them, oldest first. Errors are moving means of |actual - predicted| /
    actual in thousandths, -1 = never judged: of the median here, and of the submitters' estimates."""

    task_type: str
    model: str
    size: str
    runs: int = 0
    times_ms: list[int] = []
    judged: int = 0
    error_milli: int = UNKNOWN_MILLI
    estimates: int = 0
    estimate_error_milli: int = UNKNOWN_MILLI

    @property
    def key(self) -> Key:
        """By what it is found."""
        return self.task_type, self.model, self.size

    @property
    def of_class(self) -> Class:
        """Type and size."""
        return self.task_type, self.size

    def quantile_ms(self, part_milli: int) -> int:
        """The smallest kept run time that so many thousandths of them do not exceed. There is at least one."""
        return sorted(self.times_ms)[max(0, -(-part_milli * len(self.times_ms) // 1000) - 1)]

    @property
    def is_known(self) -> bool:
        """Enough runs to speak of quantiles."""
        return len(self.times_ms) >= FEWEST_RUNS

    @property
    def beats_estimates(self) -> bool:
        """Whether the median has been nearer to the truth than the submitters were."""
        return self.judged >= FEWEST_JUDGED and (self.estimates == 0 or self.error_milli < self.estimate_error_milli)

    def learn(self, shown: Together, estimate_ms: int | None) -> None:
        """Judge what would have been said, then learn. Runs that ended together are judged together, by their median."""
        if self.is_known:
            self.judged += 1
            self.error_milli = _moved(self.error_milli, self.quantile_ms(500), shown.median_ms)
            if estimate_ms is not None:
                self.estimates += 1
                self.estimate_error_milli = _moved(self.estimate_error_milli, estimate_ms, shown.median_ms)
        self.runs += shown.count
        self.times_ms += shown.last_ms
        del self.times_ms[:-RUNS_KEPT]


class Together(msgspec.Struct, frozen=True):
    """Run times of attempts alike that succeeded in one turn: how many, the lower median, the last RUNS_KEPT in order. At least 1 ms each."""

    count: int
    median_ms: int
    last_ms: list[int]

    @classmethod
    def of(cls, runs_ms: Sequence[int]) -> Together:
        """Of these, at least one."""
        times_ms = [max(1, run_ms) for run_ms in runs_ms]
        return cls(len(times_ms), sorted(times_ms)[(len(times_ms) - 1) // 2], times_ms[-RUNS_KEPT:])


class Prediction(msgspec.Struct, frozen=True):
    """Seconds. `source`: learned, or estimate (then both quantiles are the submitter's guess)."""

    p50_s: float
    p90_s: float
    source: str


class Trust(IntEnum):
    """How far what a submitter says of a run time counts for more than what was learned of the like."""

    NOTHING = _core.TRUST_NOTHING
    ESTIMATE = _core.TRUST_ESTIMATE
    WORD = _core.TRUST_WORD


def said_of(task: Task) -> tuple[float, Trust]:
    """Seconds, 0 = nothing: an estimate, the duration of a lease, a time limit."""
    said_s = next((seconds for seconds in (task.estimate, task.duration, task.time_limit) if seconds), 0.0)
    trust = Trust.ESTIMATE if task.estimate is not None else Trust.NOTHING if task.duration is None else Trust.WORD
    return min(said_s, MOST_EXPECTED_S), trust


class Expectation(msgspec.Struct, frozen=True):
    """What is expected of a type and size. Seconds that nine runs in ten do not exceed, and half of them, 0 = nobody knows; mean speed over the
    device models that ran some, of the fastest (-1 = fewer than two did); whether it may replace estimates."""

    expected_s: float = 0.0
    typical_s: float = 0.0
    efficiency_milli: int = UNKNOWN_MILLI
    beats_estimates: bool = False


class Profiles:
    """All profiles, least recently learned first. `changed`: (type, size) that learned something since somebody emptied it. `learned`: run
    times behind all of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.by_key: dict[Key, Profile] = {}
        self.changed: set[Class] = set()
        self.learned = 0
        self._by_class: dict[Class, dict[str, Profile]] = {}
        self._expectations: dict[Class, Expectation] = {}

    def learn(self, task: Task, model: str, shown: Together) -> None:
        """Attempts of such a task succeeded on devices of this model ("" = on cores) after so long, in one turn."""
        of_type, size = class_of(task)
        key = (of_type, model, size)
        profile = self.by_key.get(key) or Profile(*key, times_ms=[])
        self._drop(key)
        profile.learn(shown, None if task.estimate is None else max(1, round(task.estimate * 1000)))
        self.put(profile)

    def put(self, profile: Profile) -> None:
        """It is the newest, and the one of its key."""
        self._drop(profile.key)
        self.by_key[profile.key] = profile
        self.learned += profile.runs
        self._by_class.setdefault(profile.of_class, {})[profile.model] = profile
        self.changed.add(profile.of_class)
        self._expectations.pop(profile.of_class, None)
        while len(self.by_key) > self.limit:
            self._drop(next(iter(self.by_key)))

    def _drop(self, key: Key) -> None:
        old = self.by_key.pop(key, None)
        if old is None:
            return
        self.learned -= old.runs
        self._expectations.pop(old.of_class, None)
        models = self._by_class[old.of_class]
        del models[old.model]
        if not models:
            del self._by_class[old.of_class]

    # -- questions

    def predict(self, task: Task, model: str | None = None) -> Prediction | None:
        """How long an attempt will run; `model` None: wherever it will be, so the slowest of the known models. None: nobody knows."""
        models = self._by_class.get(class_of(task), {})
        known = [p for p in models.values() if p.is_known and model in (None, p.model)]
        if known and (task.estimate is None or all(profile.beats_estimates for profile in known)):
            return Prediction(
                max(p.quantile_ms(500) for p in known) / 1000, max(p.quantile_ms(900) for p in known) / 1000, "learned"
            )
        return None if task.estimate is None else Prediction(task.estimate, task.estimate, "estimate")

    def expected_s(self, task: Task) -> tuple[float, float]:
        """Run times in seconds that reservations count with, 0 = nobody knows: what was learned (nine in ten end by the first, half by the
        second, on whatever model) where that beats the submitter's estimate, the estimate, the duration of a lease, the time limit."""
        said_s, trust = said_of(task)
        known = self.expectation(class_of(task))
        if known.expected_s and (trust is Trust.NOTHING or (trust is Trust.ESTIMATE and known.beats_estimates)):
            return known.expected_s, known.typical_s
        return said_s, said_s

    def expectation(self, of_class: Class) -> Expectation:
        """Of the kept runs on all models together."""
        if of_class not in self._expectations:
            self._expectations[of_class] = self._expect(of_class)
        return self._expectations[of_class]

    def _expect(self, of_class: Class) -> Expectation:
        models = self._by_class.get(of_class, {}).values()
        efficiency_milli = _efficiency_milli([shown.median_ms for shown in self.shown(*of_class).values()])
        known = [profile for profile in models if profile.is_known]
        if not known:
            return Expectation(efficiency_milli=efficiency_milli)
        times_s = [
            min(ms / 1000, MOST_EXPECTED_S) for ms in sorted(ms for profile in models for ms in profile.times_ms)
        ]
        last = len(times_s) - 1
        beats = all(profile.beats_estimates for profile in known)
        return Expectation(times_s[last * 9 // 10], times_s[last // 2], efficiency_milli, beats)

    def shown(self, key_type: str, size: str) -> dict[str, Shown]:
        """What each model has shown for a type and size, from the first run on."""
        models = self._by_class.get((key_type, size), {})
        return {model: Shown(len(p.times_ms), p.quantile_ms(500)) for model, p in models.items() if p.times_ms}

    def classes(self) -> Iterable[tuple[Class, Mapping[str, Profile]]]:
        """By type and size, the profiles of each model."""
        return self._by_class.items()

    def of(self, key_type: str | None = None) -> Iterator[Profile]:
        """All, or those of a type."""
        return (profile for profile in self.by_key.values() if key_type in (None, profile.task_type))

    def error(self) -> dict[str, float]:
        """Mean error of the judged medians by task type, a ratio."""
        sums: dict[str, list[int]] = {}
        for profile in self.by_key.values():
            if profile.error_milli >= 0:
                sums.setdefault(profile.task_type, []).append(profile.error_milli)
        return {name: sum(errors) / len(errors) / 1000 for name, errors in sums.items()}

    # -- snapshot

    def save(self) -> list[Profile]:
        return list(self.by_key.values())

    def load(self, saved: list[Profile]) -> None:
        for profile in saved:
            self.put(profile)
        self.changed.clear()


def _efficiency_milli(medians_ms: Sequence[int]) -> int:
    if len(medians_ms) < 2:
        return UNKNOWN_MILLI
    return sum(1000 * min(medians_ms) // median_ms for median_ms in medians_ms) // len(medians_ms)


def class_of(task: Task) -> Class:
    """Type and size of a task."""
    return task_type(task), size_class(task.resources)


def size_class(resources: Resources) -> str:
    """The size in powers of two: of devices ("part", "1", "2", "4" …) or, without any, of cores ("cpu1", "cpu2" …)."""
    milli = sum(ask.total_milli for ask in resources.devices)
    if milli == 0:
        return f"cpu{_power(resources.cpu_milli)}"
    return "part" if milli < 1000 else str(_power(milli))


def is_size_class(text: str) -> bool:
    """Whether some task could be of this size."""
    digits = text.removeprefix("cpu")
    units = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= 16 else 0
    return text == "part" or (units.bit_count() == 1 and digits == str(units))


def _power(milli: int) -> int:
    """The least power of two of whole units that holds it."""
    return 1 << max(0, (-(-milli // 1000) - 1).bit_length())


def _moved(error_milli: int, predicted_ms: int, actual_ms: int) -> int:
    error = min(MOST_ERROR_MILLI, abs(actual_ms - predicted_ms) * 1000 // max(1, actual_ms))
    return error if error_milli == UNKNOWN_MILLI else error_milli + (error - error_milli) // ERROR_STEP
