"""What could be done about a waiting task: everything that is worth trying, with the inputs that doing it would be.

A candidate promises nothing; `trial.py` tries it. The cost orders them: what is free first, what takes most from the submitter or from
others last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hetsched.model import Qos, Task
from hetsched.scheduler import messages
from hetsched.scheduler.limits import amount_text
from hetsched.scheduler.reasons import Waiting
from hetsched.scheduler.rehearse.calls import set_limits
from hetsched.scheduler.rehearse.changes import LESS, Ask, changes, difference
from hetsched.scheduler.rehearse.subject import Subject, instead, submit
from hetsched.scheduler.scheduler import Scheduler

HIGHEST_PRIORITY = 1000
MOST_CLOSED = 64
SECOND_NS = 1_000_000_000
MARGIN_S = 1
"""A run time that is offered ends so long before the room is needed: the window and the call take a moment."""

FREE, OPERATOR, OTHERS = 0.0, 0.35, 0.5
"""Costs of what is free, of what takes an operator, of what takes from others."""

AGAIN = "submit it again with these fields and cancel this one"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """`inputs`: doing it. `by`: submitter or operator. `change`: fields of the task that would be others. `how`: the way to do it.
    `later`: a start in the future counts as help."""

    code: str
    text: str
    cost: float
    by: str
    how: str
    inputs: tuple[messages.Input, ...]
    change: dict[str, Any] = {}
    later: bool = False


def candidates(scratch: Scheduler, subject: Subject, reasons: list[str], ask: Ask, ever: Ask) -> list[Candidate]:
    """Cheapest first. `scratch`: a copy that may be spoilt. `ask`, `ever`: see `changes.py`, for now and for an empty cluster."""
    found = [*_operators(scratch, subject, reasons)]
    if not {Waiting.HELD, Waiting.DEPENDENCY, Waiting.CLAIMING, Waiting.GANG_INCOMPLETE} & set(reasons):
        found += _others(scratch, subject, reasons)
        found += _less(scratch, subject, reasons, ask, ever)
    return sorted(found, key=lambda candidate: candidate.cost)


# ---------------------------------------------------------------------- an operator's hand


def _operators(scratch: Scheduler, subject: Subject, reasons: list[str]) -> Iterator[Candidate]:
    name = scratch.books.id_of(subject.slot)
    if Waiting.HELD in reasons:
        release = messages.Operate(verb="release", task=name)
        yield _operate("release", "release it", FREE, f"hetsched release {name}", release)
    if Waiting.BACKOFF in reasons:
        requeue = messages.Operate(verb="requeue", task=name)
        yield _operate("requeue", "do not wait for the pause to end", FREE, f"hetsched requeue {name}", requeue)
    if Waiting.GANG_INCOMPLETE in reasons and subject.gang is not None:
        yield _members(subject)
    if Waiting.QUEUE_LIMIT in reasons:
        yield from _limits(scratch, subject)
    yield from _uncordon(scratch, subject)


def _operate(code: str, text: str, cost: float, how: str, *inputs: messages.Input) -> Candidate:
    return Candidate(code=code, text=text, cost=cost, by="operator", how=how, inputs=inputs, later=cost == FREE)


def _members(subject: Subject) -> Candidate:
    assert subject.gang is not None
    missing = subject.needed - len(subject.members)
    return Candidate(
        code="members",
        text=f"submit the {missing} members that gang {subject.gang.name} lacks",
        cost=FREE,
        by="submitter",
        how="submit tasks of the same gang",
        inputs=(submit([subject.task] * missing),),
    )


def _limits(scratch: Scheduler, subject: Subject) -> Iterator[Candidate]:
    """Every limit in the way raised at once, by as much as it takes."""
    queues = scratch.books.queues
    found = scratch.view.limits(subject.task, subject.needed)
    inputs: list[messages.Input] = []
    said: list[str] = []
    commands: list[str] = []
    for name in queues.line(subject.task.queue):
        over = {f.resource: f.used + f.asked for f in found if f.queue == name}
        if over:
            spec = msgspec.structs.replace(queues.spec[name], limit={**queues.spec[name].limit, **over})
            inputs.append(messages.SetQueue(queue=spec))
            commands.append(set_limits(spec))
            said += [f"{name} to {resource} {amount_text(resource, most)}" for resource, most in over.items()]
    if inputs:
        text = f"raise the limit of queue {', of '.join(said)}"
        how = " && ".join(commands)
        yield Candidate(code="queue_limit", text=text, cost=OPERATOR, by="operator", how=how, inputs=tuple(inputs))


def _uncordon(scratch: Scheduler, subject: Subject) -> Iterator[Candidate]:
    """The first closed node that would take it; for a gang, all that an operator has closed."""
    shut = [n for n in scratch.books.cluster.by_name.values() if n.up and not n.silent and (n.cordoned or n.draining)]
    for node in shut[:MOST_CLOSED]:
        scratch.core.open_node(node.slot, True)
        fits = scratch.core.verdict(subject.row.shape)["fits"]
        scratch.core.open_node(node.slot, False)
        if fits:
            uncordon = messages.OperateNode(verb="uncordon", node=node.name)
            yield _operate(
                "uncordon", f"uncordon {node.name}", OPERATOR, f"hetsched node uncordon {node.name}", uncordon
            )
            return


# ---------------------------------------------------------------------- before others


def _others(scratch: Scheduler, subject: Subject, reasons: list[str]) -> Iterator[Candidate]:
    if Waiting.UNSATISFIABLE in reasons:
        return
    if subject.row.priority < HIGHEST_PRIORITY and scratch.core.ahead(subject.slot):
        ids = [scratch.books.id_of(member) for member in subject.members]
        inputs = [messages.Operate(verb="priority", task=one, priority=HIGHEST_PRIORITY) for one in ids]
        yield Candidate(
            code="priority",
            text=f"raise its priority to {HIGHEST_PRIORITY}",
            cost=OPERATOR,
            by="operator",
            how=" && ".join(f"hetsched priority {one} {HIGHEST_PRIORITY}" for one in ids),
            inputs=tuple(inputs),
        )
    if subject.together:
        for qos in (Qos.production, Qos.critical):
            if qos.level < subject.task.qos.level:
                urgent = msgspec.structs.replace(subject.task, qos=qos, preemptible=False)
                text = f"raise its qos to {qos.value}"
                yield as_candidate(
                    scratch, subject, "qos", text, OTHERS + (0.1 if qos is Qos.critical else 0.0), urgent
                )


# ---------------------------------------------------------------------- less


def _less(scratch: Scheduler, subject: Subject, reasons: list[str], ask: Ask, ever: Ask) -> Iterator[Candidate]:
    if not subject.together or Waiting.BACKOFF in reasons:
        return
    yield from _sooner_over(scratch, subject)
    nodes = [node.spec for node in scratch.books.cluster.by_name.values()]
    seen = set()
    for change in changes(subject.task, nodes, ask):
        seen.add(change.code)
        yield as_candidate(scratch, subject, change.code, change.text, change.cost, change.task)
    if Waiting.UNSATISFIABLE in reasons:
        for change in changes(subject.task, nodes, ever):
            if change.code not in seen:
                yield as_candidate(scratch, subject, change.code, change.text, change.cost, change.task, later=True)


def _sooner_over(scratch: Scheduler, subject: Subject) -> Iterator[Candidate]:
    """Room is reserved for the first of those that wait: whoever is over by then may use it."""
    reserved, task = scratch.core.reservation(), subject.task
    says_more = task.duration is not None or task.estimate is not None
    if reserved is None or reserved[0] in subject.members or says_more:
        return
    seconds = (reserved[1] - scratch.world.now_ns) // SECOND_NS - MARGIN_S
    if seconds >= 1 and (task.time_limit is None or task.time_limit > seconds):
        short = msgspec.structs.replace(task, time_limit=float(seconds))
        yield as_candidate(scratch, subject, "time_limit", f"limit its run time to {seconds} s", LESS, short)


def as_candidate(
    scratch: Scheduler, subject: Subject, code: str, text: str, cost: float, task: Task, *, later: bool = False
) -> Candidate:
    """To have `task` in the place of the subject."""
    return Candidate(
        code=code,
        text=text,
        cost=cost,
        by="submitter",
        how=AGAIN,
        inputs=instead(scratch, subject, task),
        change=difference(subject.task, task),
        later=later,
    )
