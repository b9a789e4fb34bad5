"""Simulated nodes and what runs on them: the part of an agent and its processes that the scheduler can tell.

Orders go in (`obey`), inputs for the scheduler come out. Like an agent's, starts and stops are idempotent by (task, attempt), orders of
another session are ignored, and the end of an attempt is told again at the next connect until it is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from hetsched import wire
from hetsched.model import NodeSpec, Task, Usage
from hetsched.scheduler.messages import (
    AttemptEnded,
    AttemptReport,
    AttemptStarted,
    AttemptUse,
    Input,
    NodeJoined,
    NodeLost,
    NodeSilent,
    Order,
    UseReported,
)
from hetsched.sim.agenda import Agenda
from hetsched.sim.speeds import Speeds
from hetsched.sim.usage import really_used

NS = 1_000_000_000


class SimAttempt(msgspec.Struct, kw_only=True, eq=False):
    """`speed`: work done in a second, after `fetch_ns` of waiting for data. `done_before_ns`: work that earlier attempts had secured by
    checkpoints. `halted_ns`: when it was told to stop and worked no more, `halted_for`: why; the first reason stays."""

    node: str
    task: str
    number: int
    started_ns: int
    speed: float
    fetch_ns: int
    done_before_ns: int
    halted_ns: int | None = None
    halted_for: str = ""
    is_over: bool = False
    succeeded: bool = False
    reason: str = ""
    usage: Usage | None = None


class SimNode(msgspec.Struct, kw_only=True, eq=False):
    """`is_linked`: its agent and the daemon hear each other. `outages`: counts silences, so that an old lease's end is recognised."""

    spec: NodeSpec
    is_up: bool = False
    is_linked: bool = False
    session: int = 0
    boots: int = 0
    outages: int = 0
    attempts: dict[tuple[str, int], SimAttempt] = {}


class Machines:
    """All nodes. `task_of` gives the body that was submitted under an id, `speeds` how fast it truly runs where, `truths_s` how long it runs at
    speed 1 where the scheduler is not told. `measures`: what tasks use is told, when it changes."""

    def __init__(
        self,
        nodes: tuple[NodeSpec, ...],
        agenda: Agenda,
        lease_ns: int,
        task_of: Callable[[str], Task],
        speeds: Speeds,
        truths_s: Mapping[str, float],
        measures: bool = False,
    ) -> None:
        self.nodes = {spec.name: SimNode(spec=spec) for spec in nodes}
        self.live: dict[str, SimAttempt] = {}
        self._agenda = agenda
        self._lease_ns = lease_ns
        self._task_of = task_of
        self._speeds = speeds
        self.fetch_ns: Callable[[str, str], int] = lambda task, node: 0
        self._truths_s = truths_s
        self._secured_ns: dict[str, int] = {}
        self._measures = measures

    # -- what the file does to nodes

    def up(self, name: str) -> list[Input]:
        """Boot it, or mend its link. Nothing happens to one that is well."""
        node = self.nodes[name]
        if node.is_linked:
            return []
        if not node.is_up:
            node.boots += 1
        node.is_up = node.is_linked = True
        node.session += 1
        spec = msgspec.structs.replace(node.spec, boot_id=f"{name}/{node.boots}")
        reports = tuple(_report(attempt) for attempt in node.attempts.values())
        uses = [
            self._used(one, one.usage) for one in node.attempts.values() if one.usage is not None and not one.is_over
        ]
        return [NodeJoined(node=spec, session=node.session, attempts=reports), *uses]

    def down(self, name: str, now_ns: int) -> list[Input]:
        """It is lost at this instant, with all that runs there."""
        node = self.nodes[name]
        if not node.is_up:
            return []
        node.is_up = node.is_linked = False
        self._forget_all(node, now_ns)
        return [NodeLost(node=name)]

    def silent(self, name: str, for_ns: int | None, now_ns: int) -> list[Input]:
        """Its link is gone. Back after `for_ns` with all that ran, unless the lease is over first: then it is lost."""
        node = self.nodes[name]
        if not node.is_linked:
            return []
        node.is_linked = False
        node.outages += 1
        if for_ns is not None:
            self._agenda.enter(now_ns + for_ns, partial(self._back, node, node.outages))
        patience_ns = self._lease_ns + max((self._stop_ns(one) for one in node.attempts.values()), default=0)
        self._agenda.enter(now_ns + patience_ns, partial(self._lease_over, node, node.outages))
        return [NodeSilent(node=name)]

    def _back(self, node: SimNode, outage: int, _: int) -> list[Input]:
        return self.up(node.spec.name) if node.outages == outage and node.is_up else []

    def _lease_over(self, node: SimNode, outage: int, now_ns: int) -> list[Input]:
        """The agent has stopped everything by now; so the daemon may call it lost."""
        if node.is_linked or node.outages != outage or not node.is_up:
            return []
        self._forget_all(node, now_ns)
        return [NodeLost(node=node.spec.name)]

    def _forget_all(self, node: SimNode, now_ns: int) -> None:
        for attempt in list(node.attempts.values()):
            if not attempt.is_over:
                self._over(attempt, False, "node_lost", now_ns)
        node.attempts.clear()

    # -- orders

    def obey(self, order: Order, now_ns: int) -> list[Input]:
        """What the node makes of an order, told at once."""
        node = self.nodes[order.node]
        message = order.message
        if not node.is_linked or getattr(message, "session", node.session) != node.session:
            return []
        if isinstance(message, wire.Start):
            return self._start(node, message, now_ns)
        if isinstance(message, wire.Stop):
            return self._stop(node, message, now_ns)
        if isinstance(message, wire.Settled):
            node.attempts.pop((message.task, message.attempt), None)
        return []

    def _start(self, node: SimNode, order: wire.Start, now_ns: int) -> list[Input]:
        key = (order.task, order.attempt)
        if key in node.attempts:
            return []
        attempt = SimAttempt(
            node=node.spec.name,
            task=order.task,
            number=order.attempt,
            started_ns=now_ns,
            speed=self._speed(node.spec, order),
            fetch_ns=self.fetch_ns(order.task, node.spec.name),
            done_before_ns=self._secured_ns.get(order.task, 0),
        )
        node.attempts[key] = self.live[order.task] = attempt
        duration_s = self._truths_s.get(order.task, order.duration_s)
        if duration_s is not None:
            left_ns = max(0, round(duration_s * NS) - attempt.done_before_ns)
            self._agenda.enter(
                now_ns + attempt.fetch_ns + round(left_ns / attempt.speed), partial(self._finished, attempt)
            )
        if order.time_limit_s is not None:
            self._agenda.enter(now_ns + round(order.time_limit_s * NS), partial(self._over_limit, attempt))
        started = AttemptStarted(node=node.spec.name, task=order.task, attempt=order.attempt)
        return [started, *self._measure(attempt, now_ns)]

    def _measure(self, attempt: SimAttempt, now_ns: int) -> list[Input]:
        """What it uses from its start on; and later, when that changes. A task that does not say uses what it asked for."""
        task = self._task_of(attempt.task)
        if task.usage is None or not self._measures:
            return []
        for step in task.usage.later:
            at_ns = now_ns + round(step.at * NS)
            self._agenda.enter(at_ns, partial(self._use, attempt, step))
        return self._use(attempt, task.usage, now_ns)

    def _use(self, attempt: SimAttempt, usage: Usage, _: int) -> list[Input]:
        if attempt.is_over:
            return []
        attempt.usage = usage
        return [self._used(attempt, usage)] if self.nodes[attempt.node].is_linked else []

    def _used(self, attempt: SimAttempt, usage: Usage) -> Input:
        task = self._task_of(attempt.task)
        cpu_milli, memory_bytes, utilization_milli = really_used(task.resources, usage)
        use = AttemptUse(
            task=attempt.task,
            attempt=attempt.number,
            cpu_milli=cpu_milli,
            memory_bytes=memory_bytes,
            utilization_milli=utilization_milli,
        )
        return UseReported(node=attempt.node, uses=(use,))

    def _speed(self, node: NodeSpec, order: wire.Start) -> float:
        return self._speeds.factor(self._task_of(order.task).kind, node, tuple(ident for ident, _ in order.devices))

    def _stop(self, node: SimNode, order: wire.Stop, now_ns: int) -> list[Input]:
        attempt = node.attempts.get((order.task, order.attempt))
        if attempt is None:  # never begun here: that is its end
            return [
                AttemptEnded(
                    node=node.spec.name, task=order.task, attempt=order.attempt, succeeded=False, reason=order.reason
                )
            ]
        return self._halt(attempt, order.grace_s, order.reason, now_ns)

    # -- how attempts end

    def fail(self, task: str, reason: str, now_ns: int) -> list[Input]:
        """The running attempt fails; nothing happens where none runs."""
        attempt = self.live.get(task)
        return [] if attempt is None else self._over(attempt, False, attempt.halted_for or reason, now_ns)

    def _finished(self, attempt: SimAttempt, now_ns: int) -> list[Input]:
        return [] if attempt.is_over or attempt.halted_ns is not None else self._over(attempt, True, "", now_ns)

    def _over_limit(self, attempt: SimAttempt, now_ns: int) -> list[Input]:
        if attempt.is_over:
            return []
        return self._halt(attempt, self._task_of(attempt.task).grace, "time_limit", now_ns)

    def _halt(self, attempt: SimAttempt, grace_s: float, reason: str, now_ns: int) -> list[Input]:
        """It works no more, and is over at once or after its `stop_time`, at most `grace_s`."""
        if attempt.is_over or attempt.halted_ns is not None:
            return []
        attempt.halted_ns, attempt.halted_for = now_ns, reason
        stop_s = min(self._task_of(attempt.task).stop_time or 0.0, grace_s)
        if stop_s == 0:
            return self._over(attempt, False, reason, now_ns)
        self._agenda.enter(now_ns + round(stop_s * NS), partial(self._halted, attempt))
        return []

    def _halted(self, attempt: SimAttempt, now_ns: int) -> list[Input]:
        return [] if attempt.is_over else self._over(attempt, False, attempt.halted_for, now_ns)

    def _over(self, attempt: SimAttempt, succeeded: bool, reason: str, now_ns: int) -> list[Input]:
        """Note the end; the daemon hears of it now if the node is linked, else when it joins again."""
        attempt.is_over, attempt.succeeded, attempt.reason = True, succeeded, reason
        if self.live.get(attempt.task) is attempt:
            del self.live[attempt.task]
        self._secure(attempt, now_ns)
        if not self.nodes[attempt.node].is_linked:
            return []
        return [
            AttemptEnded(
                node=attempt.node, task=attempt.task, attempt=attempt.number, succeeded=succeeded, reason=reason
            )
        ]

    def _secure(self, attempt: SimAttempt, now_ns: int) -> None:
        """What the next attempt need not do again: all up to the last multiple of `checkpoint`."""
        task = self._task_of(attempt.task)
        if attempt.succeeded or task.checkpoint is None:
            return
        until_ns = now_ns if attempt.halted_ns is None else attempt.halted_ns
        worked_ns = attempt.done_before_ns + round(
            max(0, until_ns - attempt.started_ns - attempt.fetch_ns) * attempt.speed
        )
        every_ns = max(1, round(task.checkpoint * NS))
        self._secured_ns[attempt.task] = worked_ns // every_ns * every_ns

    def _stop_ns(self, attempt: SimAttempt) -> int:
        task = self._task_of(attempt.task)
        return round(min(task.stop_time or 0.0, task.grace) * NS)


def _report(attempt: SimAttempt) -> AttemptReport:
    return AttemptReport(
        task=attempt.task,
        attempt=attempt.number,
        state="ended" if attempt.is_over else "running",
        succeeded=attempt.succeeded,
        reason=attempt.reason,
    )
