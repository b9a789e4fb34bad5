"""The lag of the event loop is measured while something happens, and only then."""

from __future__ import annotations

import asyncio
import time

from hetsched.daemon.lag import LOOK_S, Lag

HELD_S = 0.2


async def test_a_loop_that_was_held_is_late() -> None:
    seen: list[float] = []
    lag = Lag(seen.append)
    lag.stir()
    await asyncio.sleep(LOOK_S / 2)
    time.sleep(HELD_S)
    await asyncio.sleep(0.01)
    assert len(seen) == 1 and HELD_S - LOOK_S / 2 - 0.02 < seen[0]


async def test_it_looks_once_however_much_happens_and_never_while_nothing_does() -> None:
    seen: list[float] = []
    lag = Lag(seen.append)
    for _ in range(1000):
        lag.stir()
    await asyncio.sleep(3 * LOOK_S)
    assert len(seen) == 1 and seen[0] >= 0
    lag.stir()
    await asyncio.sleep(2 * LOOK_S)
    assert len(seen) == 2
