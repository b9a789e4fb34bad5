"""Stand-ins for tests of the loop alone: a scheduler that says what it is told to say, a journal that confirms on command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hetsched.scheduler.messages import Bundle, BundleReply, Event, Events, Input, Reply, Turn


class Echo(Input, frozen=True, kw_only=True):
    """Asks the fake scheduler to reply `say`; `durable` = with facts."""

    say: Any = None
    durable: bool = True


class FakeScheduler:
    """Replies to every Echo, numbers events, and remembers what each step was given."""

    def __init__(self) -> None:
        self.steps: list[list[Input]] = []
        self.times: list[int] = []
        self.wakes: list[int] = []
        self.seq = 0
        self.fail: Exception | None = None

    def step(self, inputs: list[Input], now_ns: int, *, only_urgent: bool = False) -> Turn:
        if self.fail is not None:
            raise self.fail
        self.steps.append(inputs)
        self.times.append(now_ns)
        self.wakes = [wake for wake in self.wakes if wake > now_ns]
        replies = [Reply(item.ticket, item.say) for item in inputs if isinstance(item, Echo) and item.ticket]
        bundles = [item for item in inputs if isinstance(item, Bundle)]
        replies += [Reply(item.ticket, BundleReply(ids=item.ids, states=bytes(len(item.ids)))) for item in bundles]
        self.seq += 1
        event = Event(seq=self.seq, t_ns=now_ns, event="stepped")
        durable = bool(bundles) or any(isinstance(item, Echo) and item.durable for item in inputs)
        return Turn(b"facts" if durable else b"", replies, [], Events([event]))

    def wake_ns(self) -> int | None:
        return min(self.wakes, default=None)


class FakeJournal:
    """Appends wait until `confirm`; with `at_once` they do not."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.waiting: list[asyncio.Future[None]] = []
        self.appended = 0

    def append(self, facts: bytes) -> asyncio.Future[None]:
        self.appended += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.at_once:
            future.set_result(None)
        else:
            self.waiting.append(future)
        return future

    def confirm(self, error: Exception | None = None) -> None:
        """The oldest append is durable, or lost."""
        future = self.waiting.pop(0)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


async def until(true: Callable[[], Any], seconds: float = 2.0) -> None:
    """Let the loop run until it is true."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.001)
