"""Who goes to another cell, decided once, at acceptance; and what is done about letters from other cells.

A task leaves where it has to (its queue belongs to other cells: `cells.queues`), where no node here could ever take it, or where all room for
its shape is taken, for longer than the age of what is known of others, and another cell has room for it and nobody waiting. It stays where that
is not certain, and where it hangs on others: with dependencies, or as a member of a gang that is not all there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hetsched import _core
from hetsched._core import NONE
from hetsched.errors import Problem
from hetsched.model import Submission, Task
from hetsched.scheduler import outcomes, words
from hetsched.scheduler.cells import digest as digests
from hetsched.scheduler.cells.crossings import encode_task, mark_of
from hetsched.scheduler.cells.digest import Digest, Place
from hetsched.scheduler.cells.letters import FULL, NOWHERE, PINNED, Delivered, Letter, Parcel, Verdict, cell_of
from hetsched.scheduler.judge import Judged
from hetsched.scheduler.lifecycle import LIVE_MASK
from hetsched.scheduler.messages import DigestsHeard, LettersHeard, Remind, Submit
from hetsched.scheduler.templates import ShapeKey, template_body
from hetsched.scheduler.world import World

if TYPE_CHECKING:
    from hetsched.scheduler.submit import Submissions

LOOK_NS = 100_000_000
"""So old may be what we know of our own free places when a task is let go."""

MOST_IN_PARCEL = 1_000
SAMPLE = 64
"""Live tasks, the oldest ones, by which it is told how soon there is room."""


class Going(NamedTuple):
    """So many (`tasks`) of some tasks that are alike, and where to."""

    tasks: int
    cell: str
    why: str


class Clerk:
    """`digests`: of the other cells, by name."""

    def __init__(self, world: World, submissions: Submissions) -> None:
        self.world = world
        self.books = world.books
        self.crossings = world.books.crossings
        self.own = world.config.store.cell
        self.digests: dict[str, Digest] = {}
        self._submissions = submissions
        self._silent: frozenset[str] = frozenset()
        self._gone = Counter[str]()  # tasks sent there since its digest
        self._places: tuple[Place, ...] = ()
        self._turnover_s = 0.0  # the longest that one of those which live longest here is expected to run
        self._looked_ns = -LOOK_NS

    # -- handlers

    def on_digests(self, asked: DigestsHeard) -> None:
        """What is known of the others from now on. No facts: what is decided by it has some."""
        for digest in asked.digests:
            before = self.digests.get(digest.cell)
            if before is None or (before.epoch, before.sequence) != (digest.epoch, digest.sequence):
                self._gone[digest.cell] = 0
        self._silent = asked.silent
        self.digests = {digest.cell: digest for digest in asked.digests if digest.cell != self.own}

    def on_letters(self, asked: LettersHeard) -> None:
        """Our inbox, in order."""
        for delivered in asked.letters:
            if isinstance(delivered.body, Parcel):
                self._on_parcel(delivered, delivered.body)
            elif isinstance(delivered.body, Verdict):
                self._on_verdict(cell_of(delivered.sender), delivered.body)
            if self.crossings.heard != delivered.at:
                self.books.say(words.Heard(delivered.at))
        self.world.reply(asked, len(asked.letters))

    def on_remind(self, asked: Remind) -> None:
        """Write again what has had no answer for so long. A cell that is silent has it in its inbox, and is let be."""
        for sent in self.crossings.unanswered():
            if asked.after_ns and sent.cell in self._silent:
                continue
            if self.world.now_ns - sent.at_ns >= asked.after_ns:
                self.world.letters.append(Letter(sent.cell, self.crossings.parcel(sent)))

    # -- who goes

    @property
    def is_parted(self) -> bool:
        """Whether anybody could go anywhere."""
        return bool(self.own) and bool(self.digests or self.world.config.cells.queues)

    def let_go(self, asked: Submit, items: list[Judged]) -> list[Judged]:
        """Of new tasks, send those that are better off elsewhere; who stays."""
        if not self.is_parted:
            return items
        staying, parcels = list[Judged](), dict[tuple[str, str], list[Judged]]()
        for group in _alike(items):
            left = group
            for going in self._ways(group):
                parcels.setdefault((going.cell, going.why), []).extend(left[len(left) - going.tasks :])
                left = left[: len(left) - going.tasks]
            staying += left
        for (cell, why), parcel in parcels.items():
            for part in _parted(parcel):
                self._send(asked.actor, cell, why, part)
        return staying if parcels else items

    def may_go(self, task: Task, count: int) -> bool:
        """Whether some of so many might go: then each is looked at."""
        if not self.is_parted:
            return False
        if self._is_pinned_away(task.queue):
            return True
        others = [cell for cell in self.digests if self._takes_queue(cell, task.queue)]
        if not others:
            return False
        shape = self.books.templates.shape_of(task)
        if shape is None:
            return True
        verdict, key = self.world.core.verdict(shape), self.books.templates.shape_key(task)
        if verdict["ever"] == 0:
            return any(digests.could_ever(self.digests[cell].places, key) for cell in others)
        if not self.world.config.cells.spill or verdict["fits"] >= count + self.world.core.shape_pending(shape):
            return False
        if not any(self._room(cell, key) for cell in others) or self._is_soon(task, key, count):
            return False
        return count > self._room_here(key, shape, verdict["fits"])

    def _ways(self, group: list[Judged]) -> list[Going]:
        task, count = _task(group[0]), len(group)
        if task.after or (task.gang is not None and not self._is_whole(task, count)):
            return []
        key = self.books.templates.shape_key(task)
        others = [cell for cell in sorted(self.digests) if self._takes_queue(cell, task.queue)]
        if self._is_pinned_away(task.queue):
            pinned = self._pins(task.queue)
            return [Going(count, max(others, key=lambda cell: self._worth(cell, key), default=pinned[0]), PINNED)]
        if not others:
            return []
        verdict = self.world.core.verdict(self._shape(task))
        if verdict["ever"] == 0:
            able = [cell for cell in others if digests.could_ever(self.digests[cell].places, key)]
            return [Going(count, max(able, key=lambda cell: self._worth(cell, key)), NOWHERE)] if able else []
        if not self.world.config.cells.spill or self._is_soon(task, key, count):
            return []
        excess = count - self._room_here(key, self._shape(task), verdict["fits"])
        return self._spill(others, key, count, excess, is_gang=task.gang is not None) if excess > 0 else []

    def _spill(self, others: list[str], key: ShapeKey, count: int, excess: int, *, is_gang: bool) -> list[Going]:
        ways = []
        for cell in sorted(others, key=lambda cell: -self._room(cell, key)):
            room = self._room(cell, key)
            if is_gang:
                return [Going(count, cell, FULL)] if room >= count else []
            if room <= 0:
                break
            ways.append(Going(min(room, excess), cell, FULL))
            excess -= ways[-1].tasks
            if not excess:
                break
        return ways

    def _room_here(self, key: ShapeKey, shape: int, fits: int) -> int:
        """Tasks of the shape that may still come before one has to wait."""
        pending = self.world.core.shape_pending(shape)
        return max(0, digests.room(self._own_places(), key) - pending) if fits else 0

    def _is_soon(self, task: Task, key: ShapeKey, count: int) -> bool:
        """Whether the last of so many is expected to begin here before we would hear of what the others have by then: where what runs here is
        known to be as short as that."""
        seats = digests.seats(self._own_places(), key)
        if not seats:
            return False
        turns = 1 + (digests.backlog_of(self.books) + count) / seats
        return max(self._turnover_s, self._expected_s(task)) * turns < self.world.config.cells.digest_every

    def _expected_s(self, task: Task) -> float:
        return self.books.profiles.expected_s(task)[0] or math.inf

    def _own_places(self) -> tuple[Place, ...]:
        if self.world.now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = self.world.now_ns
            self._places = digests.places_of(self.books)
            live = self.world.core.page(0, SAMPLE, LIVE_MASK)
            self._turnover_s = max((self._expected_s(self.world.body(task)) for task in live), default=0.0)
        return self._places

    def _room(self, cell: str, key: ShapeKey) -> int:
        """The same there, as far as is known; none where somebody waits already, or that is silent."""
        digest = self.digests[cell]
        return (
            0 if digest.backlog or cell in self._silent else max(0, digests.room(digest.places, key) - self._gone[cell])
        )

    def _worth(self, cell: str, key: ShapeKey) -> tuple[int, bool, bool, int]:
        """Of cells that have to be chosen among: room, else who could ever take it, is not silent, has less waiting."""
        digest = self.digests[cell]
        able = digests.could_ever(digest.places, key)
        return self._room(cell, key), able, cell not in self._silent, -digest.backlog

    def _shape(self, task: Task) -> int:
        shape = self.books.templates.shape_of(task)
        if shape is None:
            shape = self.books.say(words.ShapeKnown(template_body(task)))
        return shape

    def _is_whole(self, task: Task, count: int) -> bool:
        assert task.gang is not None
        return count == task.gang.size and task.gang.id not in self.books.gangs.by_name

    # -- queues

    def _pins(self, queue: str) -> tuple[str, ...]:
        """Cells that a queue is bound to, by itself or the nearest queue above it; () = it is not."""
        pins = self.world.config.cells.queues
        while queue:
            if queue in pins:
                return pins[queue]
            queue = queue.rpartition("/")[0]
        return ()

    def _is_pinned_away(self, queue: str) -> bool:
        pins = self._pins(queue)
        return bool(pins) and self.own not in pins

    def _takes_queue(self, cell: str, queue: str) -> bool:
        pins = self._pins(queue)
        return cell in self.digests and (not pins or cell in pins)

    # -- sending

    def _send(self, actor: str, cell: str, why: str, items: Sequence[Judged]) -> None:
        tasks = [self._as_sent(item) for item in items]
        self._write(
            cell,
            why=why,
            actor=actor,
            tasks=tuple(encode_task(task) for task in tasks),
            marks=tuple(mark_of(_task(item)) for item in items),
        )
        self._gone[cell] += len(items)
        for item in items:
            item.cell = cell
            self.world.emit_named("sent", item.id, cell=cell, why=why)

    def _as_sent(self, item: Judged) -> Task:
        task = msgspec.structs.replace(_task(item), id=item.id)
        if task.deadline_ns is None or task.deadline_absolute:
            return task
        return msgspec.structs.replace(task, deadline_ns=task.deadline_ns + self.world.now_ns, deadline_absolute=True)

    def _write(
        self,
        cell: str,
        *,
        why: str = "",
        actor: str = "",
        tasks: tuple[bytes, ...] = (),
        marks: tuple[bytes, ...] = (),
        cancels: tuple[str, ...] = (),
    ) -> None:
        number = self.crossings.sent.get(cell, 0) + 1
        sent = words.Sent(cell, number, self.world.now_ns, why, actor, tasks, marks, cancels)
        self.books.say(sent)
        self.world.letters.append(Letter(cell, self.crossings.parcel(sent)))

    def cancel(self, idents: Iterable[str], actor: str) -> list[str]:
        """Ask for the end of tasks that are elsewhere, or on their way; those that were."""
        asked, by_cell = list[str](), dict[str, list[str]]()
        for ident in idents:
            away = self.crossings.away[ident]
            asked.append(ident)
            if not away.is_cancelled:
                by_cell.setdefault(away.cell, []).append(ident)
        for cell, found in by_cell.items():
            self._write(cell, actor=actor, cancels=tuple(found))
        return asked

    # -- what comes: a parcel

    def _on_parcel(self, delivered: Delivered, parcel: Parcel) -> None:
        sender = delivered.sender
        last = self.crossings.taken.get(sender, 0)
        if parcel.number > last + 1:
            return  # one before it is missing; its home will write both again
        if parcel.number == last + 1:
            refused = self._take(parcel)
            self.books.say(words.Heard(delivered.at, sender, parcel.number, refused, parcel.acked))
        verdict = self.crossings.verdicts.get(sender, {}).get(parcel.number)
        if verdict is not None:  # else its home has it
            self.world.letters.append(Letter(cell_of(sender), Verdict(sender, parcel.number, verdict)))

    def _take(self, parcel: Parcel) -> tuple[int, ...]:
        """Places of tasks that are refused; the others are ours."""
        for ident in parcel.cancels:
            if (task := self.world.core.find(ident.encode())) != NONE:
                outcomes.cancel(self.world, task)
        tasks = self.crossings.unpack(parcel.tasks)
        submission = Submission(single=False, items=[*tasks])
        judged = self._submissions.judge(submission)
        for group in _alike(judged):
            if not self._has_room(parcel.why, group):
                for item in group:
                    item.problem = item.problem or Problem("there is no room for it", code="unavailable")
        self._submissions.settle(judged)
        self.world.audit(Submit(submission=submission, actor=parcel.actor), "take", f"{len(tasks)} tasks")
        return tuple(index for index, item in enumerate(judged) if item.problem is not None)

    def _has_room(self, why: str, group: list[Judged]) -> bool:
        """Whether the group may come. Of a gang all members, or none. What came because its queue belongs here always may."""
        task = _task(group[0])
        if task.gang is not None and any(item.problem is not None for item in group):
            return False
        if why == PINNED or not any(item.is_new for item in group):
            return True
        shape = self._shape(task)
        verdict = self.world.core.verdict(shape)
        if why == NOWHERE:
            return verdict["ever"] > 0
        key = self.books.templates.shape_key(task)
        self._looked_ns = -LOOK_NS
        return self._room_here(key, shape, verdict["fits"]) >= len(group)

    # -- what comes: a verdict

    def _on_verdict(self, cell: str, verdict: Verdict) -> None:
        sent = self.crossings.open.get(cell, {}).get(verdict.number)
        if sent is None:
            return  # heard before
        tasks = self.crossings.unpack(sent.tasks)
        cancelled = {task.id for task in tasks if task.id is not None and self.crossings.away[task.id].is_cancelled}
        self.books.say(words.Answered(cell, verdict.number, verdict.refused))
        self._gone[cell] -= len(verdict.refused)
        refused = frozenset(verdict.refused)
        for index, task in enumerate(tasks):
            if index not in refused:
                self.world.emit_named("taken", task.id, cell=cell)
        self._take_back([tasks[index] for index in verdict.refused], sent.why, cancelled)

    def _take_back(self, tasks: list[Task], why: str, cancelled: set[str]) -> None:
        """They are ours, for good. One that was cancelled meanwhile ends; one that does not belong here is held."""
        items = [Judged(id=task.id, task=task, body=template_body(task)) for task in tasks]
        self._submissions.accept(items)
        for item in items:
            if item.id in cancelled:
                outcomes.cancel(self.world, item.slot)
            elif why == PINNED:
                self.world.core.hold(item.slot, _core.HELD_OPERATOR)


def _task(item: Judged) -> Task:
    assert item.task is not None
    return item.task


def _alike(items: list[Judged]) -> list[list[Judged]]:
    """Members of a gang together, others by their bodies; in order."""
    groups: dict[object, list[Judged]] = {}
    for item in items:
        if item.task is not None:
            key: object = item.body if item.task.gang is None else item.task.gang.id
            groups.setdefault(key, []).append(item)
    return list(groups.values())


def _parted(parcel: list[Judged]) -> Iterable[list[Judged]]:
    """Not too many at once, and no gang in two."""
    part: list[Judged] = []
    for group in _alike(parcel):
        if part and len(part) + len(group) > MOST_IN_PARCEL:
            yield part
            part = []
        step = len(group) if _task(group[0]).gang is not None else MOST_IN_PARCEL
        for first in range(0, len(group), step):
            part = part + group[first : first + step]
            if len(part) >= MOST_IN_PARCEL:
                yield part
                part = []
    if part:
        yield part
