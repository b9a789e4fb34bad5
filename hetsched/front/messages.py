"""What a front end and the deciding process say to each other, in msgpack.

Tasks go as columns (`Tasks`): what many have in common is said once (`Kinds`) and named by a number from then on, as the front end counts them.
Both are of one installation, so there are no versions.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched.config import Config
from hetsched.daemon.auth import Token
from hetsched.errors import HetschedError, Problem, TooBusy, Unavailable
from hetsched.model import Rejection, Submission, Task
from hetsched.scheduler.messages import Known, Submit, SubmitReply
from hetsched.scheduler.templates import decode_body

MOST_KINDS = 16384
"""Kinds that a front end counts up to; then it begins anew."""


class Said(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Base of all."""


# ---------------------------------------------------------------------- from a front end


class Kind(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A `Known` in few words."""

    body: bytes
    flags: int
    priority: int
    deadline_ns: int | None

    @classmethod
    def of(cls, known: Known) -> Kind:
        return cls(body=known.body, flags=known.flags, priority=known.task.priority, deadline_ns=known.task.deadline_ns)

    def known(self) -> Known:
        task = msgspec.structs.replace(decode_body(self.body), priority=self.priority, deadline_ns=self.deadline_ns)
        return Known(task=task, body=self.body, flags=self.flags)


class Kinds(Said, frozen=True, kw_only=True):
    """Numbers from `first` on; 0: all before are forgotten."""

    first: int
    kinds: list[Kind]


class Tasks(Said, frozen=True, kw_only=True):
    """A Bundle. `kinds`: by number; `ids`: joined by newlines; `actors`: one for all, or, where singles differ, one each."""

    ticket: int
    kinds: list[int]
    counts: list[int]
    which: bytes
    ids: bytes
    single: bool
    actors: list[str]


class ArrayOf(Said, frozen=True, kw_only=True):
    """An Array."""

    ticket: int
    kind: int
    base: str
    count: int
    actor: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A Rejection."""

    index: int
    problem: Told
    id: str | None


class Whole(Said, frozen=True, kw_only=True):
    """A Submit: tasks that have to be judged one by one. `tasks[i]` None: it is among `refused`."""

    ticket: int
    single: bool
    tasks: list[Task | None]
    refused: list[Refused]
    array: tuple[str, int] | None
    key: str | None
    actor: str

    @classmethod
    def of(cls, ticket: int, asked: Submit) -> Whole:
        submission = asked.submission
        return cls(
            ticket=ticket,
            single=submission.single,
            tasks=[item if isinstance(item, Task) else None for item in submission.items],
            refused=[
                Refused(index=item.index, problem=Told.of(item.problem), id=item.id)
                for item in submission.items
                if isinstance(item, Rejection)
            ],
            array=submission.array,
            key=asked.idempotency_key,
            actor=asked.actor,
        )

    def asked(self) -> Submit:
        refused = iter(self.refused)
        items = [task if task is not None else _rejection(next(refused)) for task in self.tasks]
        submission = Submission(single=self.single, items=items, array=self.array)
        return Submit(submission=submission, idempotency_key=self.key, actor=self.actor)


class Serving(Said, frozen=True, kw_only=True):
    """It accepts clients."""


class Entered(Said, frozen=True, kw_only=True):
    """A client connected."""

    connection: int
    address: str


class Left(Said, frozen=True, kw_only=True):
    """It went away, or was handed over."""

    connection: int


class Counted(Said, frozen=True, kw_only=True):
    """Since it was last said: requests answered here, connections handed over, seconds of processor time."""

    answered: int
    handed_over: int
    cpu_s: float


# ---------------------------------------------------------------------- from the deciding process


class Told(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An error of the tree, with all that an answer says of it."""

    code: str
    body: dict[str, Any]
    retry_after: float | None = None
    leader: str | None = None

    @classmethod
    def of(cls, error: HetschedError) -> Told:
        leader = error.leader if isinstance(error, Unavailable) else None
        return cls(code=error.code, body=error.body(), retry_after=error.retry_after, leader=leader)

    def error(self) -> Problem | TooBusy | Unavailable:
        detail = self.body["detail"]
        if self.code == TooBusy.code and self.retry_after is not None:
            return TooBusy(detail, retry_after=self.retry_after)
        if self.code == Unavailable.code and self.retry_after is not None:
            return Unavailable(detail, leader=self.leader, retry_after=self.retry_after)
        errors, status = self.body.get("errors", ()), self.body["status"]
        title, kind = self.body["title"], self.body["type"]
        return Problem(detail, errors=errors, code=self.code, status=status, title=title, type=kind)


class Standing(Said, frozen=True, kw_only=True):
    """How the deciding process is. `refusal`: why nothing is taken now; None = it takes. `epoch`: None = it does not lead."""

    state: str
    epoch: int | None
    refusal: Told | None
    durability: str
    tokens: tuple[Token, ...]


class Welcome(Said, frozen=True, kw_only=True):
    """First word to a new front end. `hosts`: as Desk has them."""

    config: Config
    hosts: list[str] | None
    insecure: bool
    standing: Standing


class Answered(Said, frozen=True, kw_only=True):
    """A BundleReply. `ids` empty: as they were asked for."""

    ticket: int
    ids: bytes
    states: bytes
    refused: dict[int, Told]
    placements: dict[str, dict[str, Any]]


class AnsweredArray(Said, frozen=True, kw_only=True):
    """An ArrayReply."""

    ticket: int
    first: str
    count: int
    placements: dict[str, dict[str, Any]]


class AnsweredWhole(Said, frozen=True, kw_only=True):
    """A SubmitReply."""

    ticket: int
    reply: SubmitReply


class Failed(Said, frozen=True, kw_only=True):
    """Nothing of it was taken, or nobody knows."""

    ticket: int
    error: Told


class TurnAway(Said, frozen=True, kw_only=True):
    """This client's address has too many connections, of all front ends together."""

    connection: int
    address: str


class Drain(Said, frozen=True, kw_only=True):
    """Accept nothing more, answer what is under way, end."""


FromFront = Serving | Kinds | Tasks | ArrayOf | Whole | Entered | Left | Counted
ToFront = Welcome | Standing | Answered | AnsweredArray | AnsweredWhole | Failed | TurnAway | Drain


def _rejection(refused: Refused) -> Rejection:
    problem = refused.problem.error()
    assert isinstance(problem, Problem), "readers refuse with nothing else"
    return Rejection(refused.index, problem, refused.id)
