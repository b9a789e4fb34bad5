"""What clients and operators ask of tasks and queues, other than submitting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hetsched import _core
from hetsched._core import NONE
from hetsched.errors import Conflict, HetschedError, Problem
from hetsched.model import Qos, State
from hetsched.scheduler import outcomes, words
from hetsched.scheduler.cells.clerk import Clerk
from hetsched.scheduler.lifecycle import CODE_OF_STATE, EVERY_MASK, STATE_OF_CODE, TERMINAL_MASK, states_mask
from hetsched.scheduler.messages import Cancel, Finish, ImportProfiles, Operate, SetQueue
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.room import check_queue
from hetsched.scheduler.view import View
from hetsched.scheduler.world import World


class Clients:
    """Handlers of Cancel, Finish, Operate, SetQueue, ImportProfiles."""

    def __init__(self, world: World, view: View, clerk: Clerk) -> None:
        self.world = world
        self.view = view
        self._clerk = clerk

    # -- cancel

    def on_cancel(self, asked: Cancel) -> None:
        unknown = [ident for ident in asked.ids if self._find(ident) == NONE]
        found = [self._find(ident) for ident in asked.ids if self._find(ident) != NONE]
        selects = any((asked.queue, asked.label, asked.qos, asked.state))
        if selects:
            found += self._selected(asked)
        alone = len(asked.ids) == 1 and not selects
        elsewhere = self._clerk.cancel(
            (ident for ident in unknown if self._is_ours_to_cancel(ident, alone)), asked.actor
        )
        unknown = [ident for ident in unknown if ident not in elsewhere]
        done: dict[str, list[str]] = {"cancelled": elsewhere, "already_ended": [], "unknown": unknown}
        for task in dict.fromkeys(found):
            name = self.world.books.id_of(task)
            done["cancelled" if outcomes.cancel(self.world, task) else "already_ended"].append(name)
        self.world.audit(asked, "cancel", ",".join(done["cancelled"]))
        self.world.reply(asked, self._one_cancelled(asked.ids[0], done) if alone else done)

    def _is_ours_to_cancel(self, ident: str, alone: bool) -> bool:
        """One that is on its way; of many also those that were taken. Who asks for one alone is sent there, where it is known how it stands."""
        away = self.world.books.crossings.away.get(ident)
        return away is not None and (away.number > 0 or not alone)

    def _one_cancelled(self, ident: str, done: dict[str, list[str]]) -> Any:
        if done["unknown"]:
            return self.world.unknown(ident)
        if done["already_ended"]:
            return Conflict(f"task {ident} has ended already ({self._state(self._find(ident))})")
        return done

    def _selected(self, asked: Cancel) -> Iterable[int]:
        states = EVERY_MASK & ~TERMINAL_MASK
        if asked.state is not None:
            states &= states_mask((CODE_OF_STATE[State(asked.state)],))
        queue = NONE if asked.queue is None else self.world.books.queues.slot.get(asked.queue, -1)
        if queue == -1:
            return []
        qos = NONE if asked.qos is None else Qos(asked.qos).level
        tasks = self.world.core.page(0, 1 << 31, states, queue, qos)
        if asked.label is None:
            return tasks
        key, _, value = asked.label.partition("=")
        return [task for task in tasks if self.world.body(task).labels.get(key) == value]

    # -- finish

    def on_finish(self, asked: Finish) -> None:
        task = self._find(asked.task)
        fault = self._finish_fault(task, asked)
        if fault is not None:
            self.world.refuse(asked, fault)
            return
        node = self.world.books.attempts.live[task].node
        if asked.succeeded:
            outcomes.succeeded(self.world, task)
        else:
            outcomes.failed(self.world, task, asked.reason or "failed", None)
        self.world.release_attempt(node, asked.task, asked.attempt, Reason.FINISHED)
        self.world.audit(asked, "finish", asked.task)
        self.world.drain()
        self.world.reply(asked, self.view.task(asked.task))

    def _finish_fault(self, task: int, asked: Finish) -> HetschedError | None:
        if task == NONE:
            return self.world.unknown(asked.task)
        if self.world.body(task).command is not None:
            return Conflict(f"task {asked.task} has a command: its process says when it ends")
        row = self.world.core.task(task)
        if row.state not in (_core.PLACED, _core.RUNNING):
            return Conflict(f"task {asked.task} is {self._state(task)}: no attempt of it is running")
        if row.attempt != asked.attempt:
            return Conflict(f"attempt {asked.attempt} of {asked.task} is over, attempt {row.attempt} is current")
        return None

    # -- the operator's hand on a task

    def on_operate(self, asked: Operate) -> None:
        task = self._find(asked.task)
        if task == NONE:
            self.world.refuse(asked, self.world.unknown(asked.task))
            return
        fault = getattr(self, f"_{asked.verb}")(task, asked)
        if fault is not None:
            self.world.refuse(asked, Conflict(f"task {asked.task} is {self._state(task)}: {fault}"))
            return
        self.world.audit(asked, asked.verb, asked.task)
        self.world.drain()
        self.world.reply(asked, self.view.task(asked.task))

    def _hold(self, task: int, _: Operate) -> str | None:
        if self.world.core.task(task).state not in (_core.QUEUED, _core.BACKOFF, _core.HELD):
            return "only a waiting task can be held"
        self.world.core.hold(task, _core.HELD_OPERATOR)
        return None

    def _release(self, task: int, _: Operate) -> str | None:
        row = self.world.core.task(task)
        if row.state != _core.HELD or not row.flags & _core.HELD_OPERATOR:
            return "it is not held by an operator"
        self.world.core.release(task, _core.HELD_OPERATOR)
        return None

    def _requeue(self, task: int, _: Operate) -> str | None:
        state = self.world.core.task(task).state
        if state == _core.BACKOFF:
            self.world.core.ready(task)
        elif state in (_core.PLACED, _core.RUNNING):
            self.world.core.stop(task, Reason.OPERATOR)
        else:
            return "only a live task, or one that backs off, can be requeued"
        return None

    def _priority(self, task: int, asked: Operate) -> str | None:
        if self.world.core.task(task).state >= _core.SUCCEEDED:
            return "it has ended"
        self.world.core.set_priority(task, asked.priority)
        return None

    # -- queues

    def on_set_queue(self, asked: SetQueue) -> None:
        try:
            check_queue(self.world.books, asked.queue)
        except Problem as problem:
            self.world.refuse(asked, problem)
            return
        self.world.books.say(words.QueueKnown(asked.queue))
        self.world.capacity_changed = True
        self.world.audit(asked, "queue", asked.queue.name)
        self.world.reply(asked, self.view.queue(asked.queue.name))

    # -- learned profiles

    def on_import_profiles(self, asked: ImportProfiles) -> None:
        self.world.books.say(words.ProfilesImported(asked.profiles))
        self.world.audit(asked, "import-profiles", str(len(asked.profiles)))
        self.world.reply(asked, {"imported": len(asked.profiles)})

    # -- small questions

    def _find(self, ident: str) -> int:
        return self.world.core.find(ident.encode())

    def _state(self, task: int) -> str:
        return str(STATE_OF_CODE[self.world.core.task(task).state])
