"""What clients and operators ask of tasks and queues, other than submitting and cancelling."""

from __future__ import annotations

from hetsched import _core
from hetsched._core import NONE
from hetsched.errors import Conflict, HetschedError, Problem
from hetsched.scheduler import outcomes, words
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.messages import Finish, ImportProfiles, Operate, SetQueue
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.room import check_queue
from hetsched.scheduler.view import View
from hetsched.scheduler.world import World


class Clients:
    """Handlers of Finish, Operate, SetQueue, ImportProfiles."""

    def __init__(self, world: World, view: View) -> None:
        self.world = world
        self.view = view

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
