"""Why nobody knows when a task will start, in the words of what it waits for itself: others that have to end first, else the run's own."""

from __future__ import annotations

from hetsched import _core
from hetsched._core import NONE
from hetsched.scheduler.dependencies import OPEN, judge
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.scheduler import Scheduler


def awaited(scheduler: Scheduler, slot: int) -> str:
    """What to say of a task that others keep from starting, should they still do so after the run; empty: nobody does."""
    open_links = _open_links(scheduler, slot)
    if not open_links:
        return ""
    failures = [ident for ident, when, _ in open_links if when == "failed"]
    if failures:
        return f"it starts only if {', '.join(failures)} fails, and nobody can know that"
    names = ", ".join(f"{ident} ({STATE_OF_CODE[state]})" for ident, _, state in open_links)
    return f"it waits for the end of {names}, and nobody knows when that is"


def open_parents(scheduler: Scheduler, slot: int) -> list[str]:
    """Whose ends hold the task."""
    return [ident for ident, _, _ in _open_links(scheduler, slot)]


def why_unknown(before: str, after: Scheduler, slot: int, why: str) -> str:
    """`before`: what `awaited` said; `after`: the copy that was run forward; `why`: what the run says of those that did not start in it."""
    state = after.core.task(slot).state
    if before and state == _core.SKIPPED:
        return _unmet(after, slot) or before
    return before if before and state == _core.HELD else why


def _unmet(after: Scheduler, slot: int) -> str:
    """Of a task that is skipped, by how those end on which it waits: one that expires does not run, nor one that is skipped itself."""
    ends = {_core.EXPIRED: "will not run by its deadline", _core.SKIPPED: "will be skipped"}
    found = [(link.id, after.core.find(link.id.encode())) for link in after.world.body(slot).after]
    states = [(ident, after.core.task(parent).state) for ident, parent in found if parent != NONE]
    told = [f"{ident} {ends[state]}" for ident, state in states if state in ends]
    return f"it waits for others, and {', '.join(told)}: then it is skipped" if told else ""


def too_late(deadline_ns: int, start_ns: int | None, now_ns: int) -> str:
    """Of a task that its deadline ends while it waits; `start_ns`: when it would start if it had none, None: nobody knows."""
    ends = f"its deadline ends it in about {(deadline_ns - now_ns) / 1e9:.0f} s"
    if start_ns is None:
        return f"{ends}, and nothing is known that would let it start before"
    return f"{ends}, and it would start in about {(start_ns - now_ns) / 1e9:.0f} s"


def may_be_too_late(left_s: float, wait_s: float) -> str:
    """Of a task that claims, whose deadline may come before its victims are gone: seconds left until either."""
    return f"its deadline ends it in about {left_s:.0f} s, and its victims may take {wait_s:.0f} s to go"


def _open_links(scheduler: Scheduler, slot: int) -> list[tuple[str, str, int]]:
    """(id, when, state) of those that hold the task and are still there; none where it is not held by any."""
    core, row = scheduler.core, scheduler.core.task(slot)
    if row.state != _core.HELD or not row.flags & _core.HELD_DEPENDENCY:
        return []
    found = [(link.id, link.when, core.find(link.id.encode())) for link in scheduler.world.body(slot).after]
    there = [(ident, when, core.task(parent).state) for ident, when, parent in found if parent != NONE]
    return [(ident, when, state) for ident, when, state in there if judge(when, state) == OPEN]
