"""How many seconds a unit of an operator's work takes on each device model: learned from its pieces, else what the submitter said, else the
cost model's figures (policy/speeds.py).

Learned per (type of task, model) from pieces that succeeded, in the order of the journal: a replay learns the same. Pieces of any size count,
because it is time per work that is learned. Unlike placing single tasks, a graph does not try a model out of curiosity: its next pieces do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from hetsched.model import DeviceSpec
from hetsched.policy.speeds import expected

NO_DEVICE = "cpu"
CPU_SPEED = 0.05
"""Of work that devices can do, on cores, until something better is known: an accelerator that only does what twenty times eight cores do is
not bought."""

SAID_RUNS, GUESSED_RUNS = 2.0, 0.5
"""Runs that the submitter's and the cost model's opinion are worth."""

RUNS_KEPT = 9
MOST_RATES = 4096


class Rate(msgspec.Struct, array_like=True):
    """`seconds`: per unit of work, of the last pieces, oldest first."""

    task_type: str
    model: str
    runs: int
    seconds: list[float]


class Rates:
    """Least recently learned first; bounded."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], Rate] = {}
        self.version = 0  # moves with every piece; derived

    def learn(self, task_type: str, model: str, seconds_per_work: float) -> None:
        """A piece of work on this model took so long per unit."""
        rate = self._by_key.pop((task_type, model), None) or Rate(task_type, model, 0, [])
        kept = [*rate.seconds, seconds_per_work][-RUNS_KEPT:]
        self._by_key[task_type, model] = Rate(task_type, model, rate.runs + 1, kept)
        self.version += 1
        while len(self._by_key) > MOST_RATES:
            del self._by_key[next(iter(self._by_key))]

    def seconds_per_work(
        self,
        task_type: str,
        devices: Iterable[DeviceSpec],
        said: Mapping[str, float],
        *,
        is_tensor: bool,
        on_cores: bool,
    ) -> dict[str, float]:
        """By model of the devices ("" where they name none), and of cores ("cpu") where it may run on those too."""
        guess = expected(devices, is_tensor=is_tensor)
        if on_cores:
            guess[NO_DEVICE] = CPU_SPEED if guess else 1.0
        opinions = {model: self._opinion(task_type, model, said) for model in guess}
        known = {model: log for model, (log, _) in opinions.items() if log is not None}
        unit = sum(log + math.log(guess[model]) for model, log in known.items()) / len(known) if known else 0.0
        out = {}
        for model, (log, weight) in opinions.items():
            guessed = unit - math.log(guess[model])
            if log is None:
                log = guessed
            elif model not in said:
                log = (weight * log + GUESSED_RUNS * guessed) / (weight + GUESSED_RUNS)
            out[model] = math.exp(log)
        return out

    def is_learned(self, task_type: str, model: str) -> bool:
        """Whether a piece on this model has ended."""
        return (task_type, model) in self._by_key

    def _opinion(self, task_type: str, model: str, said: Mapping[str, float]) -> tuple[float | None, float]:
        """Logarithm of what was learned and said, and its weight; None: nobody knows."""
        rate = self._by_key.get((task_type, model))
        seen = math.log(sorted(rate.seconds)[len(rate.seconds) // 2]) if rate else 0.0
        runs = float(min(rate.runs, RUNS_KEPT)) if rate else 0.0
        if model in said:
            return (runs * seen - SAID_RUNS * math.log(said[model])) / (runs + SAID_RUNS), runs + SAID_RUNS
        return (seen, runs) if rate else (None, 0.0)

    # -- snapshot

    def save(self) -> list[Rate]:
        return list(self._by_key.values())

    def load(self, saved: list[Rate]) -> None:
        self._by_key = {(rate.task_type, rate.model): rate for rate in saved}
