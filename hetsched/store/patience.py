"""Asking a server until it answers: pauses that double, an end that the caller sets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hetsched.errors import StoreLost
from hetsched.store.base import Unreachable

T = TypeVar("T")

FIRST_PAUSE_S = 0.005
LAST_PAUSE_S = 1.0


class Backoff:
    """The next pause, in seconds."""

    def __init__(self) -> None:
        self.pause_s = FIRST_PAUSE_S

    @property
    def worth_telling(self) -> bool:
        """Whether the coming pause is the first of a row or a long one; the short ones between would only fill the log."""
        return self.pause_s in (FIRST_PAUSE_S, LAST_PAUSE_S)

    def reset(self) -> None:
        self.pause_s = FIRST_PAUSE_S

    async def pause(self) -> None:
        pause_s, self.pause_s = self.pause_s, min(2 * self.pause_s, LAST_PAUSE_S)
        await asyncio.sleep(pause_s)


async def patiently(
    ask: Callable[[], Awaitable[T]],
    patience_s: float = float("inf"),
    over: Callable[[], StoreLost | None] = lambda: None,
) -> T:
    """The answer of `ask`, asked again after each Unreachable. `over`: a reason to stop asking, raised.

    Raises StoreLost once `patience_s` has passed without an answer."""
    backoff, until_s = Backoff(), time.monotonic() + patience_s
    while True:
        if (reason := over()) is not None:
            raise reason
        try:
            return await ask()
        except Unreachable as error:
            if time.monotonic() >= until_s:
                raise StoreLost(f"the store cannot be reached: {error}") from None
            await backoff.pause()
