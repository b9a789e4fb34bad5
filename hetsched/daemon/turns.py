"""The turn loop, the one place where things change: inputs → scheduler.step → journal → replies, orders, events.

Promises: one step at a time, in one task; nothing a turn says leaves before its facts are durable, and then in the order of
turns; the next turn is computed while at most `IN_FLIGHT` appends are on their way; the loop sleeps until an input
comes or until the scheduler's own `wake_ns`, it never polls. When the journal is lost the loop ends with that error, because the
state in memory is ahead of what anybody may be told: the process has to start again from the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from hetsched._scan import Filling, answer_all, fail_all
from hetsched.daemon.clock import Clock
from hetsched.daemon.inbox import Inbox
from hetsched.errors import HetschedError, Unavailable
from hetsched.scheduler.messages import Input, Reply, Turn

if TYPE_CHECKING:
    from hetsched._scan import Asker

IN_FLIGHT = 4
"""Appends on their way at once. More would only lengthen the tail: the server fsyncs once per round of its loop anyway."""

MOST_WAITING = 64
"""Turns without facts that wait behind one that is not durable yet; more would fill the memory while the store is away."""

BESIDE_URGENT, CALM_S = 1, 1.0
"""So many of other turns while the immediate lane was asked for within the last second: an urgent task's frame waits for those before it. Its
own may always be one more. (With two of them it waited 0.8 ms longer in the mean, of 2.8; bulk was placed as fast with one.)"""

REST_S, LONGEST_SLEEP_S = 0.001, 3600.0
"""Bounds of a sleep before a turn without inputs: a wake time that stays in the past must not cost a core, and one in the year 9999
no overflow; an empty turn an hour costs nothing."""

LEAST_CROWD, CROWD, LINGER_S = 8, 44, 0.001
"""After a turn with so many single requests the next one waits for as many, and a moment at most: a turn costs as much as thirty of them.
Where more than `CROWD` came, for two thirds: those who have been answered ask anew while the others have their turn. Who comes alone is not
made to wait, and urgent tasks are not either."""

LEAST_HEARD, HEARD_LINGER_S = 8, 0.004
"""After a turn in which so many agents told of many attempts, the next one waits a moment for as many, unless something else comes: what
is heard of each node alone costs a turn each, and nobody waits for an answer."""

FROZEN_RETRY_S = 30.0
"""Somebody has to mend the journal first."""

READ_PATIENCE_S = 10.0
"""A reader waits so long for the journal; then 503 is the truth. Writers wait on: their outcome is unknown until it is known."""


class Steps(Protocol):
    """What the loop needs of the scheduler."""

    def step(self, inputs: list[Input], now_ns: int, *, only_urgent: bool = False) -> Turn: ...

    def wake_ns(self) -> int | None: ...


class Journal(Protocol):
    """What the loop needs of the store: appends are durable in the order in which they were called."""

    def append(self, facts: bytes) -> Awaitable[Any]: ...


class Taken(msgspec.Struct):
    """One turn on its way out. Times are monotonic seconds; `cpu_s`: processor time of its step."""

    turn: Turn
    inputs: int
    confirmed: asyncio.Future[Any] | None
    released: asyncio.Future[None]
    began_s: float
    stepped_s: float
    cpu_s: float = 0.0
    holds_slot: bool = True
    is_urgent: bool = False


class TurnLoop:
    """`release(taken)` is called once per turn, in order, when its facts are durable; replies have been resolved by then. `admit`
    raises where no new tasks are taken; it is asked once a bundle of singles. `frozen`: not empty = nothing may change, and why."""

    def __init__(
        self,
        scheduler: Steps,
        journal: Journal,
        clock: Clock,
        inbox: Inbox,
        release: Callable[[Taken], None],
        after_step: Callable[[Taken], None] = lambda taken: None,
        admit: Callable[[], None] = lambda: None,
        frozen: str = "",
    ) -> None:
        self.scheduler = scheduler
        self.journal = journal
        self.clock = clock
        self.inbox = inbox
        self._release = release
        self._after_step = after_step
        self._admit = admit
        self._frozen = frozen
        self._tickets: dict[int, asyncio.Future[Any]] = {}
        self._crowd = 0  # single requests in the last turn
        self._heard = 0  # what agents told of many attempts in it
        self._askers: dict[int, list[Asker]] = {}
        self._last_ticket = 0
        self._due = asyncio.Event()
        self._pressed = asyncio.Event()
        self._in_flight = 0  # turns that hold a slot: appends on their way
        self._others_in_flight = 0  # those of them that are not urgent ones alone
        self._moved = asyncio.Event()  # one has come back, or something urgent was asked
        self._was_urgent = False  # the last turn took nothing else
        self._urgent_s = -CALM_S  # when something urgent was asked last
        self._leaving: asyncio.Queue[Taken | None] = asyncio.Queue()
        self._unreleased: deque[Taken] = deque()
        self._closing = False
        self._failure: BaseException | None = None

    # ------------------------------------------------------------------ asking

    def tell(self, item: Input) -> None:
        """Into the next turn; nobody waits for an answer. Where nothing may change it is forgotten: agents tell all again when they join."""
        if self._frozen:
            return
        self._refuse_if_over()
        self.inbox.put(item)
        self._wake()

    async def ask(self, item: Input, *, tasks: int | None = None, is_urgent: bool = False) -> Any:
        """Into the next turn; the answer's value once that turn is durable. A Problem among the answers is raised.

        `tasks`: it is a submission of that many, which a full inbox refuses with TooBusy; `is_urgent`: to the immediate lane.
        """
        self._refuse_if_over()
        ticket, answer = self._new_ticket()
        item = msgspec.structs.replace(item, ticket=ticket)
        try:
            if tasks is None:
                self.inbox.put(item)
            else:
                self.inbox.put_tasks(item, tasks, is_urgent=is_urgent)
            self._wake(is_urgent)
            return await answer
        finally:
            self._tickets.pop(ticket, None)

    def filling(self, is_urgent: bool = False) -> Filling:
        """A bundle for single tasks, of the next turn, that may grow; its askers are answered once it is durable. Raises TooBusy and
        Unavailable as `ask` does."""
        self._refuse_if_over()
        filling = self.inbox.filling(is_urgent=is_urgent)
        if filling is None:
            self._admit()
            self._last_ticket += 1
            filling = self.inbox.fill(self._last_ticket, is_urgent=is_urgent)
            self._askers[self._last_ticket] = filling.askers
            self._wake(is_urgent)
        return filling

    async def settled(self) -> None:
        """Until every turn computed so far is durable: what was read before is true then, and will not be taken back."""
        if self._failure is not None:
            raise Unavailable("the journal is lost; the daemon starts again")
        if not self._unreleased:
            return
        try:
            async with asyncio.timeout(READ_PATIENCE_S):
                await asyncio.shield(self._unreleased[-1].released)
        except TimeoutError:
            raise Unavailable("the journal does not answer, so what is known here may not be told yet") from None

    def _refuse_if_over(self) -> None:
        if self._frozen:
            raise Unavailable(self._frozen, retry_after=FROZEN_RETRY_S)
        if self._closing or self._failure is not None:
            raise Unavailable("the daemon is stopping")

    def _new_ticket(self) -> tuple[int, asyncio.Future[Any]]:
        self._last_ticket += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tickets[self._last_ticket] = answer
        return self._last_ticket, answer

    # ------------------------------------------------------------------ turning

    async def run(self) -> None:
        """Turns until `close`, or until the journal or the scheduler fails (that error is raised)."""
        leaving = asyncio.create_task(self._let_leave(), name="leaving turns")
        turning = asyncio.create_task(self._keep_turning(), name="turns")
        try:
            await asyncio.wait({leaving, turning}, return_when=asyncio.FIRST_EXCEPTION)
            for task in (leaving, turning):
                if task.done():
                    task.result()
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            leaving.cancel()
            turning.cancel()
            self._forsake()

    def close(self) -> None:
        """No new inputs; `run` returns when those taken are answered."""
        self._closing = True
        self._wake()

    async def _keep_turning(self) -> None:
        while True:
            await self._until_due()
            if self._crowd >= LEAST_CROWD and self.inbox.ring_at(self._company(), self._pressed.set):
                await self._linger(LINGER_S)
            elif self._heard >= LEAST_HEARD and self.inbox.is_hearsay:
                await self._linger(HEARD_LINGER_S)
            await self._until_slot()
            if self._closing and not self.inbox:
                self._leaving.put_nowait(None)
                return
            self._take_turn()
            if self.inbox:  # else it waits anyway
                await asyncio.sleep(0)

    def _company(self) -> int:
        """As many singles are worth a turn."""
        return min(self._crowd, max(CROWD, self._crowd * 2 // 3))

    async def _until_slot(self) -> None:
        """Until another append may be on its way."""
        while not (self._in_flight <= IN_FLIGHT if self.inbox.has_urgent else self._has_slot()):
            self._moved.clear()
            await self._moved.wait()

    def _has_slot(self) -> bool:
        """For a turn of all that waits."""
        most = BESIDE_URGENT if time.monotonic() - self._urgent_s < CALM_S else IN_FLIGHT
        return self._in_flight < IN_FLIGHT and self._others_in_flight < most

    async def _until_due(self) -> None:
        if self.inbox or self._closing:
            return
        self._due.clear()
        wake_ns = self.scheduler.wake_ns()
        if wake_ns is None:
            await self._due.wait()
            return
        delay_s = min(max(REST_S, self.clock.seconds_until(wake_ns)), LONGEST_SLEEP_S)
        timer = asyncio.get_running_loop().call_later(delay_s, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()

    def _wake(self, is_urgent: bool = False) -> None:
        self._due.set()
        if is_urgent:
            self._urgent_s = time.monotonic()
            self._moved.set()
        if self._closing or not self.inbox.is_hearsay:
            self._pressed.set()

    async def _linger(self, most_s: float) -> None:
        """A moment, or until what comes presses, or the scheduler has something to do."""
        wake_ns = self.scheduler.wake_ns()
        left_s = most_s if wake_ns is None else min(most_s, self.clock.seconds_until(wake_ns))
        self._pressed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._pressed.wait()

    def _take_turn(self) -> None:
        loop = asyncio.get_running_loop()
        self._was_urgent = only_urgent = self.inbox.has_urgent and not (self._was_urgent and self._has_slot())
        self._crowd = self.inbox.singles()
        self._heard = self._heard if only_urgent else self.inbox.heard
        inputs = self.inbox.take(only_urgent=only_urgent)
        began_s, began_cpu_s = time.monotonic(), time.thread_time()
        turn = self.scheduler.step(inputs, self.clock.now_ns(), only_urgent=only_urgent)
        cpu_s = time.thread_time() - began_cpu_s
        confirmed = asyncio.ensure_future(self.journal.append(turn.facts)) if turn.facts else None
        holds_slot = confirmed is not None or len(self._unreleased) >= MOST_WAITING
        self._in_flight += holds_slot
        self._others_in_flight += holds_slot and not only_urgent
        stepped_s, released = time.monotonic(), loop.create_future()
        taken = Taken(turn, len(inputs), confirmed, released, began_s, stepped_s, cpu_s, holds_slot, only_urgent)
        self._unreleased.append(taken)
        self._leaving.put_nowait(taken)
        self._after_step(taken)

    # ------------------------------------------------------------------ leaving

    async def _let_leave(self) -> None:
        while (taken := await self._leaving.get()) is not None:
            if taken.confirmed is not None:
                await taken.confirmed
            if taken.holds_slot:
                self._in_flight -= 1
                self._others_in_flight -= not taken.is_urgent
                self._moved.set()
            for reply in taken.turn.replies:
                self._answer(reply)
            self._release(taken)
            self._unreleased.popleft()
            taken.released.set_result(None)

    def _answer(self, reply: Reply) -> None:
        askers = self._askers.pop(reply.ticket, None)
        if askers is not None:
            answer_all(askers, reply.value)
            return
        answer = self._tickets.get(reply.ticket)
        if answer is None or answer.done():  # who asked has gone away; the change stands
            return
        if isinstance(reply.value, BaseException):
            answer.set_exception(reply.value)
        else:
            answer.set_result(reply.value)

    def _forsake(self) -> None:
        """Whoever still waits is told that nobody knows."""
        self.inbox.seal()
        for taken in self._unreleased:
            taken.released.set_exception(self._unknown())
            taken.released.exception()  # seen: nobody may be waiting
        for askers in self._askers.values():
            fail_all(askers, self._unknown())
        self._askers.clear()
        for answer in self._tickets.values():
            if not answer.done():
                answer.set_exception(self._unknown())

    def _unknown(self) -> HetschedError:
        return Unavailable(
            "the daemon stopped before this was confirmed; ask again with the same id or Idempotency-Key"
        )
