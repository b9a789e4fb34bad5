"""Submissions: judged (judge.py), then one word fact for all that was accepted, then answered when the turn has decided.

A submission is judged item by item, accepted as a whole: what is refused harms no neighbour. Nothing is changed before
everything is judged.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched import _core
from hetsched._core import NEVER_NS, NONE
from hetsched.errors import Problem
from hetsched.model import Qos, Rejection, Submission
from hetsched.scheduler import outcomes, words
from hetsched.scheduler.judge import Judge, Judged
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.messages import Submit, SubmitReply
from hetsched.scheduler.rendering import placement_json
from hetsched.scheduler.timers import Timer
from hetsched.scheduler.world import World

if TYPE_CHECKING:
    from hetsched.scheduler.cells.clerk import Clerk


class Submissions:
    """Handler of Submit; answers at the end of the turn, when placements are known. `clerk`: whom it asks who goes elsewhere."""

    clerk: Clerk

    def __init__(self, world: World) -> None:
        self.world = world
        self.books = world.books
        self._judge = Judge(world)
        self.new_id = self._judge.new_id
        self._owed: list[tuple[Submit, list[Judged]]] = []

    # -- the handler

    def on_submit(self, asked: Submit) -> None:
        if asked.idempotency_key is not None and self._answered_before(asked):
            return
        self._owed.append((asked, self.take_in(asked)))

    def take_in(self, asked: Submit) -> list[Judged]:
        """Judge it and accept what may be."""
        judged = self.judge(asked.submission)
        self.settle(judged, asked)
        for item in judged:
            if item.problem is not None:
                self.world.emit_named("rejected", item.id, problem=item.problem.body())
        if asked.idempotency_key is not None:
            self._remember_key(asked, judged)
        self.world.audit(asked, "submit", _subject(judged))
        return judged

    def judge(self, submission: Submission) -> list[Judged]:
        """Each item; nothing is accepted yet."""
        return self._judge.submission(submission)

    def settle(self, judged: list[Judged], asked: Submit | None = None) -> None:
        """Accept what is new. `asked`: whose it is, where it may go to another cell instead."""
        new = [item for item in judged if item.is_new]
        self.accept(new if asked is None or not new else self.clerk.let_go(asked, new))
        for item in judged:
            if item.twin is not None:
                item.slot, item.problem, item.cell = item.twin.slot, item.twin.problem, item.twin.cell

    def answer(self) -> None:
        """Called when the turn has decided."""
        for asked, judged in self._owed:
            if asked.ticket:
                self.world.reply(asked, self.reply_to(asked, judged))
        self._owed.clear()

    # -- accepting

    def accept(self, items: list[Judged]) -> None:
        """New tasks that were judged, or that the scheduler itself makes (graphs)."""
        if not items:
            return
        held = [self._flags(item, items) for item in items]
        runs = self._runs(items, held)
        slots = self.books.say(words.Submitted(self.world.now_ns, runs))
        for item, slot in zip(items, slots, strict=True):
            item.slot = slot
        for item in items:
            self._arrive(item)
        self._settle_dependencies(items)

    def _flags(self, item: Judged, items: list[Judged]) -> int:
        assert item.task is not None
        flags = _core.PREEMPTIBLE if item.task.preemptible else 0
        if item.task.deadline_ns is not None and not item.task.deadline_absolute:
            flags |= _core.DEADLINE_RELATIVE
        if item.task.after:
            flags |= _core.HELD_DEPENDENCY
        return flags

    def _runs(self, items: list[Judged], flags: list[int]) -> tuple[words.Run, ...]:
        runs: list[words.Run] = []
        made: dict[bytes, int] = {}
        begin = 0
        for end in range(1, len(items) + 1):
            if end == len(items) or items[end].body != items[begin].body or flags[end] != flags[begin]:
                runs.append(self._run(items[begin:end], flags[begin], made))
                begin = end
        return tuple(runs)

    def _run(self, items: list[Judged], flags: int, made: dict[bytes, int]) -> words.Run:
        body = items[0].body
        known = self.books.templates.find(body)
        new = known is None and body not in made
        slot = known.slot if known is not None else made.setdefault(body, self.books.templates.next_slot(len(made)))
        deadlines = tuple(self._deadline(item) for item in items)
        priorities = tuple(item.task.priority for item in items if item.task is not None)
        ids = [item.id or "" for item in items]
        array = as_array(ids)
        return words.Run(
            template=slot,
            flags=flags,
            body=body if new else None,
            ids=() if array else tuple(ids),
            array=array,
            deadlines_ns=deadlines if any(deadline != NEVER_NS for deadline in deadlines) else None,
            priorities=priorities if any(priorities) else None,
        )

    def _deadline(self, item: Judged) -> int:
        assert item.task is not None
        if item.task.deadline_ns is None:
            return NEVER_NS
        return item.task.deadline_ns + (0 if item.task.deadline_absolute else self.world.now_ns)

    def _arrive(self, item: Judged) -> None:
        assert item.task is not None
        if item.task.after:
            self.world.emit("queued", item.slot, held=True)
        else:
            self.world.emit("queued", item.slot)
            self.world.arrived += 1
        if item.task.on_deadline == "expire" and item.task.deadline_ns is not None:
            self.world.timers.set(Timer.DEADLINE, item.slot, self._deadline(item))

    def _settle_dependencies(self, items: list[Judged]) -> None:
        for item in items:
            if item.task is not None and item.task.after:
                outcomes.settle_dependencies(self.world, item.slot, item.task)

    # -- answering

    def reply_to(self, asked: Submit, judged: list[Judged]) -> Any:
        """The value of the answer, as things stand at the end of the turn."""
        submission = asked.submission
        if submission.single and judged[0].problem is not None:
            return judged[0].problem
        reply = SubmitReply(
            single=submission.single,
            ids=tuple(None if item.problem else item.id for item in judged),
            rejected=tuple((i, item.problem.body()) for i, item in enumerate(judged) if item.problem),
            states=tuple(self._state(item) for item in judged),
            lanes=tuple("" if item.problem else self._lane(item) for item in judged),
            array=self._array(submission, judged),
            placements=self._placements(judged),
        )
        return reply

    @staticmethod
    def _array(submission: Submission, judged: list[Judged]) -> tuple[str, int] | None:
        """(first id, count) of an array job."""
        return None if submission.array is None else (judged[0].id or "", submission.array[1])

    def _state(self, item: Judged) -> str:
        if item.problem is not None:
            return ""
        return str(STATE_OF_CODE[_core.QUEUED if item.cell else self.world.core.task(item.slot).state])

    def _lane(self, item: Judged) -> str:
        if item.slot == NONE:
            return self.books.lane(Qos.production.level if item.task is None else item.task.qos.level)
        return self.books.lane(self.world.core.task(item.slot).qos)

    def _placements(self, judged: list[Judged]) -> dict[str, dict[str, Any]]:
        placements = {}
        for item in judged:
            is_urgent = item.problem is None and not item.cell and self._lane(item) == "immediate"
            attempt = self.books.attempts.live.get(item.slot) if is_urgent else None
            if attempt is not None and item.id is not None:
                placements[item.id] = placement_json(attempt.node, attempt.devices)
        return placements

    # -- idempotency

    def _answered_before(self, asked: Submit) -> bool:
        assert asked.idempotency_key is not None
        known = self.books.keys.get(asked.idempotency_key)
        if known is None:
            return False
        if known.digest != submission_digest(asked):
            self.world.refuse(asked, Problem("this Idempotency-Key came with another body", code="conflict"))
            return True
        self._owed.append((asked, [self._known_by_key(ident) for ident in known.ids]))
        return True

    def _known_by_key(self, ident: str | None) -> Judged:
        if ident is not None and (slot := self.world.core.find(ident.encode())) != NONE:
            return Judged(id=ident, slot=slot)
        if ident is not None and (away := self.books.crossings.away.get(ident)) is not None:
            return Judged(id=ident, cell=away.cell)
        return Judged(id=ident, problem=Problem("refused, or ended and no longer kept", code="gone"))

    def _remember_key(self, asked: Submit, judged: list[Judged]) -> None:
        assert asked.idempotency_key is not None
        ids = tuple(None if item.problem else item.id for item in judged)
        if any(ids):
            submission = asked.submission
            self.books.say(
                words.KeyRemembered(
                    asked.idempotency_key,
                    submission_digest(asked),
                    submission.single,
                    ids,
                    self._array(submission, judged),
                )
            )


def _subject(judged: list[Judged]) -> str:
    """Who was submitted, for the audit record: the first id and how many more."""
    accepted = [item.id for item in judged if item.problem is None]
    more = f" and {len(accepted) - 1} more" if len(accepted) > 1 else ""
    return f"{accepted[0]}{more}" if accepted else ""


def as_array(ids: list[str]) -> tuple[str, int, int] | None:
    """(prefix, first, count) if the ids are prefix + consecutive numbers; the journal then holds three words instead of many."""
    prefix = ids[0].rstrip("0123456789")
    number = ids[0][len(prefix) :]
    if len(ids) < 2 or not number or (number[0] == "0" and number != "0"):
        return None
    first = int(number)
    if all(ident == f"{prefix}{first + i}" for i, ident in enumerate(ids)):
        return prefix, first, len(ids)
    return None


def submission_digest(asked: Submit) -> bytes:
    """What an Idempotency-Key stands for, as 16 bytes."""
    plain = [item.id if isinstance(item, Rejection) else item for item in asked.submission.items]
    return hashlib.blake2b(msgspec.msgpack.encode(plain), digest_size=16).digest()
