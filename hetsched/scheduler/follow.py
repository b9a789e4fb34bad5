"""What follows from a packed fact: events for watchers, orders for agents, timers, and the next facts.

`Follow.fact` is called once for each fact of a live turn, after the books have recorded it, in order. A replay never comes here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched import _core
from hetsched._core import Run
from hetsched.scheduler import outcomes
from hetsched.scheduler.dependencies import MET
from hetsched.scheduler.gangs import Gang, awaited
from hetsched.scheduler.lifecycle import EVENT_OF_END
from hetsched.scheduler.reasons import EVICTIONS, Reason
from hetsched.scheduler.rendering import placement_json
from hetsched.scheduler.timers import Timer
from hetsched.scheduler.world import World

CLAIM_MARGIN_S = 60.0  # beyond the longest grace of its victims; then the claim is given up and claimed anew


class Follow:
    """One method a fact."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.books = world.books
        self._by_code: dict[int, Callable[..., None]] = {
            _core.F_PLACED: self._placed,
            _core.F_STARTED: self._started,
            _core.F_STOPPING: self._stopping,
            _core.F_ENDED: self._ended,
            _core.F_REQUEUED: self._requeued,
            _core.F_BACKED_OFF: self._backed_off,
            _core.F_READY: self._ready,
            _core.F_HELD: self._held,
            _core.F_CLAIMED: self._claimed,
            _core.F_UNCLAIMED: self._unclaimed,
            _core.F_PRIORITISED: self._prioritised,
        }

    def fact(self, fact: tuple[Any, ...]) -> None:
        """Let one fact have its consequences."""
        handler = self._by_code.get(fact[0])
        if handler is not None:
            handler(*fact[1:])

    def run(self, run: Run) -> None:
        """The same for facts of plain tasks, many at a time."""
        self.world.emit_run(run)
        if run.placed:
            self.world.order_starts(run)
        if run.succeeded:
            self.world.capacity_changed = True
            if self.world.dependencies:
                for task in memoryview(run.ended()).cast("I"):
                    self._tell_children(task, _core.SUCCEEDED)

    # -- an attempt begins

    def _placed(self, task: int, number: int, *_: Any) -> None:
        attempt = self.books.attempts.live[task]
        where = placement_json(attempt.node, attempt.devices)
        self.world.emit("placed", task, number, **where, lane=attempt.lane)
        self.world.timers.clear(Timer.DEADLINE, task)
        self.world.timers.clear(Timer.CLAIM, task)
        self.world.order_start(task)
        gang = self._gang_of(task)
        if gang is not None and not self.books.gangs.is_short(gang):
            self.world.timers.clear(Timer.REPAIR, gang.name)

    def _started(self, task: int, number: int) -> None:
        self.world.emit("running", task, number)
        outcomes.watch_run(self.world, task)

    # -- it is told to stop

    def _stopping(self, task: int, number: int, reason: int, by: int) -> None:
        why = Reason(reason)
        if why in EVICTIONS:
            extra = {} if why is Reason.PREEMPTED else {"reason": why.word}
            self.world.emit("preempted", task, number, by=self.books.id_of(by), **extra)
        else:
            self.world.emit("stopping", task, number, reason=why.word)
        self.world.timers.clear(Timer.TIME_LIMIT, task)
        self.world.order_stop(task)

    # -- it is over

    def _ended(self, task: int, number: int, state: int, reason: int) -> None:
        number = number if self._was_live(task, EVENT_OF_END[state]) else 0
        why = self._why(task, number, Reason(reason))
        self.world.emit(EVENT_OF_END[state], task, number or None, **({"reason": why} if why else {}))
        for timer in (Timer.DEADLINE, Timer.TIME_LIMIT, Timer.BACKOFF, Timer.CLAIM, Timer.DAMPED):
            self.world.timers.clear(timer, task)
        self.world.capacity_changed = True
        self.world.dependencies.child_ended(task)
        self._tell_children(task, state)
        gang = self._gang_of(task)
        if gang is not None:
            self._gang_member_ended(gang, state)

    def _was_live(self, task: int, end: str) -> bool:
        """Whether this end is that of an attempt, not that of a task which waited for its next one."""
        if end == "succeeded":
            return True
        past = self.books.attempts.past.get(task)
        return past is not None and past[-1].ended_ns == self.world.now_ns and past[-1].outcome == end

    def _why(self, task: int, number: int, reason: Reason) -> str:
        past = self.books.attempts.past.get(task)
        if reason is not Reason.NONE and number and past and past[-1].number == number:
            return past[-1].reason
        return "" if reason is Reason.NONE else reason.word

    def _tell_children(self, task: int, state: int) -> None:
        """A child that one and the same cancel (or the end of its gang) has ended too is let be: its own fact comes next."""
        for child, verdict in self.world.dependencies.parent_ended(task, state):
            if self.world.core.task(child).state != _core.HELD:
                continue
            if verdict == MET:
                self.world.core.release(child, _core.HELD_DEPENDENCY)
            else:
                self.world.core.ended(child, _core.SKIPPED, Reason.DEPENDENCY)

    def _requeued(self, task: int, number: int, reason: int) -> None:
        self.world.emit("requeued", task, number, reason=Reason(reason).word)
        self._attempt_gone(task)

    def _backed_off(self, task: int, number: int, reason: int) -> None:
        until_ns = self.books.backoff_until_ns[task]
        why = self._why(task, number, Reason(reason))
        self.world.emit("backoff", task, number, delay=(until_ns - self.world.now_ns) / 1e9, reason=why)
        self.world.timers.set(Timer.BACKOFF, task, until_ns)
        self._attempt_gone(task)

    def _attempt_gone(self, task: int) -> None:
        self.world.timers.clear(Timer.TIME_LIMIT, task)
        self.world.timers.clear(Timer.DAMPED, task)
        self.world.capacity_changed = True
        body = self.world.body(task)
        row = self.world.core.task(task)
        if body.on_deadline == "expire" and row.attempt and row.deadline_ns != _core.NEVER_NS:
            self.world.timers.set(Timer.DEADLINE, task, row.deadline_ns)
        gang = self._gang_of(task)
        if (
            gang is not None
            and self.books.gangs.is_short(gang)
            and self.world.timers.when(Timer.REPAIR, gang.name) is None
        ):
            self.world.timers.set(
                Timer.REPAIR, gang.name, self.world.now_ns + round(self.world.config.gang.repair * 1e9)
            )

    # -- it waits

    def _ready(self, task: int) -> None:
        self.world.timers.clear(Timer.BACKOFF, task)
        row = self.world.core.task(task)
        self.world.emit("queued", task, row.attempt + 1 if row.attempt else None)
        self.world.arrived += 1

    def _held(self, task: int, flags: int) -> None:
        self.world.timers.clear(Timer.BACKOFF, task)
        by = "operator" if flags & _core.HELD_OPERATOR else "dependency"
        self.world.emit("held", task, by=by)

    def _claimed(self, task: int, *_: Any) -> None:
        claim = self.books.attempts.claims[task]
        where = placement_json(claim.node, claim.devices)
        self.world.emit(
            "claimed", task, **where, victims=list(claim.victims), price=claim.price_device_seconds, proof=claim.proof
        )
        grace_s = max((self.world.body(victim).grace for victim in awaited(self.world.core, task)), default=0.0)
        self.world.timers.set(Timer.CLAIM, task, self.world.now_ns + round((grace_s + CLAIM_MARGIN_S) * 1e9))

    def _unclaimed(self, task: int) -> None:
        self.world.timers.clear(Timer.CLAIM, task)
        self.world.emit("unclaimed", task)
        self.world.arrived += 1

    def _prioritised(self, task: int, priority: int) -> None:
        self.world.emit("prioritised", task, priority=priority)
        self.world.arrived += 1

    # -- gangs

    def _gang_of(self, task: int) -> Gang | None:
        return self.books.gangs.of(self.world.core.task(task).gang)

    def _gang_member_ended(self, gang: Gang, state: int) -> None:
        """A member that failed for good cancels the gang; so does the loss of more members than it can spare."""
        if state == _core.SUCCEEDED:
            return
        if outcomes.is_beyond_repair(self.world, gang):
            for member in sorted(gang.members):
                outcomes.cancel_with_gang(self.world, member)
