"""From an open store to a scheduler that knows everything acknowledged: the snapshot, then every later frame, then its timers.

Promise: nothing is decided here and nothing is skipped. What cannot be read, or contradicts the state, is named with its place; the scheduler
then holds exactly the frames before it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hetsched.config import Config
from hetsched.scheduler import Scheduler
from hetsched.store import JournalCorrupt, NewerVersion, Opened, Position, SnapshotLost, Store

if TYPE_CHECKING:
    from hetsched.policy.scorers import Scorers

FRAMES_AT_ONCE = 64
"""Frames applied before the loop may answer a probe; replay is otherwise one long breath."""


class Recovered(NamedTuple):
    """`damage`: why the scheduler holds only the frames before that; None = it holds all."""

    scheduler: Scheduler
    opened: Opened
    damage: JournalCorrupt | None


async def recover(config: Config, store: Store) -> tuple[Scheduler, Opened]:
    """Open the store (which fences every older daemon) and rebuild the scheduler. Raises JournalCorrupt where that is not all of it."""
    found = await recover_prefix(config, store)
    if found.damage is not None:
        raise found.damage
    return found.scheduler, found.opened


async def recover_prefix(config: Config, store: Store) -> Recovered:
    """The same, as far as it goes. Raises JournalCorrupt where nothing can be known."""
    scorers = plug_ins(config)
    opened = await store.open()
    scheduler, damage = await _replay(config, opened, scorers)
    if damage is not None and damage.cut == opened.frames.at.id:  # it may have been applied in part
        scheduler, _ = await _replay(config, opened, scorers, until=opened.frames.at)
    scheduler.resume()
    return Recovered(scheduler, opened, damage)


async def _replay(
    config: Config, opened: Opened, scorers: Scorers | None, until: Position | None = None
) -> tuple[Scheduler, JournalCorrupt | None]:
    """A scheduler of all frames, or of those before `until`; and what is wrong with the first that could not be taken."""
    scheduler = _restore(config, opened, scorers)
    number = 0
    try:
        async for facts in opened.frames:
            if until is not None and opened.frames.at.seq >= until.seq:
                break
            apply(scheduler, facts, opened.frames.at)
            number += 1
            if number % FRAMES_AT_ONCE == 0:
                await asyncio.sleep(0)
    except JournalCorrupt as damage:
        return scheduler, damage
    return scheduler, None


def _restore(config: Config, opened: Opened, scorers: Scorers | None) -> Scheduler:
    try:
        return Scheduler.restore(config, opened.snapshot, epoch=opened.epoch, scorers=scorers)
    except ValueError as error:
        raise SnapshotLost("snapshot", 0, f"{error}; the hetsched that wrote it reads it") from error


def apply(scheduler: Scheduler, facts: bytes, at: Position) -> None:
    """One frame's facts. Raises JournalCorrupt that names it."""
    try:
        scheduler.apply(facts)
    except msgspec.ValidationError as error:
        reason = f"says what this program does not know ({error}); the hetsched that wrote it reads it"
        raise NewerVersion(at.id, 0, reason) from error
    except (ValueError, KeyError) as error:
        raise JournalCorrupt(at.id, 0, f"contradicts the state: {error}") from error


def plug_ins(config: Config) -> Scorers | None:
    """The configured scorers on their threads; None where none is. Raises ConfigError before anything is opened."""
    if not config.policy.scorers:
        return None
    from hetsched.daemon.scorers import ThreadedScorers  # numpy, only where it is needed
    from hetsched.policy.scorers import load_scorers

    return ThreadedScorers(load_scorers(config.policy.scorers), config.policy.scorer_budget)
