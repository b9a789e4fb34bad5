"""The journal's frames in words, one JSON object each: what was decided when, with the names that things had then.

Promise: every entry of the stream is there, in order; one that cannot be read says so in its place, and those behind it are told by slots.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from hetsched.config import Config
from hetsched.daemon.history import Base, History, open_history
from hetsched.errors import NotFound
from hetsched.scheduler import Scheduler, telling
from hetsched.scheduler.rendering import iso
from hetsched.scheduler.snapshot import stepwise
from hetsched.store.archive import Archive, Entry


async def lines(
    archive: Archive, config: Config, first: str | None = None, last: str | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Those with stream ids from `first` to `last`."""
    names = await _names(archive, config)
    async for entry in archive.entries(await archive.head()):
        line = names.line(entry)
        if first is not None and _order(entry.id) < _order(first):
            continue
        if last is not None and _order(entry.id) > _order(last):
            return
        yield line


class Names:
    """The state as it goes along with the frames, for the names in it. None: it is not known (any more)."""

    def __init__(self, history: History | None) -> None:
        self._history = history
        self._bases: list[Base] = [] if history is None else list(history.bases)
        self._scheduler: Scheduler | None = None
        self._seq = -1

    def line(self, entry: Entry) -> dict[str, Any]:
        """One entry; the state then holds it."""
        line: dict[str, Any] = {"id": entry.id, "bytes": len(entry.data)}
        if entry.fault is not None:
            line["fault"] = f"byte {entry.fault.offset}: {entry.fault.reason}"
        if entry.payload is None or entry.position is None:
            self._scheduler = None
            return line
        self._catch_up(entry.position.seq - 1)
        try:
            at_ns = telling.at_ns(entry.payload)
            facts = list(self._facts(entry.payload))
        except (ValueError, KeyError) as error:
            self._scheduler = None
            return {**line, "fault": f"contradicts the state, or says what this program does not know: {error}"}
        self._seq = entry.position.seq
        return {**line, "at": None if at_ns is None else iso(at_ns), "facts": facts}

    def _facts(self, payload: bytes) -> Iterator[dict[str, Any]]:
        if self._scheduler is None:
            yield from telling.tell(payload)
            return
        books = self._scheduler.books
        for fact in stepwise(books, payload):
            if telling.is_told(fact):
                yield telling.tell_one(books, fact)

    def _catch_up(self, seq: int) -> None:
        """Begin with the base at that frame, if there is one and the state is not that far."""
        if self._scheduler is not None and self._seq != seq:
            self._scheduler = None
        for base in self._bases:
            if self._scheduler is None and base.at.seq == seq and self._history is not None:
                self._scheduler, self._seq = self._history.scheduler(base), seq


async def _names(archive: Archive, config: Config) -> Names:
    try:
        return Names(await open_history(archive, config))
    except NotFound:
        return Names(None)


def _order(where: str) -> tuple[int, int]:
    epoch, _, seq = where.partition("-")
    try:
        return int(epoch), int(seq)
    except ValueError:
        raise NotFound(f"{where!r} is no frame; they are called EPOCH-SEQUENCE") from None
