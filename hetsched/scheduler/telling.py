"""Facts in people's words: one JSON object a fact, with the names of tasks, nodes and devices where the books know them.

For `hetsched journal export` and `hetsched replay`. A fact is told before it is applied: what it makes is named in it, what it ends is then
still known. Without books (a journal whose snapshot is lost) slots stand in for names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from hetsched import _core
from hetsched._core import split_facts
from hetsched.model import task_to_json
from hetsched.scheduler import words
from hetsched.scheduler.books import Books
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.rendering import iso
from hetsched.scheduler.templates import decode_body

NAME = {
    _core.F_TURN: "turn",
    _core.F_WORDS: "words",
    _core.F_PLACED: "placed",
    _core.F_STARTED: "started",
    _core.F_STOPPING: "stopping",
    _core.F_ENDED: "ended",
    _core.F_REQUEUED: "requeued",
    _core.F_BACKED_OFF: "backed_off",
    _core.F_READY: "ready",
    _core.F_HELD: "held",
    _core.F_CLAIMED: "claimed",
    _core.F_UNCLAIMED: "unclaimed",
    _core.F_PRIORITISED: "prioritised",
    _core.F_FORGOTTEN: "forgotten",
}
Fact = tuple[Any, ...]


def at_ns(facts: bytes) -> int | None:
    """Time of the turn whose frame this is."""
    for _, _, fact in split_facts(facts):
        if not is_told(fact):
            time_ns: Any = fact[1]
            return int(time_ns)
    return None


def kinds(facts: bytes) -> dict[str, int]:
    """How many facts of which name; words by their own."""
    return dict(Counter(name_of(fact) for _, _, fact in split_facts(facts) if fact[0] != _core.F_TURN))


def name_of(fact: Fact) -> str:
    """placed, ended, submitted, node_known, …"""
    if fact[0] != _core.F_WORDS:
        return NAME[fact[0]]
    return snake(type(words.decode(fact[2])).__name__)


def is_told(fact: Fact) -> bool:
    """The beginning of a turn says nothing but its time."""
    return bool(fact[0] != _core.F_TURN)


def facts(frame: bytes) -> list[Fact]:
    """Those of a frame that say something."""
    return [fact for _, _, fact in split_facts(frame) if is_told(fact)]


def tell(frame: bytes) -> Iterator[dict[str, Any]]:
    """Every fact of a frame, without books. With books they are told one by one, while the frame is applied (`snapshot.stepwise`)."""
    return (tell_one(None, fact) for fact in facts(frame))


def tell_one(books: Books | None, fact: Fact) -> dict[str, Any]:
    """One fact, before it is applied."""
    told: dict[str, Any] = {"fact": name_of(fact)}
    if fact[0] == _core.F_WORDS:
        told.update(_word(books, words.decode(fact[2])))
    else:
        told["task"] = _task(books, fact[1])
        told.update(_MORE[fact[0]](books, *fact[2:]))
    return told


# ---------------------------------------------------------------------- packed facts


def _task(books: Books | None, slot: int) -> Any:
    """Its id, or its slot where that is all there is."""
    if books is None or slot == _core.NONE:
        return None if slot == _core.NONE else slot
    try:
        return books.id_of(slot)
    except ValueError:
        return slot


def _placed(books: Books | None, attempt: int, node: int, lane: int, grants: Fact) -> dict[str, Any]:
    name = {_core.LANE_IMMEDIATE: "immediate", _core.LANE_BATCH: "batch"}.get(lane, lane)
    return {"attempt": attempt, **_where(books, node, grants), "lane": name}


def _where(books: Books | None, node: int, grants: Fact) -> dict[str, Any]:
    found = None if books is None else books.cluster.by_slot.get(node)
    if books is None or found is None:
        return {"node": node, "devices": [{"id": index, "share": share} for index, share in grants]}
    devices = books.device_ids(node, grants)
    return {"node": found.name, "devices": [{"id": ident, "share": share} for ident, share in devices]}


def _stopping(books: Books | None, attempt: int, reason: int, by: int) -> dict[str, Any]:
    return {"attempt": attempt, "reason": _reason(reason), "by": _task(books, by)}


def _ended(books: Books | None, attempt: int, state: int, reason: int) -> dict[str, Any]:
    return {"attempt": attempt, "state": str(STATE_OF_CODE[state]), "reason": _reason(reason)}


def _attempt(books: Books | None, attempt: int, reason: int | None = None) -> dict[str, Any]:
    return {"attempt": attempt, **({} if reason is None else {"reason": _reason(reason)})}


def _claimed(books: Books | None, node: int, cost: int, grants: Fact, victims: Fact) -> dict[str, Any]:
    named = [_task(books, victim) for victim in victims]
    return {**_where(books, node, grants), "price_device_seconds": cost / 1e3, "victims": named}


def _held(books: Books | None, flags: int) -> dict[str, Any]:
    by = {_core.HELD_OPERATOR: "operator", _core.HELD_DEPENDENCY: "dependency"}
    return {"held_by": [name for flag, name in by.items() if flags & flag]}


def _nothing(books: Books | None) -> dict[str, Any]:
    return {}


_MORE: dict[int, Any] = {
    _core.F_PLACED: _placed,
    _core.F_STARTED: _attempt,
    _core.F_STOPPING: _stopping,
    _core.F_ENDED: _ended,
    _core.F_REQUEUED: _attempt,
    _core.F_BACKED_OFF: _attempt,
    _core.F_READY: _nothing,
    _core.F_HELD: _held,
    _core.F_CLAIMED: _claimed,
    _core.F_UNCLAIMED: _nothing,
    _core.F_PRIORITISED: lambda books, priority: {"priority": priority},
    _core.F_FORGOTTEN: _nothing,
}


def _reason(code: int) -> str:
    return Reason(code).word if code in set(Reason) else str(code)


# ---------------------------------------------------------------------- words


def _word(books: Books | None, word: words.Word) -> dict[str, Any]:
    match word:
        case words.Submitted(runs=runs):
            told = [{"tasks": run.keys(), **_body(books, run.template, run.body)} for run in runs]
            return {"at": iso(word.at_ns), "runs": told}
        case words.Bundled():
            return {"at": iso(word.at_ns), "runs": list(_runs(books, word))}
        case words.AttemptNoted() | words.StopRenamed() | words.BackoffNoted():
            return {**_plain(word), "task": _task(books, word.task)}
        case words.Measured():
            uses = [[_task(books, use[0]), *use[1:]] for use in word.uses]
            return {**_plain(word), "uses": uses}
        case _:
            told_word: dict[str, Any] = _plain(word)
            return told_word


def _runs(books: Books | None, word: words.Bundled) -> Iterator[dict[str, Any]]:
    """The bundle's tasks by head."""
    ids = word.keys().decode().split("\n")
    which = memoryview(word.which).cast("H") if word.which else [0] * len(ids)
    for number, head in enumerate(word.heads):
        tasks = [ident for ident, its in zip(ids, which, strict=True) if its == number]
        yield {"tasks": tasks, **_body(books, head.template, head.body)}


def _body(books: Books | None, template: int, body: bytes | None) -> dict[str, Any]:
    if body is not None:
        return {"spec": task_to_json(decode_body(body))}
    if books is not None and template in books.templates.by_slot:
        return {"spec": task_to_json(books.templates.task(template))}
    return {"template": template}


def _plain(value: Any) -> Any:
    """Structs by the names of their fields, times as times, bytes as what they hold."""
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return {_shown(name): iso(item) if _is_time(name, item) else _plain(item) for name, item in fields.items()}
    if isinstance(value, bytes):
        return _held_in(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _is_time(name: str, value: Any) -> bool:
    return name in ("at_ns", "until_ns") and isinstance(value, int)


def _shown(name: str) -> str:
    return name.removesuffix("_ns") if name in ("at_ns", "until_ns") else name


def _held_in(data: bytes) -> Any:
    """A body that was packed, or the bytes in hexadecimal."""
    try:
        return msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data.hex()


def snake(name: str) -> str:
    """NodeKnown → node_known."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
