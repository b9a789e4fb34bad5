"""From an open store to a scheduler that knows everything acknowledged: the snapshot, then every later frame, then its timers.

Promise: nothing is decided here and nothing is skipped. A frame that contradicts the state stops the start and names its place.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hetsched.config import Config
from hetsched.scheduler import Scheduler
from hetsched.store import JournalCorrupt, Opened, Store

if TYPE_CHECKING:
    from hetsched.policy.scorers import Scorers

FRAMES_AT_ONCE = 64
"""Frames applied before the loop may answer a probe; replay is otherwise one long breath."""


async def recover(config: Config, store: Store) -> tuple[Scheduler, Opened]:
    """Open the store (which fences every older daemon) and rebuild the scheduler."""
    scorers = plug_ins(config)
    opened = await store.open()
    try:
        scheduler = Scheduler.restore(config, opened.snapshot, epoch=opened.epoch, scorers=scorers)
    except ValueError as error:
        raise JournalCorrupt("snapshot", 0, f"{error}; the hetsched that wrote it reads it") from error
    number = 0
    async for facts in opened.frames:
        number += 1
        try:
            scheduler.apply(facts)
        except (ValueError, KeyError) as error:
            raise JournalCorrupt(f"frame {number} after the snapshot", 0, f"contradicts the state: {error}") from error
        if number % FRAMES_AT_ONCE == 0:
            await asyncio.sleep(0)
    scheduler.resume()
    return scheduler, opened


def plug_ins(config: Config) -> Scorers | None:
    """The configured scorers on their threads; None where none is. Raises ConfigError before anything is opened."""
    if not config.policy.scorers:
        return None
    from hetsched.daemon.scorers import ThreadedScorers  # numpy, only where it is needed
    from hetsched.policy.scorers import load_scorers

    return ThreadedScorers(load_scorers(config.policy.scorers), config.policy.scorer_budget)
