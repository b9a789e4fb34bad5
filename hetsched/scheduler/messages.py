"""What goes into a turn and what comes out of it: inputs, replies, orders, events.

`Scheduler.step(inputs, now_ns) -> Turn`. Inputs are facts about the outside in the order in which they were heard; the three
kinds of outputs leave only after the turn's facts are durable. To add an input: a Struct here, a handler `_on_<input>` in
`turn.py`, a line in the README's table, a story in `tests/scheduler/`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec

from hetsched import _core, wire
from hetsched._core import Run
from hetsched.errors import HetschedError
from hetsched.model import NodeSpec, QueueSpec, Submission, Task, runs
from hetsched.model.graph import Graph
from hetsched.model.ids import Ids
from hetsched.policy.profiles import Profile
from hetsched.scheduler.cells.digest import Digest
from hetsched.scheduler.cells.letters import Delivered, Letter
from hetsched.scheduler.cluster import Faces
from hetsched.scheduler.rendering import placement_json


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """`ticket`: who waits for the answer; 0 = nobody. `actor`: for the audit record (token name or agent)."""

    ticket: int = 0
    actor: str = ""


# ---------------------------------------------------------------------- from clients


class Submit(Input, frozen=True, kw_only=True):
    """Parsed and validated bodies. Reply value: SubmitReply."""

    submission: Submission
    idempotency_key: str | None = None


class Known(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What many tasks have in common, read once: `task` without id, its `body` as a template, and the core's `flags`."""

    task: Task
    body: bytes
    flags: int


class Bundle(Input, frozen=True, kw_only=True):
    """Tasks of known kinds, in order, without Python objects of their own: `which[i]` (uint16) says which of `known` the i-th is, `counts`
    how many each of those has, `ids` how they are called (b"": make one up). None of them is in a gang, waits for others or expires.

    `single`: each was a request of its own, by `actors[i]`; else all are one list, by `actor`. Reply value: BundleReply; of a list of which
    anything was refused, SubmitReply."""

    known: list[Known]
    which: bytearray
    counts: list[int]
    ids: list[bytes]
    single: bool = False
    actors: list[str] = []


class Array(Input, frozen=True, kw_only=True):
    """`count` tasks of one kind that can be in a Bundle, called `base`-0 and so on; "": make one up. Reply value: ArrayReply; SubmitReply where
    anything was refused."""

    known: Known
    base: str
    count: int


class Cancel(Input, frozen=True, kw_only=True):
    """By ids, or by selector (queue, label "k=v", qos, state; all given ones must match).
    Reply value: {"cancelled": [ids], "already_ended": [ids], "unknown": [ids]}; for one id alone: Problem 404 / 409."""

    ids: tuple[str, ...] = ()
    queue: str | None = None
    label: str | None = None
    qos: str | None = None
    state: str | None = None


class Finish(Input, frozen=True, kw_only=True):
    """End of a lease-only task, said by its client. Stale attempt: Problem 409."""

    task: str
    attempt: int
    succeeded: bool
    reason: str = ""


class Operate(Input, frozen=True, kw_only=True):
    """hold | release | requeue | priority of one task. Reply value: the task as JSON."""

    verb: str
    task: str
    priority: int = 0


class OperateNode(Input, frozen=True, kw_only=True):
    """drain | cordon | uncordon. Reply value: the node as JSON."""

    verb: str
    node: str


class SetQueue(Input, frozen=True, kw_only=True):
    """Reply value: the queue as JSON."""

    queue: QueueSpec


class ImportProfiles(Input, frozen=True, kw_only=True):
    """Profiles learned elsewhere. Reply value: {"imported": N}."""

    profiles: tuple[Profile, ...]


class SubmitGraph(Input, frozen=True, kw_only=True):
    """Parsed and validated. Reply value: {"id", "state", "operators"}; the same graph under the same id again is the same graph.
    `body`: as `graphs.state.encode` makes it of a large one, beforehand."""

    graph: Graph
    body: bytes | None = None


class CancelGraph(Input, frozen=True, kw_only=True):
    """All of it. Reply value: {"id", "state"}; Problem 404 / 409."""

    graph: str


# ---------------------------------------------------------------------- from other cells


class DigestsHeard(Input, frozen=True, kw_only=True):
    """All other cells that there are, as they were last heard of. `silent`: those that have not been heard lately: what they could take some
    day is still known, what they have room for is not."""

    digests: tuple[Digest, ...]
    silent: frozenset[str] = frozenset()


class LettersHeard(Input, frozen=True, kw_only=True):
    """The next entries of our inbox, in order."""

    letters: tuple[Delivered, ...]


class Remind(Input, frozen=True, kw_only=True):
    """Parcels without a verdict for so long are written again."""

    after_ns: int


# ---------------------------------------------------------------------- from nodes


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent knows of one attempt. state: prepared | running | ended."""

    task: str
    attempt: int
    state: str
    succeeded: bool = False
    exit_code: int | None = None
    reason: str = ""


class NodeJoined(Input, frozen=True, kw_only=True):
    """A node said hello (first time or again). Full state exchange: every attempt that the agent has, running or ended and not yet
    acknowledged. Answered with orders: Start for placed attempts it lacks, Stop for those it should not have, Settled for ended ones."""

    node: NodeSpec
    session: int
    attempts: tuple[AttemptReport, ...] = ()


class NodeLost(Input, frozen=True, kw_only=True):
    """Nothing lives there any more: lease and grace are over, it rebooted, or the operator says so."""

    node: str
    reason: str = "node_lost"


class NodeSilent(Input, frozen=True, kw_only=True):
    """The link is gone; nothing new is placed there until it joins again or is lost."""

    node: str


class AttemptStarted(Input, frozen=True, kw_only=True):
    node: str
    task: str
    attempt: int


class AttemptEnded(Input, frozen=True, kw_only=True):
    """Ended by itself or after a stop. `reason` is kept with the attempt ("exit 1", "time_limit", "cannot_start: …")."""

    node: str
    task: str
    attempt: int
    succeeded: bool
    exit_code: int | None = None
    reason: str = ""


class AttemptsStarted(Input, frozen=True, kw_only=True):
    """AttemptStarted of each. `attempts`: an uint16 each, as many."""

    node: str
    tasks: Ids
    attempts: bytes


class AttemptsSucceeded(Input, frozen=True, kw_only=True):
    """AttemptEnded of each, successfully and without a word. Columns likewise."""

    node: str
    tasks: Ids
    attempts: bytes


HEARD = (AttemptsStarted, AttemptsSucceeded)
"""What follows from these may follow after the next of them: they come from every node at once, and are many runs or one."""


class DeviceHealth(Input, frozen=True, kw_only=True):
    """health: healthy | suspect | failed. Device id `kind-N`."""

    node: str
    device: str
    health: str
    reason: str = ""


class AttemptUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a live attempt uses of its node, as measured; `utilization_milli`: of the devices that it holds. -1: not measured."""

    task: str
    attempt: int
    cpu_milli: int = -1
    memory_bytes: int = -1
    utilization_milli: int = -1


class UseReported(Input, frozen=True, kw_only=True):
    """Uses that changed enough to matter, of attempts on this node."""

    node: str
    uses: tuple[AttemptUse, ...]


# ---------------------------------------------------------------------- outputs


class Reply(msgspec.Struct, frozen=True):
    """Answer to one ticket: a JSON-ready value, or a Problem (an exception instance) to raise."""

    ticket: int
    value: Any


class SubmitReply(msgspec.Struct, frozen=True, kw_only=True):
    """`ids[i]` of every accepted item in order (`None` where rejected); `rejected`: (index, problem body).
    `placements`: id → placement JSON for what the immediate lane placed in this very turn. `waiting` = ids whose state is not terminal."""

    single: bool
    ids: tuple[str | None, ...]
    rejected: tuple[tuple[int, dict[str, Any]], ...] = ()
    states: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    array: tuple[str, int] | None = None
    placements: dict[str, dict[str, Any]] = {}


class BundleReply(msgspec.Struct, frozen=True, kw_only=True):
    """`ids` and `states` (the core's, a byte a task) in order. `refused`: index → why, of singles. `placements`: as in SubmitReply."""

    ids: list[bytes]
    states: bytes
    refused: dict[int, HetschedError] = {}
    placements: dict[str, dict[str, Any]] = {}


class ArrayReply(msgspec.Struct, frozen=True, kw_only=True):
    """`first`: id of the first of `count`. `placements`: as in SubmitReply."""

    first: str
    count: int
    placements: dict[str, dict[str, Any]] = {}


class Order(msgspec.Struct, frozen=True):
    """`message` (a hetsched.wire order) has to reach the agent of `node`."""

    node: str
    message: Any

    def each(self) -> Iterator[Order]:
        """Orders of one attempt each, where it is one of many."""
        if isinstance(self.message, wire.Starts | wire.SettledMany):
            return (Order(self.node, one) for one in self.message.each())
        return iter((self,))


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the event log (CONTRACT, section 5). `seq` grows by one; `t_ns` is the turn's time; `data` the rest of the fields."""

    seq: int
    t_ns: int
    event: str
    task: str | None = None
    attempt: int | None = None
    data: dict[str, Any] = {}

    def line(self) -> dict[str, Any]:
        """As in the log: t in seconds, `data` flattened."""
        out: dict[str, Any] = {"seq": self.seq, "t": self.t_ns / 1e9, "event": self.event}
        if self.task is not None:
            out["task"] = self.task
        if self.attempt is not None:
            out["attempt"] = self.attempt
        out.update(self.data)
        return out

    def frame(self, seq: int) -> bytes:
        """For the stream of runs."""
        return runs.frame(runs.Single(seq, self.line()))


class QueuedRun(msgspec.Struct):
    """`queued` of `count` tasks that came together: events `seq` and following, made when somebody looks at them. `ids`: joined by newlines;
    parted at the first look. Of an array only the `base` is kept: its ids are `base` and a number, from 0 on."""

    seq: int
    t_ns: int
    ids: bytes | list[bytes]
    count: int
    base: bytes | None = None

    def __len__(self) -> int:
        return self.count

    def event(self, seq: int) -> Event:
        """The one with this number."""
        return Event(seq=seq, t_ns=self.t_ns, event="queued", task=self._parted()[seq - self.seq].decode())

    def tasks(self) -> Iterator[str]:
        """Whom they are about."""
        return (ident.decode() for ident in self._parted())

    def frame(self, seq: int) -> bytes:
        """From this event on, for the stream of runs."""
        first = seq - self.seq
        if self.base is not None:
            ids = Ids(self.base, b"", array("I", range(first, self.count)).tobytes())
        elif isinstance(self.ids, bytes) and not first:
            ids = Ids(*_core.part_keys(self.ids))
        else:
            ids = Ids(*_core.part_keys(b"\n".join(self._parted()[first:])))
        return runs.frame(runs.Queued(seq, self.t_ns, ids))

    def _parted(self) -> list[bytes]:
        if self.base is not None:
            self.ids = _core.array_keys(self.base, 0, self.count)
            self.base = None
        if isinstance(self.ids, bytes):
            self.ids = self.ids.split(b"\n")
        return self.ids


class FactRun(msgspec.Struct, frozen=True):
    """Events of plain tasks, one a fact: `seq` and following, made when somebody looks at them. `faces`: the nodes' names as they were;
    `lanes`: by qos level; `about`: template → (kind, qos) of its tasks."""

    seq: int
    t_ns: int
    run: Run
    faces: Faces
    lanes: tuple[str, ...]
    about: dict[int, tuple[str, str]]

    def __len__(self) -> int:
        return len(self.run)

    def event(self, seq: int) -> Event:
        """The one with this number."""
        code, key, attempt, qos, slot, devices = self.run.fact(seq - self.seq)
        data: dict[str, Any] = {}
        if code == _core.F_PLACED:
            node, names = self.faces[slot]
            data = {**placement_json(node, tuple((names[at], share) for at, share in devices)), "lane": self.lanes[qos]}
        return Event(seq=seq, t_ns=self.t_ns, event=EVENT_OF_FACT[code], task=key.decode(), attempt=attempt, data=data)

    def tasks(self) -> Iterator[str]:
        """Whom they are about."""
        return (key.decode() for key in self.run.keys())

    def frame(self, seq: int) -> bytes:
        """From this event on, for the stream of runs."""
        codes, levels, attempts, *ids, nodes, devices = self.run.columns(seq - self.seq)
        machines = {slot: self.faces[slot] for slot in set(memoryview(nodes).cast("I")) if slot != _core.NONE}
        what = codes.translate(_WHAT)
        tasks = Ids(*ids)
        return runs.frame(
            runs.Moves(seq, self.t_ns, _NAMES, what, tasks, attempts, self.lanes, levels, nodes, machines, devices)
        )


EventRun = QueuedRun | FactRun
EVENT_OF_FACT = {_core.F_PLACED: "placed", _core.F_STARTED: "running", _core.F_ENDED: "succeeded"}
_NAMES = tuple(EVENT_OF_FACT.values())
_WHAT = bytes.maketrans(bytes(EVENT_OF_FACT), bytes(range(len(_NAMES))))


class Events(Sequence[Event]):
    """The events of a turn in order. `parts`: as they were said, runs unopened."""

    def __init__(self, parts: Sequence[Event | EventRun]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(1 if isinstance(part, Event) else len(part) for part in self.parts)

    def __iter__(self) -> Iterator[Event]:
        for part in self.parts:
            if isinstance(part, Event):
                yield part
            else:
                yield from (part.event(seq) for seq in range(part.seq, part.seq + len(part)))

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class Orders(Sequence[Order]):
    """The orders of a turn, in order, each about one attempt. `parts`: as they go over the line, those about many unopened."""

    def __init__(self, parts: Sequence[Order]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Order]:
        for part in self.parts:
            yield from part.each()

    @overload
    def __getitem__(self, index: int) -> Order: ...
    @overload
    def __getitem__(self, index: slice) -> list[Order]: ...
    def __getitem__(self, index: int | slice) -> Order | list[Order]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class Turn(msgspec.Struct, frozen=True):
    """All of one step. `facts` empty: nothing to journal, the rest may leave at once (in order). `letters`: to other cells."""

    facts: bytes
    replies: list[Reply]
    orders: Orders
    events: Events
    letters: list[Letter] = []
