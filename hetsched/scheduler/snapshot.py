"""The whole state as bytes, back from bytes, and journal frames applied to it: what a restart does instead of deciding.

A snapshot is the core's dump and the books' words, versioned. Timers, dependency links and the batch window are consequences of the
state; `rebuild` sets them once after the last frame.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hetsched import _core
from hetsched._core import Core, Room, fact_at, sealed, split_facts
from hetsched.config import Config
from hetsched.model import QueueSpec, Task
from hetsched.policy.feedback import SavedFeedback
from hetsched.policy.profiles import Profile
from hetsched.scheduler import outcomes, words
from hetsched.scheduler.attempts import SavedAttempts
from hetsched.scheduler.books import Books
from hetsched.scheduler.cells.crossings import SavedCrossings
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.gangs import Gang
from hetsched.scheduler.graphs.state import SavedGraphs
from hetsched.scheduler.lifecycle import WAITING_MASK, states_mask
from hetsched.scheduler.templates import ShapeKey, Template
from hetsched.scheduler.timers import Timer
from hetsched.scheduler.uses import Use

if TYPE_CHECKING:
    from hetsched.scheduler.world import World

VERSION = 1
FORGOTTEN = bytes([_core.F_FORGOTTEN])


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """Everything but the core. Fields are added at the end, with defaults."""

    version: int
    now_ns: int
    kinds: list[str]
    models: list[str]
    cluster: tuple[list[Node], list[str], list[str]]
    queues: list[tuple[str, int, QueueSpec]]
    templates: tuple[list[Template], list[int], list[ShapeKey]]
    gangs: list[Gang]
    attempts: SavedAttempts
    backoff_until_ns: list[tuple[int, int]]
    keys: list[words.KeyRemembered]
    audit: list[words.Audited]
    ended: list[int]
    event_seq: int
    id_seq: int
    profiles: list[Profile] = []
    uses: list[tuple[int, Use]] = []
    feedback: SavedFeedback | None = None
    graphs: SavedGraphs = SavedGraphs()
    crossings: SavedCrossings = SavedCrossings()


class Whole(msgspec.Struct, frozen=True, array_like=True):
    """Both halves."""

    core: bytes
    books: Saved


WHOLE = b"\x92"
"""An array of two, in msgpack."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(Whole).decode


def words_of(books: Books, *, past: bool = True) -> Saved:
    """The books without the core. `past` False: without what has ended, which no decision looks at. It holds the books' own objects:
    encode it, or copy what is not frozen (rehearse/image.py)."""
    return Saved(
        version=VERSION,
        now_ns=books.now_ns,
        kinds=books.kinds.words,
        models=books.models.words,
        cluster=books.cluster.save(),
        queues=books.queues.save(),
        templates=books.templates.save(),
        gangs=books.gangs.save(),
        attempts=books.attempts.save() if past else books.attempts.present(),
        backoff_until_ns=sorted(books.backoff_until_ns.items()),
        keys=list(books.keys.values()) if past else [],
        audit=list(books.audit) if past else [],
        ended=list(books.ended) if past else [],
        event_seq=books.event_seq,
        id_seq=books.id_seq,
        profiles=books.profiles.save(),
        uses=books.uses.save(),
        feedback=None if books.feedback is None else books.feedback.save(),
        graphs=books.graphs.save() if past else SavedGraphs(),
        crossings=books.crossings.save(),
    )


class Copied(NamedTuple):
    """The state of a moment: the core's tables and, encoded, the books."""

    core: list[bytes]
    books: bytes

    def sealed(self) -> bytes:
        """As one piece: a `Whole`. That takes longer than copying and lets other threads run meanwhile, so it may happen beside a loop that
        must not wait."""
        parts = sealed(self.core)
        return b"".join((WHOLE, bin_head(sum(map(len, parts))), *parts, self.books))


def room_for(size: int) -> Room:
    """For a copy of `Core.bytes_to_copy` bytes and what they may grow by until it is taken."""
    return Room(size + size // 16)


def copy(books: Books, room: Room | None = None) -> Copied:
    """State → its copy."""
    return Copied(books.core.copied(room), _encode(words_of(books)))


def save(books: Books) -> bytes:
    """State → bytes."""
    return copy(books).sealed()


def bin_head(size: int) -> bytes:
    """What msgpack puts in front of so many bytes."""
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1, "big")
    if size < 1 << 16:
        return b"\xc5" + size.to_bytes(2, "big")
    if size < 1 << 32:
        return b"\xc6" + size.to_bytes(4, "big")
    raise ValueError(f"{size} bytes do not fit in a snapshot")


def load(config: Config, state: bytes) -> Books:
    """Bytes → state. ValueError (msgspec.DecodeError is one) if they are not a snapshot of this version."""
    whole = _decode(state)
    saved = whole.books
    if saved.version != VERSION:
        raise ValueError(f"the snapshot has version {saved.version}, this program reads version {VERSION}")
    return unfold(config, Core.load(whole.core), saved)


def unfold(config: Config, core: Core, saved: Saved) -> Books:
    """Books over a core and the words that belong to it."""
    books = Books(core, config)
    books.now_ns = saved.now_ns
    books.kinds.load(saved.kinds)
    books.models.load(saved.models)
    books.cluster.load(saved.cluster)
    books.queues.load(saved.queues)
    books.templates.load(saved.templates)
    books.gangs.load(saved.gangs)
    books.attempts.load(saved.attempts)
    books.backoff_until_ns.update(saved.backoff_until_ns)
    books.keys.update((word.key, word) for word in saved.keys)
    books.audit.extend(saved.audit)
    books.ended.extend(saved.ended)
    books.profiles.load(saved.profiles)
    books.expectations.load(books.templates.by_slot.values())
    books.uses.load(saved.uses)
    if books.feedback is not None and saved.feedback is not None:
        books.feedback.load(saved.feedback)
    books.graphs.load(saved.graphs)
    books.crossings.load(saved.crossings)
    books.event_seq, books.id_seq = saved.event_seq, saved.id_seq
    books.tell_plain()
    return books


def digest(books: Books) -> int:
    """32 bits over the core and the books, without their time: a turn that changed nothing is in no frame."""
    timeless = msgspec.structs.replace(words_of(books), now_ns=0)
    return zlib.crc32(_encode(timeless), books.core.digest() & 0xFFFFFFFF)


def replay(books: Books, facts: bytes) -> None:
    """Apply one journal frame, one turn, in the order in which it was written; plain facts and forgotten tasks many at a time."""
    core = books.core
    core.replaying = True
    offset = 0
    try:
        while offset < len(facts):
            begin = offset
            if books.takes_runs:
                run, offset = core.apply_run(facts, offset)
                books.record_run(run)
            if facts[offset : offset + 1] == FORGOTTEN:
                books.learn_turn()
                slots, templates, offset = core.apply_forgotten(facts, offset)
                books.forgotten(slots, templates)
            if offset == begin:
                offset, fact = fact_at(facts, offset)
                _replay_one(books, fact, facts[begin:offset])
        books.learn_turn()
    finally:
        core.replaying = False
        core.take_facts()


def stepwise(books: Books, facts: bytes) -> Iterator[tuple[Any, ...]]:
    """The same record by record, each given before it is applied: who stops there has the state in which it was said."""
    core = books.core
    core.replaying = True
    try:
        for begin, end, fact in split_facts(facts):
            yield fact
            _replay_one(books, fact, facts[begin:end])
        books.learn_turn()
    finally:
        core.replaying = False
        core.take_facts()


def _replay_one(books: Books, fact: tuple[Any, ...], record: bytes) -> None:
    if fact[0] == _core.F_WORDS:
        books.apply(words.decode(fact[2]))
        return
    if fact[0] == _core.F_FORGOTTEN:
        books.learn_turn()
        books.about_to_forget(fact[1])
    books.core.apply(record, _no_words)
    books.record(fact)


def _no_words(kind: int, payload: bytes) -> None:
    raise AssertionError("a packed record is no word")


def rebuild(world: World) -> None:
    """Timers and dependency links, from the state alone; only tasks that can have any are looked at."""
    books, core = world.books, world.core
    for task, deadline_ns in expiries(world):
        world.timers.set(Timer.DEADLINE, task, deadline_ns)
    for task in core.concerned(
        WAITING_MASK, _templates(books, lambda _: False), _core.CLAIMING | _core.HELD_DEPENDENCY
    ):
        row, body = core.task(task), world.body(task)
        if row.flags & _core.CLAIMING:
            world.timers.set(Timer.CLAIM, task, books.now_ns + round(120e9))
        if row.flags & _core.HELD_DEPENDENCY:
            outcomes.settle_dependencies(world, task, body)
    for task, until_ns in sorted(books.backoff_until_ns.items()):
        world.timers.set(Timer.BACKOFF, task, until_ns)
    limited = _templates(books, lambda body: body.time_limit is not None)
    for task in core.concerned(states_mask((_core.RUNNING,)), limited, _core.SHAKEN):
        outcomes.watch_run(world, task)
    _watch_gangs(world)


def expiries(world: World) -> Iterator[tuple[int, int]]:
    """(task, deadline in ns) of those that wait and end by their deadline if they still do then."""
    expiring = _templates(world.books, lambda body: body.on_deadline == "expire")
    for task in world.core.concerned(WAITING_MASK, expiring, 0):
        deadline_ns = world.core.task(task).deadline_ns
        if deadline_ns != _core.NEVER_NS:
            yield task, deadline_ns


def _templates(books: Books, matters: Callable[[Task], bool]) -> bytes:
    """A byte for each template's slot: 1 where it matters."""
    chosen = bytearray(1 + max(books.templates.by_slot, default=0))
    for slot, template in books.templates.by_slot.items():
        chosen[slot] = matters(template.task)
    return bytes(chosen)


def _watch_gangs(world: World) -> None:
    """Those that lack members have the whole time again to be made whole: when they lost them is not in the state."""
    until_ns = world.books.now_ns + round(world.config.gang.repair * 1e9)
    for gang in world.books.gangs.by_name.values():
        if world.books.gangs.is_short(gang):
            world.timers.set(Timer.REPAIR, gang.name, until_ns)
