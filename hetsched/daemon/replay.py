"""Time travel: the state at any moment that the journal still reaches, and the decision taken then.

From the nearest snapshot before it, frame by frame, nothing is decided; a decision is looked at in the very state in which it was taken,
between two records of its frame. Explanations come from the engine that gives them live (`scheduler/rehearse/retell.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hetsched import _core
from hetsched._core import NONE
from hetsched.config import Config
from hetsched.daemon.history import Base, History, open_history
from hetsched.errors import NotFound
from hetsched.scheduler import Scheduler, telling
from hetsched.scheduler.rehearse import retell
from hetsched.scheduler.rendering import iso
from hetsched.scheduler.snapshot import stepwise
from hetsched.store.archive import Archive, Entry

DECISIONS = (_core.F_PLACED, _core.F_CLAIMED)
CHOICES = 5


class Moment(NamedTuple):
    """Up to which frame: one of the two. `at_ns`: all turns until then; `frame`: this one and all before it; neither: all."""

    at_ns: int | None = None
    frame: tuple[int, int] | None = None

    def is_over(self, entry: Entry) -> bool:
        """Whether the frame comes after it."""
        if self.frame is not None:
            epoch, _, seq = entry.id.partition("-")
            return (int(epoch), int(seq)) > self.frame
        if self.at_ns is None or entry.payload is None:
            return False
        turn_ns = telling.at_ns(entry.payload)
        return turn_ns is not None and turn_ns > self.at_ns


class Decided(NamedTuple):
    """`state`: in which it was taken."""

    told: dict[str, Any]
    state: bytes
    at_ns: int


class Traveller:
    """Goes from a base to the moment, and watches one task on the way."""

    def __init__(self, scheduler: Scheduler, base: Base, task: str | None) -> None:
        self.scheduler = scheduler
        self.frame = base.at.id
        self.fault = ""
        self.timeline: list[dict[str, Any]] = []
        self.decided: Decided | None = None
        self.turn: tuple[str, bytes] | None = None
        self._key = None if task is None else task.encode()

    def take(self, entry: Entry) -> bool:
        """One frame more; False: it is damaged, and this is as far as it goes."""
        if entry.payload is None or entry.fault is not None:
            self.fault = (
                f"journal {entry.id}, byte {entry.fault.offset}: {entry.fault.reason}" if entry.fault else entry.id
            )
            return False
        was_there = self._slot() != NONE
        for fact in stepwise(self.scheduler.books, entry.payload):
            if self._concerns(fact):
                self._note(entry, fact)
        if not was_there and self._slot() != NONE:
            self.timeline.insert(0, {"frame": entry.id, "at": iso(self.scheduler.books.now_ns), "fact": "submitted"})
        self.frame = entry.id
        self.turn = entry.id, entry.payload
        return True

    def _slot(self) -> int:
        return NONE if self._key is None else self.scheduler.core.find(self._key)

    def _concerns(self, fact: tuple[Any, ...]) -> bool:
        return fact[0] not in (_core.F_TURN, _core.F_WORDS) and fact[1] == self._slot() != NONE

    def _note(self, entry: Entry, fact: tuple[Any, ...]) -> None:
        books = self.scheduler.books
        told = {"frame": entry.id, "at": iso(books.now_ns), **telling.tell_one(books, fact)}
        self.timeline.append(told)
        if fact[0] in DECISIONS:
            self.decided = Decided(told, self.scheduler.snapshot(), books.now_ns)


async def replay(archive: Archive, config: Config, moment: Moment, task: str | None) -> dict[str, Any]:
    """What was at that moment; with a task, why it waited or was where it was, its story, and its last decision then. Raises NotFound."""
    history = await open_history(archive, config)
    base, scheduler = _begin(history, moment, task)
    traveller = Traveller(scheduler, base, task)
    async for entry in history.entries(base):
        if moment.is_over(entry) or not traveller.take(entry):
            break
    if moment.frame is not None and not traveller.fault and traveller.frame != "{}-{}".format(*moment.frame):
        raise NotFound("there is no frame {}-{}; the one before it is ".format(*moment.frame) + traveller.frame)
    now_ns = max(scheduler.books.now_ns, moment.at_ns or 0)
    told: dict[str, Any] = {
        "at": iso(now_ns),
        "frame": traveller.frame,
        "frame_at": iso(scheduler.books.now_ns),
        "read_from": base.at.id,
        "digest": f"{scheduler.digest():08x}",
        "fault": traveller.fault or None,
        **_cluster(scheduler, now_ns),
    }
    if task is None:
        return {**told, "turn": list(_turn(history, traveller))}
    return {**told, "task": _task(history, traveller, task, now_ns)}


def _begin(history: History, moment: Moment, task: str | None) -> tuple[Base, Scheduler]:
    """The newest base that is not after the moment; for a task's whole story the oldest."""
    bases = history.bases if task is not None else list(reversed(history.bases))
    for base in bases:
        scheduler = history.scheduler(base)
        too_late = scheduler.books.now_ns > moment.at_ns if moment.at_ns is not None else False
        if moment.frame is not None:
            too_late = base.at.seq > moment.frame[1]
        if not too_late:
            return base, scheduler
    oldest = history.scheduler(history.bases[0]).books.now_ns
    raise NotFound(
        f"the journal reaches back to {history.bases[0].at.id} ({iso(oldest)}); what was before that was trimmed away"
    )


def _cluster(scheduler: Scheduler, now_ns: int) -> dict[str, Any]:
    view = retell.at_rest(scheduler, now_ns).view
    found = view.cluster()
    return {
        "tasks": {state: count for state, count in found["tasks"].items() if count},
        "used": found["used"],
        "capacity": found["capacity"],
        "pending": {reason: count for reason, count in view.pending_by_reason().items() if count},
    }


def _turn(history: History, traveller: Traveller) -> Iterator[dict[str, Any]]:
    """The facts of the last turn, with the names that things have at its end."""
    if traveller.turn is not None:
        books = traveller.scheduler.books
        for fact in telling.facts(traveller.turn[1]):
            yield {"frame": traveller.turn[0], **telling.tell_one(books, fact)}


def _task(history: History, traveller: Traveller, task: str, now_ns: int) -> dict[str, Any]:
    told: dict[str, Any] = {"timeline": traveller.timeline, "decision": None, "explain": None}
    if traveller.scheduler.core.find(task.encode()) != NONE:
        told["explain"] = retell.explain_at(traveller.scheduler, task, now_ns)
    elif not traveller.timeline:
        raise NotFound(f"there was no task {task} in what the journal tells up to that moment")
    decided = traveller.decided
    if decided is not None:
        then = history.scheduler(Base(history.bases[0].at, decided.state))
        told["decision"] = {
            **decided.told,
            "before": retell.explain_at(then, task, decided.at_ns),
            "nodes": retell.judge_nodes(then, task),
            "choices": retell.choices(then, task, decided.at_ns, CHOICES),
        }
    return told
