"""The judge: what must hold whatever breaks, written from the promises (the reliability page's I1 to I4, I6 to I9, I11, I12), not from
the code. I5 (gangs) and I10 (counters) are not judged here; the core's own check of its tables runs at every start and in the end.

It sees what is outside of hetsched: what clients were told, which frames the server stored, which processes live on which machine, which
events the daemon let out. Nothing of the scheduler's inside is believed but its answers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hetsched.store.frame import Frame
from tests.simulation.kernel import Run, Truth

TERMINAL = ("succeeded", "failed", "cancelled", "expired", "skipped")
RANK = {"held": 0, "queued": 0, "backoff": 0, "placed": 1, "running": 2, "stopping": 3, **dict.fromkeys(TERMINAL, 9)}


class Violation(AssertionError):
    """`law`: which promise is broken."""

    def __init__(self, law: str, sentence: str) -> None:
        super().__init__(f"{law}: {sentence}")
        self.law = law


class Auditor:
    """Asked at every event of the outside; raises Violation."""

    def __init__(self) -> None:
        self.truth = Truth(self.begun)
        self.acknowledged: dict[str, str] = {}  # id → body
        self.refused: set[str] = set()
        self.ended: dict[str, tuple[str, int]] = {}  # id → (end, attempt), from events
        self.seen: dict[str, tuple[int, int]] = {}  # id → highest (attempt, rank) a reader was told
        self._epoch = 0
        self._seq = 0

    # ------------------------------------------------------------------ what the machines show

    def begun(self, run: Run, now_s: float) -> None:
        """A task's process begins."""
        for other in self.truth.runs.values():
            if other.key.task == run.key.task and not other.machine.stands_still(now_s):
                raise Violation("I3", f"{run} begins while {other} lives")
        used: dict[str, int] = defaultdict(int)
        for other in [*self.truth.runs.values(), run]:
            if other.machine is run.machine:
                for device, share in other.devices:
                    used[device] += share
        over = {device: share for device, share in used.items() if share > 1000}
        if over:
            holders = [other for other in self.truth.runs.values() if other.machine is run.machine and other is not run]
            raise Violation("I4", f"{run} begins and {over} of {run.machine.name} are given away; there live {holders}")
        if run.key in self.truth.ever:
            raise Violation("I3", f"{run} begins a second time")

    # ------------------------------------------------------------------ what the server shows

    def appended(self, frame: Frame) -> None:
        epoch, seq = frame.position[:2]
        if epoch < self._epoch:
            raise Violation("I9", f"epoch {epoch} appends after {self._epoch}")
        if seq != self._seq + 1:
            raise Violation("I9", f"frame {seq} after frame {self._seq}")
        self._epoch, self._seq = epoch, seq

    def rewound(self, seq: int) -> None:
        """A power cut took what was not synced."""
        self._seq = seq

    # ------------------------------------------------------------------ what clients are told

    def told_accepted(self, task: str, body: str) -> None:
        before = self.acknowledged.setdefault(task, body)
        if before != body:
            raise Violation("I8", f"{task} was accepted with two bodies")

    def told_state(self, task: str, state: str, attempt: int) -> None:
        """A reader's answer."""
        told = (attempt, RANK[state]) if state not in TERMINAL else (1 << 30, 9)
        before = self.seen.get(task, (0, 0))
        if told[0] < before[0] or (before[1] == 9 and told != before):
            raise Violation("I7", f"{task} was told at {before} and is now told as {state}, attempt {attempt}")
        self.seen[task] = max(before, told)
        if task in self.ended and state not in TERMINAL:
            raise Violation("I7", f"{task} had ended as {self.ended[task]} and is now told as {state}")

    def told_unknown(self, task: str) -> None:
        if task in self.acknowledged:
            raise Violation("I1", f"{task} was acknowledged and is not known any more")

    # ------------------------------------------------------------------ what events say

    def event(self, event: Any) -> None:
        task = event.task
        if event.event in TERMINAL:
            if task in self.ended:
                raise Violation("I2", f"{task} ended as {self.ended[task][0]} and again as {event.event}")
            self.ended[task] = (event.event, event.attempt or 0)
            if event.event == "succeeded" and any(
                run.key.task == task and run.key.attempt == event.attempt and run.alive
                for run in self.truth.runs.values()
            ):
                raise Violation("I6", f"{task} is said to have succeeded while it lives")

    # ------------------------------------------------------------------ in the end

    def at_rest(self, states: dict[str, tuple[str, int]]) -> None:
        """Long after the last fault: `states` of all tasks that the daemon knows."""
        for task in self.acknowledged:
            if task not in states:
                raise Violation("I1", f"{task} was acknowledged and is not known any more")
            state, _ = states[task]
            if state not in TERMINAL:
                raise Violation("I12", f"{task} is still {state}")
        for task, (state, _attempt) in states.items():
            if task in self.ended and self.ended[task][0] != state:
                raise Violation("I6", f"{task} ended as {self.ended[task][0]} and is now {state}")
        if self.truth.runs:
            raise Violation("I2", f"everything has ended and {list(self.truth.runs.values())} live")
