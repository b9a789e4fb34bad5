"""Submissions: same id again, dependencies, gangs, room in the tables; then one word fact for all that was accepted.

A submission is judged item by item, accepted as a whole: what is refused harms no neighbour. Nothing is changed before
everything is judged.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from hetsched import _core
from hetsched._core import NEVER_NS, NONE
from hetsched.errors import Problem
from hetsched.model import Rejection, Submission, Task
from hetsched.scheduler import words
from hetsched.scheduler.dependencies import HOPELESS, OPEN, find_cycle, judge
from hetsched.scheduler.ids import new_id
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.messages import Submit, SubmitReply
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.room import Room
from hetsched.scheduler.templates import template_body
from hetsched.scheduler.timers import Timer
from hetsched.scheduler.world import World


class Judged(msgspec.Struct, kw_only=True):
    """One item: either `problem`, or the slot of the same task submitted before, or a new task to accept."""

    id: str | None
    task: Task | None = None
    body: bytes = b""
    problem: Problem | None = None
    slot: int = NONE
    twin: Judged | None = None  # an earlier item of this submission that is the same task

    @property
    def is_new(self) -> bool:
        """Whether it has to be accepted."""
        return self.task is not None and self.problem is None and self.slot == NONE and self.twin is None


class Submissions:
    """Handler of Submit; answers at the end of the turn, when placements are known."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.books = world.books
        self._owed: list[tuple[Submit, list[Judged]]] = []

    # -- the handler

    def on_submit(self, asked: Submit) -> None:
        if asked.idempotency_key is not None and self._answered_before(asked):
            return
        base = self._new_id() if asked.submission.array is not None and not asked.submission.array[0] else None
        judged = self._judge(asked, base)
        self._accept([item for item in judged if item.is_new])
        for item in judged:
            if item.twin is not None:
                item.slot, item.problem = item.twin.slot, item.twin.problem
        for item in judged:
            if item.problem is not None:
                self.world.emit_named("rejected", item.id, problem=item.problem.body())
        if asked.idempotency_key is not None:
            self._remember_key(asked, judged)
        self._owed.append((asked, judged))

    def answer(self) -> None:
        """Called when the turn has decided."""
        for asked, judged in self._owed:
            if asked.ticket:
                self.world.reply(asked, self._reply(asked, judged))
        self._owed.clear()

    # -- judging

    def _judge(self, asked: Submit, base: str | None) -> list[Judged]:
        judged = [self._named(item, index, base) for index, item in enumerate(asked.submission.items)]
        self._judge_ids(judged)
        self._judge_dependencies(judged)
        refused = _refused(judged)
        self._judge_gangs(judged)
        self._judge_room(judged)
        if _refused(judged) > refused:
            self._judge_dependencies(judged)  # again: who named one of those names nobody now
        return judged

    def _named(self, item: Task | Rejection, index: int, base: str | None) -> Judged:
        if isinstance(item, Rejection):
            return Judged(id=item.id, problem=item.problem)
        ident = item.id
        if ident is None:
            ident = self._new_id() if base is None else f"{base}-{index}"
        return Judged(id=ident, task=item, body=template_body(item))

    def _new_id(self) -> str:
        """One that no task in the table has."""
        while True:
            ident = new_id(self.world.now_ns, self.books.id_seq)
            self.books.id_seq += 1
            if self.world.core.find(ident.encode()) == NONE:
                return ident

    def _judge_ids(self, judged: list[Judged]) -> None:
        """The same id with the same body is the same task; with another body it is refused."""
        seen: dict[str, Judged] = {}
        for item in judged:
            if item.task is None or item.id is None:
                continue
            before = self.world.core.find(item.id.encode())
            twin = seen.setdefault(item.id, item)
            if before != NONE and self._same_body(before, item):
                item.slot = before
            elif before == NONE and twin is not item and same_item(twin, item):
                item.twin = twin
            elif before != NONE or twin is not item:
                item.problem = Problem.at("/id", f"{item.id} is taken by another body", code="conflict")

    def _same_body(self, slot: int, item: Judged) -> bool:
        row = self.world.core.task(slot)
        template = self.books.templates.by_slot[row.template]
        assert item.task is not None
        if template.body != item.body or row.priority != item.task.priority:
            return False
        if item.task.deadline_ns is None:
            return row.deadline_ns == NEVER_NS
        since = 0 if item.task.deadline_absolute else row.submitted_ns
        return row.deadline_ns == since + item.task.deadline_ns

    def _judge_dependencies(self, judged: list[Judged]) -> None:
        """Unknown ids and cycles are refused; a refusal makes those that name it unknown in turn."""
        fresh = {item.id: item for item in judged if item.task is not None and item.id and item.problem is None}
        if not any(item.task is not None and item.task.after for item in fresh.values()):
            return
        cyclic = find_cycle({name: item.task.after for name, item in fresh.items() if item.task is not None})
        for name in cyclic:
            fresh[name].problem = Problem.at("/after", f"{name} would wait for itself (a cycle)")
        again = True
        while again:
            again = False
            for item in fresh.values():
                if item.problem is None and item.task is not None and (fault := self._unknown_parent(item.task, fresh)):
                    item.problem, again = fault, True

    def _unknown_parent(self, task: Task, fresh: dict[str, Judged]) -> Problem | None:
        for index, link in enumerate(task.after):
            sibling = fresh.get(link.id)
            if (sibling is None or sibling.problem is not None) and self.world.core.find(link.id.encode()) == NONE:
                return Problem.at(f"/after/{index}", f"no task {link.id} is known")
        return None

    def _judge_gangs(self, judged: list[Judged]) -> None:
        joining: dict[str, int] = {}
        first: dict[str, Task] = {}
        for item in judged:
            if not item.is_new or item.task is None or item.task.gang is None:
                continue
            name = item.task.gang.id
            fault = self._gang_fault(item.task, first.setdefault(name, item.task), joining.get(name, 0))
            if fault is not None:
                item.problem = Problem.at("/gang", fault)
            else:
                joining[name] = joining.get(name, 0) + 1

    def _gang_fault(self, task: Task, first: Task, joining: int) -> str | None:
        assert task.gang is not None
        gang = self.books.gangs.by_name.get(task.gang.id)
        if gang is not None and (fault := gang.fault(task)):
            return fault
        if task.gang != first.gang or task.topology != first.topology:
            return f"members of gang {task.gang.id} disagree on size, min_size or topology"
        if joining + (gang.joined if gang else 0) >= task.gang.size:
            return f"gang {task.gang.id} has all its {task.gang.size} members"
        return None

    def _judge_room(self, judged: list[Judged]) -> None:
        bodies: dict[bytes, Problem | None] = {}
        room = Room(self.books)
        for item in judged:
            if not item.is_new or item.task is None:
                continue
            if item.body not in bodies:
                bodies[item.body] = self._room_fault(room, item.task)
            item.problem = bodies[item.body]

    def _room_fault(self, room: Room, task: Task) -> Problem | None:
        try:
            room.take(task)
        except Problem as problem:
            return problem
        if self.world.config.reject_unsatisfiable and self.books.cluster.by_name and self._nowhere(task):
            return Problem.at("/resources", "no node of this cluster could ever take it", code="unsatisfiable")
        return None

    def _nowhere(self, task: Task) -> bool:
        shape = self.books.templates.shape_of(task)
        if shape is None:
            shape = self.books.say(words.ShapeKnown(template_body(task)))
        return self.world.core.verdict(shape)["ever"] == 0

    # -- accepting

    def _accept(self, items: list[Judged]) -> None:
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
                settle(self.world, item.slot, item.task)

    # -- answering

    def _reply(self, asked: Submit, judged: list[Judged]) -> Any:
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
        return "" if item.problem else str(STATE_OF_CODE[self.world.core.task(item.slot).state])

    def _lane(self, item: Judged) -> str:
        return self.books.lane(self.world.core.task(item.slot).qos)

    def _placements(self, judged: list[Judged]) -> dict[str, dict[str, Any]]:
        placements = {}
        for item in judged:
            attempt = None if item.problem else self.books.attempts.live.get(item.slot)
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
        slots = [NONE if ident is None else self.world.core.find(ident.encode()) for ident in known.ids]
        judged = [
            Judged(id=ident, slot=slot)
            if slot != NONE
            else Judged(id=ident, problem=Problem("refused, or ended and no longer kept", code="gone"))
            for ident, slot in zip(known.ids, slots, strict=True)
        ]
        self._owed.append((asked, judged))
        return True

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


def _refused(judged: list[Judged]) -> int:
    return sum(item.problem is not None for item in judged)


def same_item(a: Judged, b: Judged) -> bool:
    """Whether two items of one submission are the same task but for their ids."""
    assert a.task is not None and b.task is not None
    return a.body == b.body and (a.task.priority, a.task.deadline_ns) == (b.task.priority, b.task.deadline_ns)


def settle(world: World, slot: int, task: Task) -> None:
    """Judge a held task's dependencies as they stand: release it, skip it, or link it to its open parents.

    A parent that is in the table no more ended long ago and satisfied its link, or the task would have been skipped then.
    """
    parents: list[tuple[int, str]] = []
    for link in task.after:
        parent = world.core.find(link.id.encode())
        if parent == NONE:
            continue
        verdict = judge(link.when, world.core.task(parent).state)
        if verdict == HOPELESS:
            world.core.ended(slot, _core.SKIPPED, Reason.DEPENDENCY)
            return
        if verdict == OPEN:
            parents.append((parent, link.when))
    if parents:
        world.dependencies.link(slot, parents)
    else:
        world.core.release(slot, _core.HELD_DEPENDENCY)


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


def placement_json(node: str, devices: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """A placement as JSON: shares in thousandths."""
    return {"node": node, "devices": [{"id": ident, "share": share} for ident, share in devices]}


def submission_digest(asked: Submit) -> bytes:
    """What an Idempotency-Key stands for, as 16 bytes."""
    plain = [item.id if isinstance(item, Rejection) else item for item in asked.submission.items]
    return hashlib.blake2b(msgspec.msgpack.encode(plain), digest_size=16).digest()
