"""What the handlers of one turn share: the books, the timers, and the three lists of outputs.

Handlers return nothing and send nothing: they call doors, set timers and append outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hetsched import wire
from hetsched._core import NEVER_NS, NONE, Core, Run
from hetsched.errors import Elsewhere, HetschedError, NotFound
from hetsched.model import Task
from hetsched.scheduler import words
from hetsched.scheduler.books import Books
from hetsched.scheduler.cells.letters import Letter
from hetsched.scheduler.dependencies import Dependencies
from hetsched.scheduler.membership import membership_env
from hetsched.scheduler.messages import Event, EventRun, FactRun, Input, Order, QueuedRun, Reply
from hetsched.scheduler.ranking import Ranking
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.timers import Timers


class World:
    """One per scheduler; `events`, `orders`, `replies` and `letters` are emptied every turn. `sessions`: node → session of its link."""

    def __init__(self, books: Books, seed: int, epoch: int, ranking: Ranking | None = None) -> None:
        self.books = books
        self.ranking = ranking or Ranking(books)
        self.core: Core = books.core
        self.config = books.config
        self.seed = seed
        self.epoch = epoch
        self.now_ns = 0
        self.timers = Timers()
        self.dependencies = Dependencies()
        self.sessions: dict[str, int] = {}
        self.events: list[Event | EventRun] = []
        self.orders: list[Order] = []
        self.replies: list[Reply] = []
        self.letters: list[Letter] = []
        self.capacity_changed = False
        self.arrived = 0
        self._likes: dict[int, tuple[bytes, wire.Start]] = {}
        self.bad_turns: dict[str, dict[int, int]] = {}  # node → task that could not start there → when, in ns
        self.drain: Callable[[], None] = lambda: None  # lets the facts written so far have their consequences

    # -- outputs

    def emit(self, event: str, task: int | None = None, attempt: int | None = None, **data: Any) -> None:
        """Append an event about a task (by slot) or about the cluster."""
        name = None if task is None else self.books.id_of(task)
        self.emit_named(event, name, attempt, **data)

    def emit_named(self, event: str, task_id: str | None, attempt: int | None = None, **data: Any) -> None:
        """The same for a task that is not in the table (a refused one)."""
        seq = self.books.event_seq
        self.books.event_seq = seq + 1
        self.events.append(Event(seq=seq, t_ns=self.now_ns, event=event, task=task_id, attempt=attempt, data=data))

    def emit_queued(self, ids: bytes, count: int, base: bytes | None = None) -> None:
        """`queued` of each of these (joined by newlines; or an array's, by its base); they wait for the window."""
        seq = self.books.event_seq
        self.books.event_seq = seq + count
        self.events.append(QueuedRun(seq, self.now_ns, ids, count, base))
        self.arrived += count

    def emit_run(self, run: Run) -> None:
        """One event a fact, made when somebody looks at it."""
        seq = self.books.event_seq
        self.books.event_seq = seq + len(run)
        about = {
            slot: (body.kind, str(body.qos)) for slot in run.templates() for body in (self.books.templates.task(slot),)
        }
        self.events.append(FactRun(seq, self.now_ns, run, self.books.cluster.faces, self.books.lanes, about))

    def reply(self, asked: Input, value: Any) -> None:
        """Answer the ticket, if somebody waits."""
        if asked.ticket:
            self.replies.append(Reply(asked.ticket, value))

    def refuse(self, asked: Input, problem: HetschedError) -> None:
        """Answer with a problem."""
        self.reply(asked, problem)

    def order(self, node: str, message: wire.FromDaemon) -> None:
        """Send a message to the node's agent once the turn is durable."""
        self.orders.append(Order(node, message))

    def audit(self, asked: Input, action: str, subject: str) -> None:
        """Write down who changed what."""
        if asked.actor:
            self.books.say(words.Audited(self.now_ns, asked.actor, action, subject))

    # -- orders to agents about attempts

    def order_start(self, task: int) -> None:
        """Begin the live attempt of the task."""
        attempt = self.books.attempts.live[task]
        body, task_id = self.body(task), self.books.id_of(task)
        start = msgspec.structs.replace(
            self._start(body),
            session=self.session(attempt.node),
            task=task_id,
            attempt=attempt.number,
            devices=attempt.devices,
            env={**body.env, **membership_env(task_id, body)},
        )
        self.order(attempt.node, start)

    def order_starts(self, run: Run) -> None:
        """Begin all that the run says was placed: one order a node."""
        faces = self.books.cluster.faces
        for slot, templates, which, *ids, attempts, devices in run.starts():
            node, names = faces[slot]
            likes = tuple(map(self._like, templates))
            starts = wire.Starts(self.session(node), self.epoch, names, likes, which, wire.Ids(*ids), attempts, devices)
            self.order(node, starts)

    def _like(self, slot: int) -> wire.Start:
        """What the starts of this template have in common."""
        template = self.books.templates.by_slot[slot]
        known = self._likes.get(slot)
        if known is None or known[0] is not template.body:
            known = self._likes[slot] = template.body, self._start(template.task)
        return known[1]

    def _start(self, body: Task) -> wire.Start:
        ceiling = body.ceiling
        return wire.Start(
            session=0,
            epoch=self.epoch,
            task="",
            attempt=0,
            devices=(),
            cpu_milli=body.resources.cpu_milli,
            memory_bytes=body.resources.memory_bytes,
            command=body.command,
            env=body.env,
            workdir=body.workdir,
            user=body.user,
            duration_s=body.duration,
            time_limit_s=body.time_limit,
            grace_s=body.grace,
            name=body.name or "",
            cpu_limit_milli=ceiling.cpu_milli,
            memory_limit_bytes=ceiling.memory_bytes,
        )

    def order_stop(self, task: int) -> None:
        """End the live attempt of the task, for the reason in the books."""
        attempt = self.books.attempts.live[task]
        reason = self.books.attempts.stopping[task]
        self.stop_attempt(attempt.node, self.books.id_of(task), attempt.number, self.body(task).grace, reason)

    def release_attempt(self, node: str, task_id: str, attempt: int, reason: Reason) -> None:
        """End an attempt that counts for nothing (any more)."""
        self.stop_attempt(node, task_id, attempt, 0.0, reason)

    def stop_attempt(self, node: str, task_id: str, attempt: int, grace_s: float, reason: Reason) -> None:
        """Tell the agent to end an attempt."""
        self.order(
            node,
            wire.Stop(
                session=self.session(node),
                epoch=self.epoch,
                task=task_id,
                attempt=attempt,
                grace_s=grace_s,
                reason=reason.word,
            ),
        )

    def settled(self, node: str, task_id: str, attempt: int) -> None:
        """Tell the agent that the attempt's end is durable (it is, when orders leave)."""
        self.order(node, wire.Settled(session=self.session(node), task=task_id, attempt=attempt))

    # -- small questions

    def unknown(self, ident: str) -> NotFound | Elsewhere:
        """That there is no such task, or where it is; who names a whole array is told how its tasks are called."""
        away = self.books.crossings.away.get(ident)
        if away is not None:
            return Elsewhere(f"task {ident} is in cell {away.cell}", cell=away.cell)
        is_array = self.core.find(f"{ident}-0".encode()) != NONE
        return NotFound(
            f"no task {ident}" + (f": that is an array, its tasks are {ident}-0 and so on" if is_array else "")
        )

    def body(self, task: int) -> Task:
        """The task's body (without id, deadline and priority)."""
        return self.books.body(task)

    def expires_within(self, task: int, seconds: float) -> bool:
        """Its deadline ends the task before so many seconds are over, if it still waits."""
        deadline_ns = self.core.task(task).deadline_ns
        if deadline_ns == NEVER_NS or self.body(task).on_deadline != "expire":
            return False
        return deadline_ns <= self.now_ns + round(seconds * 1e9)

    def session(self, node: str) -> int:
        """Session of the node's link, 0 when it never joined this daemon."""
        return self.sessions.get(node, 0)
