"""The summary of a run (CONTRACT, section 5 and 7 "Summary"), gathered from the same events that the log gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hetsched.model import TERMINAL, NodeSpec, State, Task
from hetsched.scheduler.messages import Event
from hetsched.sim.ledger import Ledger
from hetsched.sim.weighted import Weighted, rounded, spread

ENDS = (State.succeeded, State.failed, State.cancelled, State.expired, State.skipped)
OVER = {*TERMINAL, "requeued", "backoff"}
STATE_AFTER = {"requeued": "queued", "preempted": "stopping", "stopping": "stopping"}
SAMPLES = 2_000
"""Fragmentation is asked about so many times a run: at every change at first, then at every second, fourth … one."""

assert set(ENDS) == TERMINAL

AskFragmentation = Callable[[str], float]


class Summary:
    """`fragmentation(kind)`: of the kind's free capacity, the part that the recent mix of shapes cannot use, 0 to 1."""

    def __init__(self, nodes: tuple[NodeSpec, ...]) -> None:
        self.ledger = Ledger(nodes)
        self.counts: Counter[str] = Counter()
        self._fragmentation: AskFragmentation = lambda _: 0.0
        self._tasks: dict[str, Task] = {}
        self._submitted_ns: dict[str, int] = {}
        self._running: set[str] = set()
        self._state: dict[str, str] = {}
        self._waits: list[float] = []
        self._completions: list[float] = []
        self._last_end_ns: int | None = None
        self._fragments = {kind: Weighted() for kind in self.ledger.kinds}
        self._dropped = 0
        self._changes = 0
        self._stride = 1
        self._at_ns = 0

    def watch(self, fragmentation: AskFragmentation) -> None:
        """Where to ask for fragmentation."""
        self._fragmentation = fragmentation

    # -- what happens

    def submitted(self, task: Task, now_ns: int) -> None:
        assert task.id is not None
        if task.id not in self._submitted_ns:
            self._submitted_ns[task.id] = now_ns
            self._tasks[task.id] = task

    def happened(self, event: Event) -> None:
        self.counts[event.event] += 1
        if event.task is None:
            self._cluster(event)
            return
        task, now_ns = event.task, event.t_ns
        if event.event == "placed":
            self.ledger.placed(self._tasks[task], event.data["node"], event.data["devices"], now_ns)
            self._sample(now_ns)
        elif event.event == "running":
            self.ledger.started(task, now_ns)
            if task not in self._running:
                self._running.add(task)
                self._waits.append((now_ns - self._submitted_ns[task]) / 1e9)
        elif event.event in OVER:
            self.ledger.ended(task, now_ns)
            self._sample(now_ns)
        self._note_state(event, task)

    def _cluster(self, event: Event) -> None:
        if event.event in ("node_up", "node_joined"):
            self.ledger.node_up(event.data["node"], event.t_ns)
        elif event.event == "node_down":
            self.ledger.node_down(event.data["node"], event.t_ns)

    def _note_state(self, event: Event, task: str) -> None:
        name = STATE_AFTER.get(event.event, event.event)
        if event.event == "queued" and event.data.get("held"):
            name = "held"
        if event.event == "rejected":
            if event.data.get("dropped"):  # else it was refused at once, and if the id is taken, its first task goes on
                self._dropped += 1
                del self._state[task], self._submitted_ns[task]
        elif name in State.__members__:
            self._state[task] = name
        if name in TERMINAL:
            self._last_end_ns = event.t_ns
            self._completions.append((event.t_ns - self._submitted_ns[task]) / 1e9)

    def _sample(self, now_ns: int) -> None:
        self._changes += 1
        if self._changes % self._stride == 0:
            for kind, weighted in self._fragments.items():
                weighted.set(self._fragmentation(kind), now_ns)
        if self._changes == self._stride * SAMPLES:
            self._stride *= 2

    # -- what is told

    def told(
        self, now_ns: int, first_submission_ns: int, events_sha256: str, deciding_s: float, stepping_s: float
    ) -> dict[str, Any]:
        """The object that `--json` prints. Seconds, ratios from 0 to 1, joules. `deciding_s`, `stepping_s`: of the processor, on
        decisions alone, and in the scheduler as a whole."""
        finals = Counter(self._state.values())
        ledger = self.ledger
        out: dict[str, Any] = {"submitted": len(self._submitted_ns), "rejected": self.counts["rejected"]}
        out.update({str(state): finals[state] for state in ENDS})
        out.update({state: count for state, count in sorted(finals.items()) if state not in TERMINAL})
        out["preemptions"] = self.counts["preempted"]
        out["makespan"] = (
            None if self._last_end_ns is None else rounded((self._last_end_ns - first_submission_ns) / 1e9)
        )
        out["wait"], out["completion"] = spread(self._waits), spread(self._completions)
        out["allocated"] = {kind: ledger.allocated(kind, now_ns) for kind in ledger.kinds}
        out["fragmentation"] = {kind: self._fragment(kind, now_ns) for kind in ledger.kinds}
        out["utilization"] = ledger.utilization(now_ns)
        out["energy_joules"] = ledger.energy_joules(now_ns)
        out["events_sha256"] = events_sha256
        out["decisions"] = self.counts["placed"] + self._dropped
        out["decisions_per_second"] = _rate(out["decisions"], deciding_s)
        out["decisions_per_second_whole"] = _rate(out["decisions"], stepping_s)
        return out

    def _fragment(self, kind: str, now_ns: int) -> dict[str, float]:
        weighted = self._fragments[kind]
        weighted.set(self._fragmentation(kind), now_ns)
        return {"mean": rounded(weighted.mean(now_ns)), "last": rounded(weighted.value)}


def _rate(count: int, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds > 0 else None
