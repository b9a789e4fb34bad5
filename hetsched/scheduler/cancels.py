"""Cancellations, by ids or by selector, a bounded number in a turn; the rest in the turns that follow, and then the answer.

Promises: what is cancelled was there when it was asked for and matches when it is its turn; whoever asks for less than a turn holds is served
in this turn, whatever is under way. A daemon that ends meanwhile has cancelled a part and answers that nobody knows; to ask again is harmless.

Why: a turn is what everybody waits for. To cancel a million waiting tasks in one took nine seconds, to find out that no label matches one.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from hetsched._core import NONE
from hetsched.errors import Conflict
from hetsched.model import Qos, State
from hetsched.scheduler import outcomes
from hetsched.scheduler.cells.clerk import Clerk
from hetsched.scheduler.lifecycle import CODE_OF_STATE, EVERY_MASK, STATE_OF_CODE, TERMINAL_MASK, states_mask
from hetsched.scheduler.messages import Cancel
from hetsched.scheduler.world import World

MOST_A_TURN = 500
"""Of one request, 10 µs each."""

PAGE = 2048
"""Tasks that are looked up at once: a pass over the table, 2 ns for each task that there is."""

MOST_NAMED = 100
"""In the audit."""


class Selector(msgspec.Struct, frozen=True):
    """What `Core.page` is asked. `templates`: a byte for each slot, not 0 where its tasks are meant; b"": all are."""

    states: int
    queue: int
    qos: int
    templates: bytes = b""


class UnderWay(msgspec.Struct):
    """One request. `found`: (id, sequence) of the next that match; all up to the sequence `after` have been found, and those up to `newest`
    are to be."""

    asked: Cancel
    ids: deque[str]
    selector: Selector | None
    newest: int
    after: int = 0
    found: deque[tuple[str, int]] = msgspec.field(default_factory=deque)
    cancelled: dict[str, None] = msgspec.field(default_factory=dict)
    already_ended: list[str] = msgspec.field(default_factory=list)
    unknown: list[str] = msgspec.field(default_factory=list)

    @property
    def is_of_one(self) -> bool:
        """One id alone was asked for, and is answered as such."""
        asked = self.asked
        return len(asked.ids) == 1 and not any((asked.queue, asked.label, asked.qos, asked.state))

    def answer(self) -> dict[str, list[str]]:
        """For all other requests."""
        return {
            "cancelled": list(self.cancelled),
            "already_ended": self.already_ended,
            "unknown": self.unknown,
        }


class Cancels:
    """Handler of Cancel. `go_on` is called once a turn."""

    def __init__(self, world: World, clerk: Clerk) -> None:
        self.world = world
        self._clerk = clerk
        self._under_way: deque[UnderWay] = deque()

    @property
    def is_under_way(self) -> bool:
        """The next turn has something to do."""
        return bool(self._under_way)

    def on_cancel(self, asked: Cancel) -> None:
        one = UnderWay(asked, deque(dict.fromkeys(asked.ids)), self._selector(asked), self.world.core.newest())
        if not self._advance(one):
            self._under_way.append(one)

    def go_on(self) -> None:
        """With the request that has waited longest."""
        if self._under_way:
            one = self._under_way.popleft()
            if not self._advance(one):
                self._under_way.append(one)

    def _selector(self, asked: Cancel) -> Selector | None:
        """None where nothing is selected, or nothing can match."""
        if not any((asked.queue, asked.label, asked.qos, asked.state)):
            return None
        books = self.world.books
        states = EVERY_MASK & ~TERMINAL_MASK
        if asked.state is not None:
            states &= states_mask((CODE_OF_STATE[State(asked.state)],))
        queue = NONE if asked.queue is None else books.queues.slot.get(asked.queue)
        qos = NONE if asked.qos is None else Qos(asked.qos).level
        if queue is None:
            return None
        if asked.label is None:
            return Selector(states, queue, qos)
        key, _, value = asked.label.partition("=")
        meant = [slot for slot, one in books.templates.by_slot.items() if one.task.labels.get(key) == value]
        if not meant:
            return None
        templates = bytearray(max(meant) + 1)
        for slot in meant:
            templates[slot] = 1
        return Selector(states, queue, qos, bytes(templates))

    # -- a turn's part

    def _advance(self, one: UnderWay) -> bool:
        """As far as this turn goes; True: that was all, and it is answered."""
        left = MOST_A_TURN - self._by_id(one)
        while left and self._has_found(one):
            self._by_place(one, *one.found.popleft())
            left -= 1
        if one.ids or one.found or not left:
            return False
        self._answer(one)
        return True

    def _by_id(self, one: UnderWay) -> int:
        """How many ids were looked at."""
        count = min(len(one.ids), MOST_A_TURN)
        ids = [one.ids.popleft() for _ in range(count)]
        unknown = []
        for ident in ids:
            task = self._find(ident)
            if task == NONE:
                unknown.append(ident)
            else:
                self._cancel(one, task)
        sent = self._clerk.cancel([ident for ident in unknown if self._is_ours(ident, one.is_of_one)], one.asked.actor)
        one.cancelled.update(dict.fromkeys(sent))
        one.unknown += [ident for ident in unknown if ident not in sent]
        return count

    def _by_place(self, one: UnderWay, ident: str, sequence: int) -> None:
        """One that was selected, unless it has left, or another one has its id, or it matches no more."""
        task = self._find(ident)
        if task == NONE or one.selector is None:
            return
        row = self.world.core.task(task)
        if row.sequence == sequence and one.selector.states >> row.state & 1:
            self._cancel(one, task)

    def _has_found(self, one: UnderWay) -> bool:
        """There is another one that matches; looks for more of them if need be."""
        selector = one.selector
        if not one.found and selector is not None and one.after < one.newest:
            core = self.world.core
            page = core.page(one.after, PAGE, selector.states, selector.queue, selector.qos, selector.templates)
            rows = ((self.world.books.id_of(task), core.task(task).sequence) for task in page)
            one.found.extend((ident, sequence) for ident, sequence in rows if sequence <= one.newest)
            one.after = one.found[-1][1] if len(one.found) == PAGE else one.newest
        return bool(one.found)

    def _cancel(self, one: UnderWay, task: int) -> None:
        name = self.world.books.id_of(task)
        if outcomes.cancel(self.world, task):
            one.cancelled[name] = None
        else:
            one.already_ended.append(name)

    def _is_ours(self, ident: str, alone: bool) -> bool:
        """One that is on its way to another cell; of many also those that were taken. Who asks for one alone is sent there, where it is known
        how it stands."""
        away = self.world.books.crossings.away.get(ident)
        return away is not None and (away.number > 0 or not alone)

    # -- the end

    def _answer(self, one: UnderWay) -> None:
        self.world.audit(one.asked, "cancel", named(list(one.cancelled)))
        self.world.reply(one.asked, self._about_one(one) if one.is_of_one else one.answer())

    def _about_one(self, one: UnderWay) -> Any:
        (ident,) = one.asked.ids
        if one.unknown:
            return self.world.unknown(ident)
        if one.already_ended:
            state = STATE_OF_CODE[self.world.core.task(self._find(ident)).state]
            return Conflict(f"task {ident} has ended already ({state})")
        return one.answer()

    def _find(self, ident: str) -> int:
        return self.world.core.find(ident.encode())


def named(ids: list[str]) -> str:
    """These, or the first of them and how many more."""
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ",".join(ids[:MOST_NAMED]) + more
