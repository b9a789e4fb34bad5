"""What becomes of a task when its attempt is over: the rules of retry, of stopping, and of what was lost.

One function for each way to be over; each calls exactly one door of the core.
"""

from __future__ import annotations

import zlib

from hetsched import _core
from hetsched._core import NONE
from hetsched.model import Task
from hetsched.scheduler import words
from hetsched.scheduler.dependencies import HOPELESS, OPEN, judge
from hetsched.scheduler.gangs import Gang
from hetsched.scheduler.quarantine import CANNOT_START, LEASE, is_poisoned
from hetsched.scheduler.reasons import EVICTIONS, Reason
from hetsched.scheduler.timers import Timer
from hetsched.scheduler.world import World

MAX_BACKOFF_S = 300.0
JITTER = (0.75, 1.25)


def backoff_ns(failures: int, seed: int, key: bytes) -> int:
    """Pause after the `failures`-th failure: 2^(failures-1) s, jittered by a hash so that it is the same in every replay,
    capped (CONTRACT, section 7)."""
    low, high = JITTER
    fraction = zlib.crc32(b"%d:%d:%s" % (seed, failures, key)) / 0xFFFFFFFF
    seconds = min(MAX_BACKOFF_S, 2.0 ** min(failures - 1, 20) * (low + (high - low) * fraction))
    return round(seconds * 1e3) * 1_000_000


def succeeded(world: World, task: int) -> None:
    """The attempt did its work."""
    if world.core.task(task).state == _core.PLACED:
        world.core.started(task, world.core.task(task).attempt)
    world.core.ended(task, _core.SUCCEEDED, Reason.NONE)


def failed(world: World, task: int, text: str, exit_code: int | None, reason: Reason = Reason.FAILED) -> None:
    """The attempt failed by itself: another one after a pause, or the end when none is left."""
    row = world.core.task(task)
    body = world.body(task)
    world.books.say(words.AttemptNoted(task, text, exit_code))
    final = row.failures >= body.retries or (
        reason is Reason.TIME_LIMIT and Reason.TIME_LIMIT.word not in body.retry_on
    )
    if text.startswith(CANNOT_START) and is_poisoned(world, task):
        final, reason = True, Reason.POISONED
    if final:
        world.core.ended(task, _core.FAILED, reason)
        return
    until_ns = world.now_ns + backoff_ns(row.failures + 1, world.seed, row.key)
    world.books.say(words.BackoffNoted(task, until_ns))
    world.core.back_off(task, reason)


def stopped(world: World, task: int, reported_success: bool, text: str, exit_code: int | None) -> None:
    """An attempt that was told to stop is over. The first reason stays, whatever its end looks like: why it was told decides, unless its
    agent says that it was over its time limit before."""
    reason = world.books.attempts.stopping.get(task, Reason.OPERATOR)
    if reason is Reason.CANCELLED or reason is Reason.DEADLINE:
        world.core.ended(task, _core.CANCELLED, reason)
    elif reported_success:
        world.core.ended(task, _core.SUCCEEDED, Reason.NONE)
    elif reason is Reason.REPLANNED:
        world.core.ended(task, _core.CANCELLED, reason)
    elif reason is Reason.TIME_LIMIT or text == Reason.TIME_LIMIT.word:
        failed(world, task, Reason.TIME_LIMIT.word, exit_code, Reason.TIME_LIMIT)
    else:
        world.core.requeue(task, reason, preempted=reason in EVICTIONS)


def lost(world: World, task: int, reason: Reason, text: str = "") -> None:
    """The attempt is gone with its node, or the node knows nothing of it. Uses up no retry. `text`: what the agent says of it."""
    stopping = world.books.attempts.stopping.get(task)
    on_lost = world.body(task).on_lost
    if stopping is Reason.CANCELLED or stopping is Reason.REPLANNED:
        world.core.ended(task, _core.CANCELLED, stopping)
    elif stopping is Reason.TIME_LIMIT and has_no_gang_left(world, task):
        world.core.ended(task, _core.CANCELLED, Reason.CANCELLED)
    elif on_lost == "fail":
        world.core.ended(task, _core.FAILED, reason)
    elif text != LEASE and is_poisoned(world, task):
        world.core.ended(task, _core.FAILED, Reason.POISONED)
    elif on_lost == "hold":
        world.core.requeue(task, reason, hold=_core.HELD_OPERATOR)
    else:
        world.core.requeue(task, reason)


def cancel(world: World, task: int) -> bool:
    """Cancel wherever it is. False if it has ended already."""
    state = world.core.task(task).state
    if state >= _core.SUCCEEDED:
        return False
    if state in (_core.PLACED, _core.RUNNING):
        world.core.stop(task, Reason.CANCELLED)
    elif state == _core.STOPPING:
        world.books.say(words.StopRenamed(task, Reason.CANCELLED))
    else:
        world.core.ended(task, _core.CANCELLED, Reason.CANCELLED)
    return True


def is_beyond_repair(world: World, gang: Gang) -> bool:
    """A member failed for good, or more of them are gone than it can spare."""
    ends = [state for member in gang.members if (state := world.core.task(member).state) > _core.SUCCEEDED]
    return _core.FAILED in ends or gang.size - len(ends) < gang.min_size


def has_no_gang_left(world: World, task: int) -> bool:
    """It belonged to one that is beyond repair."""
    gang = world.books.gangs.of(world.core.task(task).gang)
    return gang is not None and is_beyond_repair(world, gang)


def cancel_with_gang(world: World, task: int) -> None:
    """Another member failed for good. Who is being stopped for its time limit fails for that, unless it would be tried again."""
    over_limit = world.books.attempts.stopping.get(task) is Reason.TIME_LIMIT
    if not over_limit or Reason.TIME_LIMIT.word in world.body(task).retry_on:
        cancel(world, task)


def watch_run(world: World, task: int) -> None:
    """The task runs: its limit starts to count, and the time in which it is not evicted if it was thrown to and fro. Nothing of that where
    it is over already."""
    placement = world.core.placement(task)
    if placement is None:
        return
    if world.core.task(task).flags & _core.SHAKEN:
        world.timers.set(Timer.DAMPED, task, placement.started_ns + _core.DAMPED_NS)
    limit_s = world.body(task).time_limit
    if limit_s is not None:
        world.timers.set(Timer.TIME_LIMIT, task, placement.started_ns + round(limit_s * 1e9))


def settle_dependencies(world: World, slot: int, task: Task) -> None:
    """Judge a held task's dependencies as they stand: release it, skip it, or link it to its open parents.

    A parent that is in the table no more ended long ago and satisfied its link, or the task would have been skipped then. So did one whose id
    has been taken since: what was submitted after the child cannot be what it waits for.
    """
    parents: list[tuple[int, str]] = []
    submitted_ns = world.core.task(slot).submitted_ns
    for link in task.after:
        parent = world.core.find(link.id.encode())
        if parent == NONE or world.core.task(parent).submitted_ns > submitted_ns:
            continue
        verdict = judge(link.when, world.core.task(parent).state)
        if verdict == HOPELESS:
            world.core.ended(slot, _core.SKIPPED, Reason.DEPENDENCY)
            return
        if verdict == OPEN:
            parents.append((parent, link.when))
    if parents:
        world.dependencies.link(slot, parents)
    else:
        world.core.release(slot, _core.HELD_DEPENDENCY)
