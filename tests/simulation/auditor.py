"""The judge: what must hold whatever breaks, written from the promises (the reliability page's I1 to I12), not from the code.
`ledger.py` counts along for I5 and I10; `run.py` compares the replay (I11) and waits for the end (I12).

It sees what is outside of hetsched: what clients were told, which frames the server stored, which processes live on which machine, which
events the daemon let out. Nothing of the scheduler's inside is believed but its answers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hetsched.agent.attempts import Key
from hetsched.store.frame import Frame
from tests.simulation.kernel import Run, Truth
from tests.simulation.laws import RANK, TERMINAL, Violation
from tests.simulation.ledger import OVER, Ledger
from tests.simulation.pace import Pace

ANSWER_S = 6.0
"""A client waits for no answer as long."""
QUARTZ = 1.05
"""No clock is wrong by as much."""


class Auditor:
    """Asked at every event of the outside; raises Violation. `lease_s`: of leaders."""

    def __init__(self, pace: Pace, lease_s: float) -> None:
        self._stale_s = lease_s * QUARTZ + ANSWER_S
        self.truth = Truth(self.begun)
        self.ledger = Ledger(pace)
        self.acknowledged: dict[str, str] = {}  # id → body
        self._acknowledged_by: dict[str, tuple[int, float]] = {}  # id → (epoch, when), the first time
        self.refused: dict[str, str] = {}  # id → why
        self.keys: dict[str, tuple[str | None, ...]] = {}
        self.ended: dict[str, tuple[str, int]] = {}  # id → (end, attempt), from events
        self.seen: dict[tuple[str, str], tuple[int, int, str]] = {}  # (reader, id) → (attempt, rank, end) told last
        self.over: set[tuple[str, int]] = set()  # attempts that events have said to be over
        self._epoch = 0
        self._seq = 0

    # ------------------------------------------------------------------ what the machines show

    def begun(self, run: Run, now_s: float) -> None:
        """A task's process begins."""
        for other in self.truth.runs.values():
            if other.key.task == run.key.task and other.counts(now_s):
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
        if run.key in self.over and not run.machine.stands_still(now_s):
            raise Violation("I3", f"{run} begins, and that attempt is over")
        self.ledger.begun(run.key.task)

    def look_around(self, now_s: float) -> None:
        """Now and then: whoever woke up beside his successor has had the time to end."""
        awake: dict[str, Run] = {}
        for run in self.truth.runs.values():
            if run.counts(now_s) and (other := awake.setdefault(run.key.task, run)) is not run:
                raise Violation("I3", f"{run} and {other} live")

    def gone(self, machine: str, for_s: float, rows: list[dict[str, Any]]) -> None:
        """A machine has been dark for so long, and a daemon was there all the time: nobody may be thought to live there.
        `rows`: live tasks."""
        for row in rows:
            if row["placement"] and row["placement"]["node"] == machine:
                raise Violation("I12", f"{row['id']} stays on {machine}, which has been gone for {for_s:.0f} s")

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

    def wished(self, ids: list[str], body: str) -> None:
        """Somebody is about to ask for this."""
        self.ledger.wished(ids, body)

    def told_accepted(self, task: str, body: str, epoch: int, now_s: float) -> None:
        """By the leader of that epoch."""
        self._acknowledged_by.setdefault(task, (epoch, now_s))
        before = self.acknowledged.setdefault(task, body)
        if before != body:
            raise Violation("I8", f"{task} was accepted with two bodies")

    def told_refused(self, task: str, why: str) -> None:
        """For good: it was never done and never will be."""
        if task in self.acknowledged:
            raise Violation("I8", f"{task} was accepted, and the same again is refused: {why}")
        self.refused[task] = why

    def told_key(self, key: str, ids: tuple[str | None, ...]) -> None:
        before = self.keys.setdefault(key, ids)
        if before != ids:
            raise Violation("I8", f"key {key} gave {before} and gives {ids}")

    def told_state(self, reader: str, task: str, state: str, attempt: int) -> None:
        """A reader's answer; another may still hear of an older moment. `attempt`: how many there were; who waits, waits for one more."""
        told = (1 << 30, RANK[state], state) if state in TERMINAL else (attempt + (RANK[state] == 0), RANK[state], "")
        before = self.seen.get((reader, task), told)
        if told < before or (before[2] and told != before):
            raise Violation("I7", f"{task} was told at {before} and is now told as {state}, attempt {attempt}")
        self.seen[reader, task] = told

    def told_unknown(self, reader: str, task: str, epoch: int, asked_s: float, now_s: float) -> None:
        """By the leader of that epoch, to somebody who asked then and has heard of no later one (or he would not listen). A leader that does
        not know yet that it was deposed may say so of what its successor acknowledged, for the rest of its lease; and anybody of what was
        acknowledged after the question, for answers may be late."""
        by, at_s = self._acknowledged_by.get(task, (epoch + 1, now_s))
        if at_s <= asked_s and epoch >= by:
            raise Violation("I1", f"{task} was acknowledged and is not known any more")
        if now_s - at_s > self._stale_s:
            raise Violation(
                "I1", f"{task} was acknowledged {now_s - at_s:.0f} s ago, and who was deposed then knows nothing of it"
            )
        if (reader, task) in self.seen:
            raise Violation("I7", f"{task} was shown and is not known any more")

    # ------------------------------------------------------------------ what events say

    def event(self, event: Any, *, leads: bool) -> None:
        """`leads`: of the daemon that read the journal last; another one tells late what that one knows already."""
        task = event.task
        if leads:
            self.ledger.event(event)
        if event.event in OVER and event.attempt:
            self.over.add((task, event.attempt))
            code = self.truth.own_ends.get(Key(task, event.attempt))
            if code is not None and event.data.get("reason") == "lost_attempt":
                raise Violation(
                    "I6",
                    f"attempt {event.attempt} of {task} ended with {code}, which is on disk, and is told to be lost",
                )
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

    def nobody_holds(self, held: list[tuple[str, Any]]) -> None:
        """What agents take to be alive when all has ended."""
        if held:
            raise Violation("I2", f"everything has ended, and agents hold {held}")

    def at_rest(self, states: dict[str, str]) -> None:
        """Long after the last fault: `states` of all tasks that the daemon knows."""
        for task in self.refused.keys() & states.keys():
            raise Violation("I8", f"{task} is {states[task]} though its client was refused: {self.refused[task]}")
        for task in self.acknowledged:
            if task not in states:
                raise Violation("I1", f"{task} was acknowledged and is not known any more")
            state = states[task]
            if state not in TERMINAL:
                raise Violation("I12", f"{task} is still {state}")
        for (_, task), (_, _, end) in self.seen.items():
            if end not in ("", states.get(task)):
                raise Violation("I7", f"{task} was told as {end} and is now {states.get(task)}")
        for task, state in states.items():
            if task in self.ended and self.ended[task][0] != state:
                raise Violation("I6", f"{task} ended as {self.ended[task][0]} and is now {state}")
        if self.truth.runs:
            raise Violation("I2", f"everything has ended and {list(self.truth.runs.values())} live")
