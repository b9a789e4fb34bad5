"""Whether each item of a submission may be accepted: same id again, dependencies, gangs, room in the tables.

Item by item, and in this order, because a refusal can make another item's reference unknown. Changes nothing but ids handed out.
"""

from __future__ import annotations

import msgspec

from hetsched._core import NEVER_NS, NONE
from hetsched.errors import Problem
from hetsched.model import Rejection, Submission, Task
from hetsched.scheduler import words
from hetsched.scheduler.cells.crossings import mark_of
from hetsched.scheduler.dependencies import find_cycle
from hetsched.scheduler.ids import new_id
from hetsched.scheduler.room import Room
from hetsched.scheduler.templates import template_body
from hetsched.scheduler.world import World


class Judged(msgspec.Struct, kw_only=True):
    """One item: either `problem`, or the slot of the same task submitted before, or a new task to accept."""

    id: str | None
    task: Task | None = None
    body: bytes = b""
    problem: Problem | None = None
    slot: int = NONE
    twin: Judged | None = None  # an earlier item of this submission that is the same task
    cell: str = ""  # it is there, or on its way

    @property
    def is_new(self) -> bool:
        """Whether it has to be accepted."""
        if self.task is None or self.problem is not None:
            return False
        return self.slot == NONE and self.twin is None and not self.cell


class Judge:
    """`submission(s)` → one Judged per item, in order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.books = world.books

    def submission(self, submission: Submission) -> list[Judged]:
        """Every item, judged."""
        base = self.new_id() if submission.array is not None and not submission.array[0] else None
        judged = [self._named(item, index, base) for index, item in enumerate(submission.items)]
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
            ident = self.new_id() if base is None else f"{base}-{index}"
        return Judged(id=ident, task=item, body=template_body(item))

    def new_id(self) -> str:
        """One that no task in the table has."""
        while True:
            ident = new_id(self.world.now_ns, self.books.id_seq, self.world.config.store.cell)
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
            away = self.books.crossings.away.get(item.id)
            twin = seen.setdefault(item.id, item)
            if before != NONE and self._same_body(before, item):
                item.slot = before
            elif before == NONE and twin is not item and same_item(twin, item):
                item.twin = twin
            elif away is not None and away.mark == mark_of(item.task):
                item.cell = away.cell
            elif before != NONE or away is not None or twin is not item:
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


def _refused(judged: list[Judged]) -> int:
    return sum(item.problem is not None for item in judged)


def same_item(a: Judged, b: Judged) -> bool:
    """Whether two items of one submission are the same task but for their ids."""
    assert a.task is not None and b.task is not None
    return a.body == b.body and (a.task.priority, a.task.deadline_ns) == (b.task.priority, b.task.deadline_ns)
