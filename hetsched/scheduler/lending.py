"""What is lent, in words and numbers: to a task that waits though its queue is guaranteed what it asks for, and to one that has what others
are guaranteed, or hold and do not use.

The core decides (`_core/reclaim.pxi`, `_core/overcommit.pxi`); here it is only told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hetsched import _core
from hetsched._core import TaskRow
from hetsched.model import Task
from hetsched.scheduler.books import Books
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.lifecycle import LIVE_MASK
from hetsched.scheduler.limits import amount_text
from hetsched.scheduler.reasons import Beside, Waiting
from hetsched.scheduler.rendering import amounts_json
from hetsched.scheduler.uses import is_lending

LOOKED_AT = 100
"""Tasks of each borrower that are looked at: whether they may be stopped."""

Found = tuple[str, str, dict[str, Any]]


def promise(books: Books, queue: str) -> str | None:
    """The innermost queue of the line that is guaranteed something."""
    return next((name for name in books.queues.line(queue) if books.queues.spec[name].guaranteed), None)


def beyond(books: Books, queue: str, resources: set[str]) -> dict[str, int]:
    """What it uses of these beyond its guarantee."""
    spec, used = books.queues.spec[queue], books.core.queue_used(books.queues.slot[queue])
    over = {name: used[books.queues.resource(name)] - spec.guaranteed.get(name, 0) for name in sorted(resources)}
    return {name: amount for name, amount in over.items() if amount > 0}


# ---------------------------------------------------------------------- it waits


def owed(books: Books, task: int, row: TaskRow, body: Task) -> Iterator[Found]:
    """Its queue is guaranteed what it asks for, and others have it: who, how much beyond their own, and who of them may not be stopped."""
    mine = promise(books, body.queue)
    if mine is None or row.flags & _core.CLAIMING or not books.core.is_owed(task):
        return
    guaranteed = {name: amount for name, amount in books.queues.spec[mine].guaranteed.items() if name in _asked(body)}
    used = books.core.queue_used(books.queues.slot[mine])
    has = {name: used[books.queues.resource(name)] for name in guaranteed}
    borrowers = list(_borrowers(books, mine, set(guaranteed), row.qos))
    if not borrowers:
        return
    fixed = sum(one["fixed"] for one in borrowers)
    numbers = {"queue": mine, "guaranteed": amounts_json(guaranteed), "used": amounts_json(has), "borrowers": borrowers}
    sentence = (
        f"queue {mine} is guaranteed {_text(guaranteed)} and uses {_text(has)}; what it lacks is lent to "
        f"{', '.join(one['queue'] for one in borrowers)}"
    )
    sentence += f", of whose tasks {fixed} may not be stopped for it" if fixed else ""
    yield Waiting.GUARANTEE_LENT, sentence, numbers


def _borrowers(books: Books, mine: str, asked: set[str], preemptor_qos: int) -> Iterator[dict[str, Any]]:
    """Queues that use more of these than they are guaranteed, as far as they speak for themselves."""
    for name, slot in books.queues.slot.items():
        if mine in books.queues.line(name) or promise(books, name) not in (None, name):
            continue
        over = beyond(books, name, asked)
        tasks = books.core.page(0, LOOKED_AT, LIVE_MASK, slot) if over else []
        if tasks:
            fixed = sum(not _may_be_stopped(books, task, preemptor_qos) for task in tasks)
            yield {"queue": name, "beyond": amounts_json(over), "fixed": fixed}


def _may_be_stopped(books: Books, slot: int, preemptor_qos: int) -> bool:
    """Critical ones never, more urgent ones not for this one."""
    row = books.core.task(slot)
    return bool(row.flags & _core.PREEMPTIBLE) and row.qos >= max(1, preemptor_qos)


# ---------------------------------------------------------------------- it lives


def borrowed(books: Books, body: Task) -> Iterator[Found]:
    """It holds what its queue is not guaranteed: others that are may take it back."""
    mine = promise(books, body.queue) or body.queue
    over = beyond(books, mine, _asked(body))
    owners = [
        name
        for name, spec in books.queues.spec.items()
        if set(spec.guaranteed) & set(over)
        and mine not in books.queues.line(name)
        and name not in books.queues.line(mine)
    ]
    if over and owners:
        sentence = f"queue {mine} holds {_text(over)} more than it is guaranteed; {', '.join(owners)} may take it back"
        yield Beside.BORROWED, sentence, {"queue": mine, "beyond": amounts_json(over), "owners": owners}


def lent(books: Books, node: Node, body: Task) -> Iterator[Found]:
    """It has the guarantee best_effort on a node that lends out what others hold and do not use."""
    if body.guarantee != "best_effort" or not is_lending(books.config):
        return
    cpu, memory = books.core.lent(node.slot)
    if cpu[3] or memory[3]:
        amounts = {name: amount for name, amount in (("cpu", cpu[3]), ("memory", memory[3])) if amount}
        sentence = f"{node.name} has lent {_text(amounts)} that others hold and do not use; they may take it back"
        yield Beside.LENT, sentence, {"node": node.name, "lent": amounts_json(amounts)}


# ---------------------------------------------------------------------- amounts


def _asked(body: Task) -> set[str]:
    asks = {"cpu": body.resources.cpu_milli, "memory": body.resources.memory_bytes}
    return {name for name, amount in asks.items() if amount} | {ask.kind for ask in body.resources.devices}


def _text(amounts: dict[str, int]) -> str:
    return ", ".join(f"{amount_text(name, amount)} {name}" for name, amount in amounts.items())
