"""Word facts: what a journal frame says in words, beside the core's packed records.

Each is a tagged msgpack array; `apply` in `books.py` is the only code that turns one into state, live and at replay alike.
Tags are in journals: never reuse one, add at the end, give new fields defaults.
"""

from __future__ import annotations

import msgspec

from hetsched._core import array_keys
from hetsched.model import NodeSpec, QueueSpec
from hetsched.policy.feedback import Settings
from hetsched.policy.profiles import Profile

KIND = 1  # the core's `kind` argument; one kind of payload so far


class Word(msgspec.Struct, frozen=True, array_like=True):
    """Base of all word facts."""


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Tasks of one submission that follow one another and differ in id, deadline and priority only.

    `body`: the template as msgpack, None when its slot is in use already. `array`: (prefix, first, count) instead of `ids`.
    `flags`: the core's. Times in ns since 1970.
    """

    template: int
    flags: int
    body: bytes | None = None
    ids: tuple[str, ...] = ()
    array: tuple[str, int, int] | None = None
    deadlines_ns: tuple[int, ...] | None = None
    priorities: tuple[int, ...] | None = None

    def keys(self) -> list[str]:
        """The ids in order."""
        if self.array is None:
            return list(self.ids)
        prefix, first, count = self.array
        return [f"{prefix}{i}" for i in range(first, first + count)]


class Submitted(Word, frozen=True, array_like=True, tag=1):
    """Accepted tasks, in order."""

    at_ns: int
    runs: tuple[Run, ...]


class NodeKnown(Word, frozen=True, array_like=True, tag=2):
    """A node joined for the first time, or again with other hardware (nothing of it is allocated then)."""

    spec: NodeSpec


class NodeMarked(Word, frozen=True, array_like=True, tag=3):
    """Where the node stands. up: joined and not lost. silent: its link is gone. cordoned, draining: an operator's hand."""

    node: str
    up: bool
    silent: bool
    cordoned: bool
    draining: bool
    boot_id: str = ""


class DeviceMarked(Word, frozen=True, array_like=True, tag=4):
    """health: healthy | suspect | failed."""

    node: str
    device: str
    health: str
    reason: str = ""


class QueueKnown(Word, frozen=True, array_like=True, tag=5):
    """A queue was made or changed."""

    spec: QueueSpec


class AttemptNoted(Word, frozen=True, array_like=True, tag=6):
    """What the agent said of an attempt's end; the packed fact that follows says what became of it."""

    task: int
    text: str
    exit_code: int | None = None


class BackoffNoted(Word, frozen=True, array_like=True, tag=7):
    """Until when the task that is backing off waits."""

    task: int
    until_ns: int


class StopRenamed(Word, frozen=True, array_like=True, tag=8):
    """A task that was being stopped for one reason is now stopped for another (a victim is cancelled)."""

    task: int
    reason: int


class KeyRemembered(Word, frozen=True, array_like=True, tag=9):
    """An Idempotency-Key, the digest of its body and the ids that it stands for."""

    key: str
    digest: bytes
    single: bool
    ids: tuple[str | None, ...]
    array: tuple[str, int] | None = None


class Audited(Word, frozen=True, array_like=True, tag=10):
    """Who changed what: kept in the journal."""

    at_ns: int
    actor: str
    action: str
    subject: str


class Counted(Word, frozen=True, array_like=True, tag=11):
    """Counters at the end of a turn: the next event's number and the next generated id."""

    event_seq: int
    id_seq: int


class ShapeKnown(Word, frozen=True, array_like=True, tag=12):
    """A shape was judged before any task of it was accepted (`reject_unsatisfiable`): it has its slot from here on."""

    body: bytes


class ProfilesImported(Word, frozen=True, array_like=True, tag=13):
    """Profiles from elsewhere replace those of their keys. What is learned here needs no word: it follows from ended attempts."""

    profiles: tuple[Profile, ...]


class Measured(Word, frozen=True, array_like=True, tag=14):
    """What live attempts use: (task, cpu in millicores, bytes, utilisation of its devices in thousandths); -1 = not measured.
    `settings`: what the feedback controller turned because of what has ended."""

    at_ns: int
    uses: tuple[tuple[int, int, int, int], ...] = ()
    settings: Settings | None = None


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What `count` tasks of one frame have in common. `body`: the template as msgpack, None when its slot is in use already."""

    template: int
    flags: int
    count: int
    body: bytes | None = None
    deadline_ns: int | None = None
    priority: int = 0


class Bundled(Word, frozen=True, array_like=True, tag=20):
    """Accepted tasks of many templates, in order. `ids`: joined by newlines; `array`: (prefix, count) instead. `which`: an uint16 a task,
    its head; empty where all have the first. None of them is in a gang or held."""

    at_ns: int
    heads: tuple[Head, ...]
    ids: bytes
    which: bytes = b""
    array: tuple[str, int] | None = None

    def keys(self) -> bytes:
        """The ids in order, joined by newlines."""
        return self.ids if self.array is None else array_keys(self.array[0].encode(), 0, self.array[1])


class CutSaid(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a graph's operator that became a task: samples `begin`..`end`, as the operator's `alternative`, wished to `node` and its
    `model`. `seconds`: what its run is expected to take there. `number`: of the operator's cuts."""

    operator: int
    number: int
    begin: int
    end: int
    alternative: int
    node: str
    model: str
    seconds: float


class Graphed(Word, frozen=True, array_like=True, tag=15):
    """Of a graph: it was accepted (`body`), cut (the tasks are in a `Submitted` before this), or cancelled."""

    graph: str
    at_ns: int
    body: bytes | None = None
    cuts: tuple[CutSaid, ...] = ()
    is_cancelled: bool = False


class Sent(Word, frozen=True, array_like=True, tag=31):
    """A parcel for another cell (`cells/letters.py`). `marks`: of its tasks as they were asked for, 8 bytes each."""

    cell: str
    number: int
    at_ns: int
    why: str = ""
    actor: str = ""
    tasks: tuple[bytes, ...] = ()
    marks: tuple[bytes, ...] = ()
    cancels: tuple[str, ...] = ()


class Answered(Word, frozen=True, array_like=True, tag=32):
    """What that cell did with it: all but `refused` (places in it) are its tasks now, and those are ours for good."""

    cell: str
    number: int
    refused: tuple[int, ...] = ()


class Heard(Word, frozen=True, array_like=True, tag=33):
    """Our inbox was dealt with up to `at`. Where a parcel was the next of its `sender`: its number, what was refused of it, and up to which
    number that one has heard our verdicts."""

    at: str
    sender: str = ""
    number: int = 0
    refused: tuple[int, ...] = ()
    acked: int = 0


AnyWord = (
    Submitted
    | NodeKnown
    | NodeMarked
    | DeviceMarked
    | QueueKnown
    | AttemptNoted
    | BackoffNoted
    | StopRenamed
    | KeyRemembered
    | Audited
    | Counted
    | ShapeKnown
    | ProfilesImported
    | Measured
    | Bundled
    | Graphed
    | Sent
    | Answered
    | Heard
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyWord).decode
