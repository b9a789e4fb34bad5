"""The waiting task that is asked about, with what has to move with it: a gang is changed as a whole or not at all."""

from __future__ import annotations

import msgspec

from hetsched import _core
from hetsched.model import Rejection, Submission, Task
from hetsched.scheduler import messages
from hetsched.scheduler.gangs import Gang
from hetsched.scheduler.lifecycle import WAITING_CODES
from hetsched.scheduler.scheduler import Scheduler

TICKET = 1


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """`task`: as it would be submitted again, its priority and deadline as they are now. `members`: slots of all that wait with it, itself
    first. `needed`: how many of them have to be placed for it to have started. `together`: they may be replaced as one."""

    slot: int
    row: _core.TaskRow
    task: Task
    members: tuple[int, ...]
    needed: int
    together: bool
    gang: Gang | None


def subject_of(scheduler: Scheduler, slot: int) -> Subject:
    """Of a task that waits."""
    row, books = scheduler.core.task(slot), scheduler.books
    gang = books.gangs.of(row.gang)
    members: tuple[int, ...] = (slot,)
    needed, together = 1, True
    if gang is not None:
        rows = {member: scheduler.core.task(member) for member in sorted(gang.members)}
        waiting = [member for member, one in rows.items() if one.state in WAITING_CODES]
        members = (slot, *(member for member in waiting if member != slot))
        needed = max(1, gang.min_size - sum(_core.PLACED <= one.state <= _core.SUCCEEDED for one in rows.values()))
        alike = len({(one.template, one.priority, one.deadline_ns) for one in rows.values()}) == 1
        together = len(waiting) == len(rows) == gang.size and alike
    return Subject(
        slot=slot,
        row=row,
        task=_as_submitted(scheduler, slot, row),
        members=members,
        needed=needed,
        together=together,
        gang=gang,
    )


def _as_submitted(scheduler: Scheduler, slot: int, row: _core.TaskRow) -> Task:
    body = scheduler.world.body(slot)
    has_deadline = row.deadline_ns != _core.NEVER_NS
    return msgspec.structs.replace(
        body,
        priority=row.priority,
        deadline_ns=row.deadline_ns if has_deadline else None,
        deadline_absolute=has_deadline,
        after=body.after if row.flags & _core.HELD_DEPENDENCY else (),
    )


def submit(tasks: list[Task]) -> messages.Submit:
    """These tasks as one submission."""
    items: list[Task | Rejection] = list(tasks)
    return messages.Submit(ticket=TICKET, submission=Submission(single=False, items=items))


def instead(scheduler: Scheduler, subject: Subject, task: Task) -> tuple[messages.Input, ...]:
    """Submit `task`, of a gang as many as there were, then cancel the subject: in this order nobody slips in between the two calls."""
    ids = tuple(scheduler.books.id_of(member) for member in subject.members)
    if task.gang is not None:
        task = msgspec.structs.replace(task, gang=msgspec.structs.replace(task.gang, id=f"{task.gang.id[:120]}-2"))
    return submit([task] * len(subject.members)), messages.Cancel(ids=ids)
