"""What stands in the journal of tasks that go to other cells or come from there: changed by word facts only, live and at replay alike."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from itertools import islice

import msgspec

from hetsched.model import Task
from hetsched.scheduler import words
from hetsched.scheduler.cells.letters import Parcel
from hetsched.scheduler.templates import template_body

START = "0-0"


class Away(msgspec.Struct, frozen=True, array_like=True):
    """A task of which this cell is the home and that is not here. `number`: of the parcel that it is in, 0 = it was taken. `mark`: by which the
    same task is recognised when it is submitted again."""

    cell: str
    number: int
    mark: bytes
    queue: str
    is_cancelled: bool = False


class SavedCrossings(msgspec.Struct, frozen=True, array_like=True):
    """For the snapshot."""

    heard: str = START
    sent: list[tuple[str, int]] = []
    open: list[words.Sent] = []
    away: list[tuple[str, Away]] = []
    taken: list[tuple[str, int]] = []
    verdicts: list[tuple[str, list[tuple[int, tuple[int, ...]]]]] = []


class Crossings:
    """`heard`: place in our inbox up to which everything was dealt with. `open`: parcels without a verdict, by cell and number, in order.
    `away`: by id, oldest first. `taken`: by sender, the number of its last parcel that we dealt with; `verdicts`: those that it may not have
    heard yet."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self.heard = START
        self.sent: dict[str, int] = {}
        self.open: dict[str, dict[int, words.Sent]] = {}
        self.away: OrderedDict[str, Away] = OrderedDict()
        self.taken: dict[str, int] = {}
        self.verdicts: dict[str, dict[int, tuple[int, ...]]] = {}

    # -- questions

    def unpack(self, tasks: tuple[bytes, ...]) -> list[Task]:
        """As they were sent."""
        return [decode_task(packed) for packed in tasks]

    def parcel(self, sent: words.Sent) -> Parcel:
        """What is written of it."""
        acked = min(self.open[sent.cell]) - 1
        return Parcel(sent.number, acked, sent.why, sent.actor, sent.tasks, sent.cancels)

    def unanswered(self) -> list[words.Sent]:
        """In the order in which they were sent, by cell."""
        return [sent for parcels in self.open.values() for sent in parcels.values()]

    @property
    def tasks_open(self) -> int:
        """Tasks whose cell has not answered yet."""
        return sum(len(sent.tasks) for sent in self.unanswered())

    # -- word facts

    def apply_sent(self, word: words.Sent) -> None:
        """It is on its way, and not ours any more unless it comes back."""
        self.sent[word.cell] = word.number
        self.open.setdefault(word.cell, {})[word.number] = word
        for packed, mark in zip(word.tasks, word.marks, strict=True):
            task = decode_task(packed)
            assert task.id is not None
            self.away[task.id] = Away(word.cell, word.number, mark, task.queue)
        for ident in word.cancels:
            self.away[ident] = msgspec.structs.replace(self.away[ident], is_cancelled=True)

    def apply_answered(self, word: words.Answered) -> None:
        """The other cell has spoken."""
        sent = self.open[word.cell].pop(word.number)
        if not self.open[word.cell]:
            del self.open[word.cell]
        refused = frozenset(word.refused)
        for index, packed in enumerate(sent.tasks):
            ident = decode_task(packed).id
            assert ident is not None
            if index in refused:
                del self.away[ident]
            else:
                self.away[ident] = msgspec.structs.replace(self.away[ident], number=0)
        self._forget()

    def apply_heard(self, word: words.Heard) -> None:
        """Our inbox was read up to there, and a parcel perhaps dealt with."""
        self.heard = word.at
        if word.number:
            self.taken[word.sender] = word.number
            verdicts = self.verdicts.setdefault(word.sender, {})
            verdicts[word.number] = word.refused
        if word.sender and (verdicts := self.verdicts.get(word.sender, {})):
            for number in [number for number in verdicts if number <= word.acked]:
                del verdicts[number]

    def _forget(self) -> None:
        """As many that were taken are remembered as ended tasks are; those without a verdict always."""
        excess = len(self.away) - self._kept
        if excess > 0:
            taken = (ident for ident, away in self.away.items() if away.number == 0)
            for ident in list(islice(taken, excess)):
                del self.away[ident]

    # -- snapshot

    def save(self) -> SavedCrossings:
        return SavedCrossings(
            heard=self.heard,
            sent=sorted(self.sent.items()),
            open=self.unanswered(),
            away=list(self.away.items()),
            taken=sorted(self.taken.items()),
            verdicts=[(sender, sorted(found.items())) for sender, found in sorted(self.verdicts.items())],
        )

    def load(self, saved: SavedCrossings) -> None:
        self.heard = saved.heard
        self.sent = dict(saved.sent)
        for sent in saved.open:
            self.open.setdefault(sent.cell, {})[sent.number] = sent
        self.away.update(saved.away)
        self.taken = dict(saved.taken)
        self.verdicts = {sender: dict(found) for sender, found in saved.verdicts}


def mark_of(task: Task) -> bytes:
    """Equal for equal bodies, priorities and deadlines as they were asked for; 8 bytes."""
    asked = (template_body(task), task.priority, task.deadline_ns, task.deadline_absolute)
    return hashlib.blake2b(encode_task(asked), digest_size=8).digest()


encode_task = msgspec.msgpack.Encoder(order="deterministic").encode
decode_task = msgspec.msgpack.Decoder(Task).decode
