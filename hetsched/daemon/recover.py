"""From a journal to a scheduler that knows everything acknowledged: the snapshot, then every later frame, then its timers.

A standby does the same by and by, while another daemon leads (`standby.py`), and has little left to do when it is its turn.
Promise: nothing is decided here and nothing is skipped. What cannot be read, or contradicts the state, is named with its place; the scheduler
then holds exactly the frames before it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hetsched.config import Config
from hetsched.scheduler import Scheduler
from hetsched.store import Follower, JournalCorrupt, NewerVersion, Opened, Position, SnapshotLost, Store

if TYPE_CHECKING:
    from hetsched.policy.scorers import Scorers

FRAMES_AT_ONCE = 64
"""Frames applied before the loop may answer a probe; replay is otherwise one long breath."""


class Recovered(NamedTuple):
    """`damage`: why the scheduler holds only the frames before that; None = it holds all."""

    scheduler: Scheduler
    opened: Opened
    damage: JournalCorrupt | None


class Followed(NamedTuple):
    """What a standby has: a scheduler that was told all that the follower gave."""

    scheduler: Scheduler
    follower: Follower


async def recover(config: Config, store: Store) -> tuple[Scheduler, Opened]:
    """Open the store (which fences every older daemon) and rebuild the scheduler. Raises JournalCorrupt where that is not all of it."""
    found = await recover_prefix(config, store)
    if found.damage is not None:
        raise found.damage
    return found.scheduler, found.opened


async def recover_prefix(config: Config, store: Store, scorers: Scorers | None = None) -> Recovered:
    """The same, as far as it goes. Raises JournalCorrupt where nothing can be known."""
    opened = await store.open()
    scheduler, damage = await _replay(config, opened, scorers)
    if damage is not None and damage.cut == opened.frames.at.id:  # it may have been applied in part
        scheduler, _ = await _replay(config, opened, scorers, until=opened.frames.at)
    scheduler.resume(opened.epoch)
    return Recovered(scheduler, opened, damage)


async def take_over(store: Store, followed: Followed) -> Recovered:
    """The same from where a standby is. Raises JournalCorrupt where the rest cannot be taken: what was followed is then of no use."""
    opened = await store.open(followed.follower)
    await _apply_all(followed.scheduler, opened)
    followed.scheduler.resume(opened.epoch)
    return Recovered(followed.scheduler, opened, None)


async def _replay(
    config: Config, opened: Opened, scorers: Scorers | None, until: Position | None = None
) -> tuple[Scheduler, JournalCorrupt | None]:
    """A scheduler of all frames, or of those before `until`; and what is wrong with the first that could not be taken."""
    scheduler = restore(config, opened.snapshot, scorers)
    try:
        await _apply_all(scheduler, opened, until)
    except JournalCorrupt as damage:
        return scheduler, damage
    return scheduler, None


async def _apply_all(scheduler: Scheduler, opened: Opened, until: Position | None = None) -> None:
    number = 0
    async for facts in opened.frames:
        if until is not None and opened.frames.at.seq >= until.seq:
            break
        apply(scheduler, facts, opened.frames.at)
        number += 1
        if number % FRAMES_AT_ONCE == 0:
            await asyncio.sleep(0)


def restore(config: Config, snapshot: bytes | None, scorers: Scorers | None) -> Scheduler:
    """A scheduler as of the snapshot; it gives no orders before it is resumed in an epoch."""
    try:
        return Scheduler.restore(config, snapshot, epoch=0, scorers=scorers)
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
