"""The scanner's typed face; `_scan.pyx` says what it is for and why it is safe."""

from collections.abc import Callable
from typing import Any, Protocol

Read = Callable[[bytes, bytes, bytes, bool], tuple[Any, bool]]

class Recall:
    """`places`: how many skeletons are remembered (a power of two). `read(before, id, after, again)` is asked about a task that is not;
    `again`: one with this skeleton was read already. It returns (value, whether the skeleton is proven and worth remembering)."""

    def __init__(self, places: int, read: Read) -> None: ...
    def one(self, body: bytes, begin: int = 0, end: int = -1) -> tuple[Any, bytes] | None:
        """(value, id or b"") of a body that is one object; None where it is not for this path."""
    def many(
        self, body: bytes, most: int, lines: bool = False
    ) -> tuple[list[Any], list[int], bytes, list[bytes]] | None:
        """(values, counts, which, ids) of a JSON list, or of lines of JSON, of at most `most` objects: the different values, how many tasks have
        each, which of them each task has (an uint16 a task), and their ids (b"": none). None where anything of it is not for this path."""

class Recognised:
    """A task whose like was read before. `known`: for the scheduler. `lane`, and `request` behind the id: for the answer. `is_critical`: its
    answer holds its placement. `is_urgent`: it is the immediate lane's."""

    known: Any
    lane: bytes
    request: bytes
    is_critical: bool
    is_urgent: bool
    def __init__(self, known: Any, lane: bytes, request: bytes, is_critical: bool) -> None: ...

class Head:
    """`length`: bytes of the body. `token`: who asks, by `actor`; it carries the scope `submit`. `is_free`: it may submit whatever it likes."""

    length: int
    token: Any
    actor: str
    is_free: bool
    def __init__(self, length: int, token: Any, actor: str, is_free: bool) -> None: ...

class Asker(Protocol):
    """Who submitted a single task. Told once for each, in order, then `told` once a turn."""

    def answered(self, reply: Any, index: int) -> None: ...
    def failed(self, error: Any) -> None: ...
    def told(self) -> None: ...

class Filling:
    """A bundle of singles that further ones may join until it is sealed: at most `room`. `askers`: who waits for each. `ring`, if there is one, is
    called once, when there are `enough`. The bundle's `counts` and `which` are there once it is sealed."""

    bundle: Any
    askers: list[Asker]
    is_sealed: bool
    room: int
    enough: int
    ring: Callable[[], None] | None
    may_grow: bool
    def __init__(self, bundle: Any, room: int) -> None: ...
    def __len__(self) -> int: ...
    def add(self, known: Any, ident: bytes, actor: str, asker: Asker) -> None:
        """One more."""
    def seal(self) -> None:
        """Nobody joins any more."""

class Singles:
    """What the lanes of one listener share. `recall` gives Recognised; `states`: the core's codes as words; `most_open`: requests of one
    connection that may wait for their turn. `desk`: has `taker` (None: nothing is taken now) and `tokens` (another object: heads that were found
    mean nothing any more). Whoever inherits answers what follows."""

    desk: Any
    def __init__(self, desk: Any, recall: Recall, states: list[bytes], most_open: int) -> None: ...
    def find(self, head: bytes) -> Head | None:
        """What follows the request line, blank line and all. None: it is not for this path."""
    def may(self, token: Any, task: Recognised) -> bool:
        """Whether that token may submit it."""
    def open(self, is_urgent: bool) -> Filling | None:
        """A bundle that may grow, of urgent tasks or of others; None where nothing is taken now."""
    def read_by(self, sockets: Sockets | None) -> None:
        """From now on lanes may read and write by themselves, there; None = no longer."""
    def common(self) -> tuple[bytes, bytes, float]:
        """(end of a head, durability, now in monotonic seconds) of this turn's answers."""
    def refusal(self, error: Any) -> bytes:
        """All of an answer that refuses."""
    def placement(self, placements: Any, ident: bytes) -> bytes:
        """The part of an answer that says where it was placed; empty, if it was not."""
    def location(self, ident: bytes) -> bytes:
        """Where a task of an unusual name is read."""

class Lane:
    """The fast path of one connection; an Asker. `open`: requests that wait for their turn. `wire.lane_is_empty()` is called when all its answers
    are out, if `is_waited_for`; `wire.given_back(rest)` when the lane reads by itself no longer, with what it read and is not for it, and
    `wire.broken(error)` when it cannot go on. `said_s`: when it said something last."""

    open: int
    is_waited_for: bool
    said_s: float
    def __init__(self, all: Singles, wire: Any) -> None: ...
    def connect(self, write: Callable[[bytes], Any] | None) -> None:
        """Where answers go; None = nowhere any more."""
    def read_alone(self, socket: int) -> bool:
        """Read, and answer, by itself until something comes that is not for it; False where that is not possible. The transport reads no more,
        and has nothing left to write."""
    def take(self, data: bytes) -> int:
        """Take in the requests with which the data begins; the number of bytes taken."""
    def answered(self, reply: Any, index: int) -> None: ...
    def failed(self, error: Any) -> None: ...
    def told(self) -> None: ...

class Sockets:
    """Those of the lanes that read alone; its length is their number. `ready` is to be called whenever its own descriptor is readable."""

    def __len__(self) -> int: ...
    def fileno(self) -> int: ...
    def ready(self) -> None:
        """Take in what has come."""

def answer_all(askers: list[Asker], reply: Any) -> None:
    """Each his own, in order; then each is told that it was all."""

def fail_all(askers: list[Asker], error: Any) -> None:
    """All the same."""
