"""The loop of a simulation: the daemon's own scheduler, on a clock that jumps from one thing that happens to the next.

Everything of one instant goes into one step, in the order of the file (ends that fall on the same instant first). What the nodes
say to the step's orders follows at the same instant, until nobody has anything more to say; then the clock moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Protocol

import msgspec

from hetsched._core import NONE
from hetsched.errors import Problem
from hetsched.model import Rejection, Submission, Task
from hetsched.scheduler import Scheduler
from hetsched.scheduler.measuring import is_measuring
from hetsched.scheduler.messages import (
    Cancel,
    CancelGraph,
    DeviceHealth,
    Event,
    Input,
    OperateNode,
    Reply,
    SetQueue,
    Submit,
    SubmitGraph,
    SubmitReply,
    Turn,
)
from hetsched.sim.agenda import Agenda
from hetsched.sim.machines import NS, Machines
from hetsched.sim.scenario import Drop, Happening, Scenario
from hetsched.sim.stopwatch import Stopwatch

MOST_ROUNDS = 10_000
"""Rounds within one instant; more is a scheduler that talks to itself, not a busy cluster."""

MOST_IDLE_WAKES = 1_000
"""Without `until`: the end, when nothing runs or is to come and the scheduler woke so often for nothing."""

KNOWS_MIX = ("fgd",)
"""Presets that are defined by a mix known beforehand: it is that of the file."""

DROPPED = "does not fit at its decision; dropped, as in the FGD protocol"


class Watcher(Protocol):
    """Who is told what a simulation does: the log, the summary, the placements file."""

    def submitted(self, task: Task, now_ns: int) -> None:
        """A task was accepted (before any event of it), or the same one again."""

    def happened(self, event: Event) -> None:
        """One event, in order; its time is from t = 0."""


class Engine:
    """One run. `stepping`: of the processor spent in the scheduler and the core; `deciding`: of that, on decisions alone."""

    def __init__(self, scenario: Scenario, watchers: tuple[Watcher, ...]) -> None:
        self.scenario = scenario
        self.scheduler = Scheduler(scenario.config, seed=scenario.seed)
        self.stepping = Stopwatch()
        self.deciding = self.scheduler.deciding = Stopwatch()
        self.now_ns = 0
        self._watchers = watchers
        self._tasks: dict[str, Task] = {}
        self._asked: dict[int, tuple[Submission, float | None]] = {}
        self._truths_s: dict[str, float] = {}
        self._tickets = 0
        self._agenda = Agenda()
        self.machines = Machines(
            scenario.nodes,
            self._agenda,
            round(scenario.config.agent.lease * NS),
            self._tasks.__getitem__,
            scenario.speeds,
            self._truths_s,
            measures=is_measuring(scenario.config),
        )
        self.machines.fetch_ns = self._fetch_ns
        self._verbs = self._table()
        self._to_drop: dict[str, None] = {}
        self._patient: dict[str, int] = {}  # those that wait by `policy.patience`, and until when; earliest first
        self._dropping: set[str] = set()

    def _table(self) -> dict[str, Callable[[Happening], list[Input]]]:
        machines = self.machines
        return {
            "submit": self._submit,
            "graph": lambda one: [SubmitGraph(graph=one.what)],
            "cancel": lambda one: [Cancel(**one.what)],
            "cancel_graph": lambda one: [CancelGraph(graph=name) for name in one.what],
            "fail": lambda one: machines.fail(one.what[0], one.what[1], self.now_ns),
            "node_up": lambda one: [said for name in one.what for said in machines.up(name)],
            "node_down": lambda one: [said for name in one.what for said in machines.down(name, self.now_ns)],
            "node_silent": self._silent,
            "device": self._device,
            "drain": self._operate,
            "cordon": self._operate,
            "uncordon": self._operate,
        }

    # -- the run

    def run(self) -> None:
        """From t = 0 to `until`, or until nothing is left to happen."""
        self._begin()
        happenings, index, idle = self.scenario.happenings, 0, 0
        while True:
            due_ns = self._next_ns(happenings[index].at_ns if index < len(happenings) else None)
            if due_ns is None or self._is_past(due_ns):
                break
            self.now_ns = due_ns
            heard = self._agenda.take(due_ns)
            while index < len(happenings) and happenings[index].at_ns == due_ns:
                heard += self._verbs[happenings[index].verb](happenings[index])
                index += 1
            events = self._instant(heard)
            idle = 0 if events or heard else idle + 1
            if (
                idle > MOST_IDLE_WAKES
                and index == len(happenings)
                and not self._agenda
                and self.scenario.until_ns is None
            ):
                break
        if self.scenario.until_ns is not None:
            self.now_ns = self.scenario.until_ns

    def _begin(self) -> None:
        """The cluster as it stands before anything happens."""
        queues: list[Input] = [SetQueue(queue=queue) for queue in self.scenario.queues]
        self._instant(queues + [said for node in self.scenario.nodes for said in self.machines.up(node.name)])
        if self.scenario.config.policy.preset in KNOWS_MIX:
            self.scheduler.know(self._tasks_to_come())

    def _tasks_to_come(self) -> Iterator[Task]:
        for one in self.scenario.happenings:
            if one.verb == "submit":
                submission = one.what.submission if isinstance(one.what, Drop) else one.what
                yield from (item for item in submission.items if not isinstance(item, Rejection))

    def _next_ns(self, next_in_file_ns: int | None) -> int | None:
        wake_ns = self.scheduler.wake_ns()
        if wake_ns is not None:
            wake_ns = max(self.now_ns, wake_ns - self.scenario.start_ns)
        dues = (next_in_file_ns, self._agenda.next_ns(), wake_ns, self._patience_ns())
        return min((ns for ns in dues if ns is not None), default=None)

    def _is_past(self, due_ns: int) -> bool:
        return self.scenario.until_ns is not None and due_ns > self.scenario.until_ns

    def _instant(self, heard: list[Input]) -> int:
        """Step until the instant is settled; returns the number of events."""
        events = 0
        for _ in range(MOST_ROUNDS):
            turn = self._step(heard)
            events += len(turn.events)
            heard = self._agenda.take(self.now_ns) + [
                said for order in turn.orders for said in self.machines.obey(order, self.now_ns)
            ]
            heard = heard or self._agenda.take(self.now_ns) or self._drop_waiting()
            if not heard:
                return events
        raise AssertionError(f"the instant {self.now_ns / NS:g} s does not come to rest")

    def _step(self, heard: list[Input]) -> Turn:
        with self.stepping:
            turn = self.scheduler.step(heard, self.scenario.start_ns + self.now_ns)
        for reply in turn.replies:
            self._answered(reply)
        for event in turn.events:
            self._tell(event)
        return turn

    def _tell(self, event: Event) -> None:
        if event.event == "queued" and event.task is not None and event.task not in self._tasks:
            self._meet(event.task)
        if event.event == "placed" and event.task is not None:
            self._to_drop.pop(event.task, None)
            self._patient.pop(event.task, None)
        if event.task in self._dropping and event.event == "cancelled":
            self._dropping.discard(event.task)
            problem = Problem(DROPPED, code="unsatisfiable").body()
            event = msgspec.structs.replace(event, event="rejected", data={"problem": problem, "dropped": True})
        event = msgspec.structs.replace(event, t_ns=self.now_ns)
        for watcher in self._watchers:
            watcher.happened(event)

    # -- tasks

    def _submit(self, one: Happening) -> list[Input]:
        self._tickets += 1
        submission = one.what.submission if isinstance(one.what, Drop) else one.what
        self._asked[self._tickets] = submission, one.runs_s
        if isinstance(one.what, Drop):
            self._to_drop.update((item.id, None) for item in submission.items if item.id is not None)
        return [Submit(ticket=self._tickets, submission=submission)]

    def _answered(self, reply: Reply) -> None:
        """Now the ids of accepted tasks are known; those without one in the file got theirs."""
        submission, runs_s = self._asked.pop(reply.ticket, (None, None))
        if submission is None or not isinstance(reply.value, SubmitReply):
            return
        for item, ident in zip(submission.items, reply.value.ids, strict=True):
            if ident is not None and not isinstance(item, Rejection):
                self._tasks[ident] = item
                if runs_s is not None:
                    self._truths_s.setdefault(ident, runs_s)
                for watcher in self._watchers:
                    watcher.submitted(msgspec.structs.replace(item, id=ident), self.now_ns)

    def _meet(self, ident: str) -> None:
        """A task that a graph was cut into."""
        core = self.scheduler.core
        self._tasks[ident] = msgspec.structs.replace(self.scheduler.world.body(core.find(ident.encode())), id=ident)
        for watcher in self._watchers:
            watcher.submitted(self._tasks[ident], self.now_ns)

    def _fetch_ns(self, ident: str, node: str) -> int:
        """How long a task that is a piece of a graph waits for data from other nodes before it works."""
        graphs = self.scheduler.books.graphs
        piece = graphs.of_task(self.scheduler.core.find(ident.encode()))
        return 0 if piece is None else round(graphs.fetch_s(*piece, node) * NS)

    def _drop_waiting(self) -> list[Input]:
        """What came in this instant and does not fit leaves again; who waits by choice does so once that is over and it was decided again."""
        core = self.scheduler.core
        for ident in tuple(self._to_drop):
            task = core.find(ident.encode())
            until_ns = None if task == NONE else core.waits_until(task)
            if until_ns is not None:
                self._patient[ident] = until_ns - self.scenario.start_ns
                del self._to_drop[ident]
        waiting = (*self._overdue(), *self._to_drop)
        self._to_drop.clear()
        self._dropping.update(waiting)
        return [Cancel(ids=waiting)] if waiting else []

    def _overdue(self) -> list[str]:
        """Of those who waited by choice."""
        if self.scheduler.window.opened_ns is not None:
            return []
        overdue = list(takewhile(lambda ident: self._patient[ident] <= self.now_ns, self._patient))
        for ident in overdue:
            del self._patient[ident]
        return overdue

    def _patience_ns(self) -> int | None:
        """When the first of them is to be looked at; where a window is open, its end comes first."""
        return next(iter(self._patient.values()), None) if self.scheduler.window.opened_ns is None else None

    # -- nodes

    def _silent(self, one: Happening) -> list[Input]:
        names, for_ns = one.what
        return [said for name in names for said in self.machines.silent(name, for_ns, self.now_ns)]

    def _device(self, one: Happening) -> list[Input]:
        node, device, health, reason = one.what
        return [DeviceHealth(node=node, device=device, health=health, reason=reason)]

    def _operate(self, one: Happening) -> list[Input]:
        return [OperateNode(verb=one.verb, node=name) for name in one.what]
