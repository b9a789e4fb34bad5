"""Stands for the daemon in a front end: takes submissions as the daemon does, passes them on as frames, and answers when they are durable.

Single tasks of one round of the event loop ride in one frame, as those of one turn do in the inbox.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from hetsched._scan import Filling, answer_all, fail_all
from hetsched.daemon.inbox import MOST_IN_BUNDLE, singles_bundle
from hetsched.front import messages as say
from hetsched.front.line import Line
from hetsched.model import TaskDefaults
from hetsched.scheduler.messages import Array, ArrayReply, Bundle, BundleReply, Known, Submit, SubmitGraph

if TYPE_CHECKING:
    from hetsched._scan import Asker

COUNT_EVERY_S = 0.5
MOST_UNANSWERED = 2
"""Frames of single tasks that may be on their way; those that come meanwhile ride together in the next one. A frame costs the deciding process
as much as many tasks, and it answers no sooner for being asked in smaller pieces. Urgent ones do not wait."""


class Deputy:
    """A `Taker` (api/desk.py). `answered_total`, `handed_over_total`: requests answered here; connections given away."""

    def __init__(self, line: Line, task_defaults: TaskDefaults) -> None:
        self.task_defaults = task_defaults
        self.durability = ""
        self.answered_total = 0
        self.handed_over_total = 0
        self._line = line
        self._numbers: dict[int, int] = {}  # identity of a Known → its number, which keeps it alive
        self._kept: list[Known] = []
        self._fillings: dict[bool, Filling | None] = {False: None, True: None}  # by whether it is urgent
        self._askers: dict[int, tuple[list[Asker], list[bytes]]] = {}
        self._waiting: dict[int, tuple[asyncio.Future[Any], list[bytes]]] = {}
        self._unanswered = 0  # frames of single tasks
        self._last_ticket = 0
        self._counted = (0, 0, 0.0)

    # ------------------------------------------------------------------ asking

    def filling(self, is_urgent: bool) -> Filling:
        """As `TurnLoop.filling`; the bundle leaves when everybody whose bytes are there has been read."""
        filling = self._fillings[is_urgent]
        if filling is None or not filling.may_grow:
            self._send_filling(is_urgent)
            self._last_ticket += 1
            filling = self._fillings[is_urgent] = Filling(singles_bundle(self._last_ticket), MOST_IN_BUNDLE)
            self._askers[self._last_ticket] = filling.askers, filling.bundle.ids
            asyncio.get_running_loop().call_soon(self._round_is_over, is_urgent)
        return filling

    def _round_is_over(self, is_urgent: bool) -> None:
        """Of the event loop: whoever could join has."""
        if is_urgent or self._unanswered < MOST_UNANSWERED:
            self._send_filling(is_urgent)

    async def submit(self, item: Submit | Bundle | Array | SubmitGraph, tasks: int) -> Any:
        """As `Daemon.submit`."""
        self._last_ticket += 1
        ticket = self._last_ticket
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = answer, item.ids if isinstance(item, Bundle) else []
        try:
            if isinstance(item, Bundle):
                self._send_bundle(ticket, item, [item.actor])
            elif isinstance(item, Array):
                (kind,) = self._named([item.known])
                self._line.say(
                    say.ArrayOf(ticket=ticket, kind=kind, base=item.base, count=item.count, actor=item.actor)
                )
            else:
                assert isinstance(item, Submit), "graphs are handed over"
                self._line.say(say.Whole.of(ticket, item))
            return await answer
        finally:
            self._waiting.pop(ticket, None)

    def _send_filling(self, is_urgent: bool) -> None:
        filling, self._fillings[is_urgent] = self._fillings[is_urgent], None
        if filling is not None:
            filling.seal()
            if not filling.askers:
                self._askers.pop(filling.bundle.ticket)
                return
            self._unanswered += 1
            actors = filling.bundle.actors
            one = actors[0]
            same = actors.count(one) == len(actors)
            self._send_bundle(filling.bundle.ticket, filling.bundle, [one] if same else actors)

    def _send_bundle(self, ticket: int, bundle: Bundle, actors: list[str]) -> None:
        kinds = self._named(bundle.known)
        self._line.say(
            say.Tasks(
                ticket=ticket,
                kinds=kinds,
                counts=bundle.counts,
                which=bytes(bundle.which) if len(kinds) > 1 else b"",
                ids=b"\n".join(bundle.ids),
                single=bundle.single,
                actors=actors,
            )
        )

    def _named(self, known: list[Known]) -> list[int]:
        """Their numbers; what the other side does not know yet is said."""
        new = [each for each in known if id(each) not in self._numbers]
        if len(self._kept) + len(new) > say.MOST_KINDS:
            self._numbers.clear()
            self._kept.clear()
            new = known
        if new:
            first = len(self._kept)
            self._numbers |= {id(each): first + at for at, each in enumerate(new)}
            self._kept += new
            self._line.say(say.Kinds(first=first, kinds=[say.Kind.of(each) for each in new]))
        return [self._numbers[id(each)] for each in known]

    # ------------------------------------------------------------------ being answered

    def on_answered(self, message: say.Answered) -> None:
        askers, ids = self._askers_of(message.ticket)
        answer, asked = self._waiting.get(message.ticket, (None, ids))
        reply = BundleReply(
            ids=message.ids.split(b"\n") if message.ids else asked,
            states=message.states,
            refused={index: told.error() for index, told in message.refused.items()},
            placements=message.placements,
        )
        self.answered_total += len(askers) or 1
        if askers:
            answer_all(askers, reply)
        self._resolve(answer, reply)

    def _askers_of(self, ticket: int) -> tuple[list[Asker], list[bytes]]:
        """Who waits for this frame, if it is one of single tasks, and the ids; the next one may leave."""
        found = self._askers.pop(ticket, None)
        if found is None:
            return [], []
        self._unanswered -= 1
        self._send_filling(False)
        return found

    def on_array(self, message: say.AnsweredArray) -> None:
        self.answered_total += 1
        reply = ArrayReply(first=message.first, count=message.count, placements=message.placements)
        self._resolve(self._waiting.get(message.ticket, (None,))[0], reply)

    def on_whole(self, message: say.AnsweredWhole) -> None:
        self.answered_total += 1
        self._resolve(self._waiting.get(message.ticket, (None,))[0], message.reply)

    def on_failed(self, message: say.Failed) -> None:
        error = message.error.error()
        askers, _ = self._askers_of(message.ticket)
        self.answered_total += len(askers) or 1
        fail_all(askers, error)
        answer = self._waiting.get(message.ticket, (None,))[0]
        if answer is not None and not answer.done():
            answer.set_exception(error)

    @staticmethod
    def _resolve(answer: asyncio.Future[Any] | None, value: object) -> None:
        if answer is not None and not answer.done():  # else who asked has gone away; the change stands
            answer.set_result(value)

    # ------------------------------------------------------------------ counting

    async def count(self) -> None:
        """Tell what was done here, for the daemon's metrics, for ever."""
        while True:
            await asyncio.sleep(COUNT_EVERY_S)
            self.say_counts()

    def say_counts(self) -> None:
        """What was done since the last time, if anything was: the deciding process sleeps while nobody asks."""
        now = self.answered_total, self.handed_over_total, time.process_time()
        answered, handed_over, cpu_s = (new - old for new, old in zip(now, self._counted, strict=True))
        if answered or handed_over:
            self._counted = now
            self._line.say(say.Counted(answered=int(answered), handed_over=int(handed_over), cpu_s=cpu_s))
