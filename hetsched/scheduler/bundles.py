"""Bundles: tasks whose like was read before, accepted by the frame. The way of `submit.py` for the many, with nothing done in Python a task.

Promises: the outcome is that of `submit.py` for the same tasks one after the other. What that would have to look at task by task (an id that is
taken, a body that finds no room, a rule about shapes) is left to it. One word fact a bundle, one audit record a bundle and actor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from hetsched import _core
from hetsched._core import NONE
from hetsched.errors import HetschedError, Problem
from hetsched.model import Submission, Task
from hetsched.scheduler import words
from hetsched.scheduler.cells.clerk import Clerk
from hetsched.scheduler.judge import Judged
from hetsched.scheduler.messages import Array, ArrayReply, Bundle, BundleReply, Known, Submit
from hetsched.scheduler.rendering import placement_json
from hetsched.scheduler.room import Room
from hetsched.scheduler.submit import Submissions
from hetsched.scheduler.templates import template_body
from hetsched.scheduler.world import World

Each = list[tuple[Submit, list[Judged]]]
"""The submissions that a bundle was taken apart into, and what became of them."""

_JUDGED_BY_BODY = frozenset(
    "id name labels kind queue qos guarantee preemptible priority resources limits pattern node_selector models tolerations data topology"
    " deadline_ns deadline_absolute on_deadline estimate time_limit grace retries retry_on command env workdir user duration on_lost"
    " checkpoint stop_time usage".split()
)
"""Fields that mean the same for every task with this body. Of the others (gangs, dependencies, what is still to come) each task is judged."""

_JUDGED_BY_TASK = tuple(sorted(set(Task.__struct_fields__) - _JUDGED_BY_BODY))
_BARE = Task()


def known_of(task: Task) -> Known | None:
    """What tasks like this one have in common; None where such tasks have to be judged one by one."""
    expires = task.on_deadline == "expire" and task.deadline_ns is not None
    if expires or any(getattr(task, name) != getattr(_BARE, name) for name in _JUDGED_BY_TASK):
        return None
    flags = _core.PREEMPTIBLE if task.preemptible else 0
    if task.deadline_ns is not None and not task.deadline_absolute:
        flags |= _core.DEADLINE_RELATIVE
    return Known(task=msgspec.structs.replace(task, id=None), body=template_body(task), flags=flags)


class Bundles:
    """Handler of Bundle and Array; answers at the end of the turn, when placements are known."""

    def __init__(self, world: World, submissions: Submissions, clerk: Clerk) -> None:
        self.world = world
        self.books = world.books
        self._clerk = clerk
        self._submissions = submissions
        self._owed: list[tuple[Bundle | Array, bytes | Each]] = []

    # -- the handler

    def on_bundle(self, asked: Bundle) -> None:
        self._name(asked)
        ids = b"\n".join(asked.ids)
        if not self._takes(ids, asked.known, asked.counts):
            self._owed.append((asked, [(one, self._submissions.take_in(one)) for one in _apart(asked)]))
            return
        slots = self.books.bundle(self._word(asked, ids), ids)
        self.world.emit_queued(ids, len(asked.ids))
        self._audit(asked)
        self._owed.append((asked, slots))

    def on_array(self, asked: Array) -> None:
        base = asked.base or self._submissions.new_id()
        ids = _core.array_keys(f"{base}-".encode(), 0, asked.count)
        asked = msgspec.structs.replace(asked, base=base)
        if not self._takes(ids, [asked.known], [asked.count]):
            whole = _whole(asked)
            self._owed.append((asked, [(whole, self._submissions.take_in(whole))]))
            return
        head = self._head(asked.known, asked.count, {})
        slots = self.books.bundle(words.Bundled(self.world.now_ns, (head,), b"", array=(f"{base}-", asked.count)), ids)
        self.world.emit_queued(b"", asked.count, f"{base}-".encode())
        self.world.audit(asked, "submit", _subject([f"{base}-0".encode()], asked.count))
        self._owed.append((asked, slots))

    def _takes(self, ids: bytes, known: list[Known], counts: list[int]) -> bool:
        """Nothing would have to be said of any of them alone."""
        if self.world.config.reject_unsatisfiable or not self.world.core.absent(ids) or not self._has_room(known):
            return False
        if any(self._clerk.may_go(one.task, count) for one, count in zip(known, counts, strict=True)):
            return False
        away = self.books.crossings.away
        return not away or away.keys().isdisjoint(ids.decode().split("\n"))

    def answer(self) -> None:
        """Called when the turn has decided."""
        for asked, found in self._owed:
            if asked.ticket:
                reply = self._reply(asked, found) if isinstance(found, bytes) else self._reply_apart(asked, found)
                self.world.reply(asked, reply)
        self._owed.clear()

    # -- accepting

    def _name(self, asked: Bundle) -> None:
        """Make up the ids that are missing."""
        at = -1
        for _ in range(asked.ids.count(b"")):
            at = asked.ids.index(b"", at + 1)
            asked.ids[at] = self._submissions.new_id().encode()

    def _has_room(self, bodies: list[Known]) -> bool:
        """Whether every body that is new here may be accepted."""
        room = Room(self.books)
        try:
            for known in bodies:
                if self.books.templates.find(known.body) is None:
                    room.take(known.task)
        except Problem:
            return False
        return True

    def _word(self, asked: Bundle, ids: bytes) -> words.Bundled:
        made: dict[bytes, int] = {}
        heads = tuple(self._head(known, count, made) for known, count in zip(asked.known, asked.counts, strict=True))
        which = bytes(asked.which) if len(heads) > 1 else b""
        return words.Bundled(self.world.now_ns, heads, ids, which)

    def _head(self, known: Known, count: int, made: dict[bytes, int]) -> words.Head:
        task, body = known.task, known.body
        template = self.books.templates.find(body)
        new = template is None and body not in made
        slot = (
            template.slot if template is not None else made.setdefault(body, self.books.templates.next_slot(len(made)))
        )
        deadline_ns = task.deadline_ns
        if deadline_ns is not None and not task.deadline_absolute:
            deadline_ns += self.world.now_ns
        return words.Head(slot, known.flags, count, body if new else None, deadline_ns, task.priority)

    def _audit(self, asked: Bundle) -> None:
        if not asked.single:
            self.world.audit(asked, "submit", _subject(asked.ids, len(asked.ids)))
            return
        by_actor: dict[str, list[bytes]] = {}
        if asked.actors.count(asked.actors[0]) == len(asked.ids):
            by_actor[asked.actors[0]] = asked.ids
        else:
            for ident, actor in zip(asked.ids, asked.actors, strict=True):
                by_actor.setdefault(actor, []).append(ident)
        for actor, ids in by_actor.items():
            self.world.audit(
                Bundle(known=[], which=bytearray(), counts=[], ids=[], actor=actor), "submit", _subject(ids, len(ids))
            )

    # -- answering

    def _reply(self, asked: Bundle | Array, slots: bytes) -> BundleReply | ArrayReply:
        if isinstance(asked, Array):
            urgent = memoryview(slots).cast("I") if self._is_urgent(asked.known) else ()
            base = asked.base.encode()
            placements = self._placements((b"%b-%d" % (base, at), task) for at, task in enumerate(urgent))
            return ArrayReply(first=f"{asked.base}-0", count=asked.count, placements=placements)
        states = self.world.core.states(slots)
        return BundleReply(ids=asked.ids, states=states, placements=self._placed(asked, slots))

    def _is_urgent(self, known: Known) -> bool:
        return known.task.qos.level in self.books.immediate

    def _placed(self, asked: Bundle, slots: bytes) -> dict[str, dict[str, object]]:
        """Placements of those of the immediate lane. The others' are told by events: they come when the window is over, mostly later."""
        urgent = {at for at, known in enumerate(asked.known) if self._is_urgent(known)}
        if not urgent:
            return {}
        which, tasks = memoryview(bytes(asked.which)).cast("H"), memoryview(slots).cast("I")
        return self._placements(
            (ident, task) for ident, task, at in zip(asked.ids, tasks, which, strict=True) if at in urgent
        )

    def _placements(self, tasks: Iterable[tuple[bytes, int]]) -> dict[str, dict[str, object]]:
        placements = {}
        for ident, task in tasks:
            attempt = None if task == NONE else self.books.attempts.live.get(task)
            if attempt is not None:
                placements[ident.decode()] = placement_json(attempt.node, attempt.devices)
        return placements

    def _reply_apart(self, asked: Bundle | Array, each: Each) -> object:
        if isinstance(asked, Array) or not asked.single:
            return self._submissions.reply_to(*each[0])
        refused: dict[int, HetschedError] = {}
        slots: list[int] = []
        for index, (_, (judged,)) in enumerate(each):
            if judged.problem is not None:
                refused[index] = judged.problem
            slots.append(judged.slot)
        states = bytes(_core.QUEUED if slot == NONE else self.world.core.task(slot).state for slot in slots)
        packed = b"".join(slot.to_bytes(4, "little") for slot in slots)
        return BundleReply(ids=asked.ids, states=states, refused=refused, placements=self._placed(asked, packed))


def _subject(ids: list[bytes], count: int) -> str:
    """Who was submitted, for the audit record: the first id and how many more."""
    more = f" and {count - 1} more" if count > 1 else ""
    return f"{ids[0].decode()}{more}"


def _whole(asked: Array) -> Submit:
    """The submission that it stands for."""
    items = [msgspec.structs.replace(asked.known.task, id=f"{asked.base}-{at}") for at in range(asked.count)]
    submission = Submission(single=False, items=[*items], array=(f"{asked.base}-0", asked.count))
    return Submit(submission=submission, actor=asked.actor)


def _apart(asked: Bundle) -> Iterator[Submit]:
    """The submissions that it stands for."""
    which = memoryview(bytes(asked.which)).cast("H")
    tasks: list[Task] = [
        msgspec.structs.replace(asked.known[at].task, id=ident.decode())
        for at, ident in zip(which, asked.ids, strict=True)
    ]
    if not asked.single:
        yield Submit(submission=Submission(single=False, items=list(tasks)), actor=asked.actor)
        return
    for task, actor in zip(tasks, asked.actors, strict=True):
        yield Submit(submission=Submission(single=True, items=[task]), actor=actor)
