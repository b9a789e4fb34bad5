"""The append lane: frames leave in order, at most four unanswered at a time, and each until its fate is known.

A cut or a timeout leaves the fate of every unanswered frame unknown. The lane then connects again and resends the same bytes
under the same (epoch, seq); the store's fence recognises those that had arrived. Callers only see latency. Promise: futures
resolve in order of the calls, and only for frames that the store has confirmed.

Why a window of four: the server syncs once per turn of its own loop, so frames sent together share one sync; beyond four,
256 KB frames gained nothing. Why the first answer that is not a yes ends the connection: the frames behind it are then
refused as out of order, which says nothing about the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable

from hetsched.errors import Deposed, StoreLost
from hetsched.store.backend import Answer, Link, Verdict
from hetsched.store.base import Position, Regressed, Unreachable
from hetsched.store.ending import end
from hetsched.store.frame import Frame, encode
from hetsched.store.patience import Backoff

log = logging.getLogger("hetsched.store")

WINDOW = 4
ANSWER_TIMEOUT_S = 10.0
STUCK_NS = 2_000_000_000


class _Pending:
    """A frame whose fate is not known yet."""

    __slots__ = ("frame", "future", "since_ns")

    def __init__(self, frame: Frame, future: asyncio.Future[None]) -> None:
        self.frame = frame
        self.future = future
        self.since_ns = time.monotonic_ns()


class _TryAgain(Exception):
    """The store refused for now (full). The text is its reason."""


class Appender:
    """One epoch's lane. `on_lost` is told once, with the error that all further calls get."""

    def __init__(
        self, dial: Callable[[], Awaitable[Link]], epoch: int, last: Position, on_lost: Callable[[StoreLost], None]
    ) -> None:
        self._dial = dial
        self.epoch = epoch
        self._on_lost = on_lost
        self.assigned = last
        self.confirmed = last
        self.connected = False
        self.refusal = ""
        self.error: StoreLost | None = None
        self.appends_total = 0
        self.bytes_total = 0
        self.resent_total = 0
        self.links_total = 0
        self.last_append_ns = 0
        self._queue: deque[_Pending] = deque()  # oldest first; the first `_sent` are on the present link
        self._sent = 0
        self._most_sent = 0  # highest seq ever sent: below it, a send is a resend
        self._loop = asyncio.get_running_loop()
        self._asked_s = 0.0  # by its clock: when the oldest frame on the link was sent, or the one before it answered
        self._moved = asyncio.Event()
        self._to_send, self._to_hear = asyncio.Event(), asyncio.Event()  # each half is woken for what is its own
        self._backoff = Backoff()
        self._task = asyncio.create_task(self._run(), name="store-appender")

    @property
    def in_flight(self) -> int:
        """Frames without an answer, sent or not."""
        return len(self._queue)

    @property
    def stuck(self) -> bool:
        """Whether the oldest frame has waited for more than `STUCK_NS`: the caller should stop taking work in."""
        return bool(self._queue) and time.monotonic_ns() - self._queue[0].since_ns > STUCK_NS

    def append(self, payload: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(_mark_seen)
        if self.error is not None:
            future.set_exception(self.error)
            return future
        frame = encode(self.epoch, self.assigned, payload)
        self.assigned = frame.position
        self._queue.append(_Pending(frame, future))
        self._moved.set()
        self._to_send.set()
        return future

    async def drained(self) -> None:
        """Wait until every frame appended so far is confirmed, or the lane has failed."""
        while self._queue and self.error is None:
            await self._wait_moved()

    async def kept(self, seq: int) -> None:
        """Wait until frame `seq` is confirmed; raises the lane's error if it fails before."""
        while self.confirmed.seq < seq:
            if self.error is not None:
                raise self.error
            await self._wait_moved()

    async def close(self, timeout_s: float) -> None:
        """Give what is in flight `timeout_s` to become known; what is not, fails as unknown."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.drained(), timeout_s)
        await end(self._task)
        self._fail(StoreLost("the store was closed; what was still in flight may or may not be kept"))

    async def _run(self) -> None:
        while self.error is None:
            await self._work()
            try:
                await self._over_one_link()
            except (Unreachable, _TryAgain) as error:
                self._tell(error)
                await self._backoff.pause()
            except StoreLost as error:
                self.lose(error)
            except Exception as error:
                log.exception("journal: the append lane broke")
                self.lose(StoreLost(f"the append lane broke: {error!r}"))

    def _tell(self, error: Exception) -> None:
        level = logging.WARNING if self._backoff.worth_telling else logging.DEBUG
        log.log(level, "journal: %s; %d frames wait, again in %g s", error, len(self._queue), self._backoff.pause_s)

    async def _work(self) -> None:
        while not self._queue:
            self._moved.clear()
            await self._moved.wait()

    async def _over_one_link(self) -> None:
        """Send and receive until the link ends, which is always by an exception."""
        link = await self._dial()
        self.links_total += 1
        self.connected = True
        self._sent = 0
        works = (self._send_all(link), self._receive_all(link), self._watch())
        tasks = [asyncio.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.connected = False
            await end(*tasks, again_s=0.05)
            await link.close()

    async def _send_all(self, link: Link) -> None:
        while True:
            while self._sent < min(WINDOW, len(self._queue)):
                frame = self._queue[self._sent].frame
                self._count_sending(frame)
                await link.send(frame)
            self._to_send.clear()
            await self._to_send.wait()

    async def _receive_all(self, link: Link) -> None:
        while True:
            while self._sent:
                self._settle(await link.receive())
            self._to_hear.clear()
            await self._to_hear.wait()

    async def _watch(self) -> None:
        """Until an answer is overdue. It looks now and then: to set a timer for each answer costs more than to hear it."""
        while True:
            await asyncio.sleep(ANSWER_TIMEOUT_S / 4)
            if self._sent and self._loop.time() - self._asked_s > ANSWER_TIMEOUT_S:
                raise Unreachable(f"no answer for {ANSWER_TIMEOUT_S:g} s")

    async def _wait_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _count_sending(self, frame: Frame) -> None:
        self._sent += 1
        if self._sent == 1:
            self._asked_s = self._loop.time()
            self._to_hear.set()
        if frame.position.seq <= self._most_sent:
            self.resent_total += 1
        self._most_sent = max(self._most_sent, frame.position.seq)

    def _settle(self, verdict: Verdict) -> None:
        """The answer to the oldest frame."""
        pending = self._queue[0]
        if verdict.answer not in (Answer.STORED, Answer.DUPLICATE):
            raise self._refused(pending.frame.position.id, verdict)
        self._queue.popleft()
        self._sent -= 1
        self._moved.set()
        if self._sent < len(self._queue):
            self._to_send.set()
        self._backoff.reset()
        self.refusal = ""
        self.confirmed = pending.frame.position
        self.appends_total += 1
        self.bytes_total += len(pending.frame.data)
        self._asked_s = self._loop.time()
        self.last_append_ns = time.monotonic_ns() - pending.since_ns
        if not pending.future.done():
            pending.future.set_result(None)

    def _refused(self, frame_id: str, verdict: Verdict) -> Exception:
        match verdict.answer:
            case Answer.REFUSED:
                self.refusal = verdict.detail
                return _TryAgain(f"the server refuses to write: {verdict.detail}")
            case Answer.DEPOSED:
                return Deposed(f"frame {frame_id}: a higher epoch leads, the journal is at {verdict.detail}")
            case Answer.BEHIND:
                return Regressed(
                    f"frame {frame_id}: the store is at {verdict.detail} and lacks frames it had confirmed"
                )
            case Answer.MISMATCH:
                return StoreLost(f"frame {frame_id}: the store holds another frame of this number")
            case Answer.EMPTY:
                return Regressed(f"frame {frame_id}: the store came back empty")
            case _:
                return StoreLost(f"frame {frame_id}: {verdict.detail}")

    def lose(self, error: StoreLost) -> None:
        """The end: what waits fails with `error`, so does whatever is appended later."""
        if self.error is not None:
            return
        self._fail(error)
        if asyncio.current_task() is not self._task:
            self._task.cancel()
        self._on_lost(error)

    def _fail(self, error: StoreLost) -> None:
        self.error = self.error or error
        self._moved.set()
        while self._queue:
            future = self._queue.popleft().future
            if not future.done():
                future.set_exception(self.error)


def _mark_seen(future: asyncio.Future[None]) -> None:
    """An append nobody waits for any more must not be reported by the loop as a forgotten exception."""
    if not future.cancelled():
        future.exception()
