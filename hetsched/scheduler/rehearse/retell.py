"""Questions about a state that was rebuilt from the journal: why a task waited or was where it was, what the engine made of each node, and
where the task would have gone next.

Nothing here touches the rebuilt scheduler: answers come from copies of it, which may decide. What is derived while deciding (reservations,
prices, ranks) is in no fact, so a copy decides once; where that would change the state, because a window was still open, the copy is made
again and only asked.
"""

from __future__ import annotations

from typing import Any

from hetsched.scheduler.explain import RULED_OUT
from hetsched.scheduler.rendering import placement_json
from hetsched.scheduler.scheduler import Scheduler


def explain_at(scheduler: Scheduler, ident: str, now_ns: int) -> dict[str, Any]:
    """What `explain` said of the task at that moment, without the sights of a daemon that is long gone. Raises NotFound."""
    told = at_rest(scheduler, now_ns).view.explain(ident)
    told.pop("history", None)
    return told


def at_rest(scheduler: Scheduler, now_ns: int) -> Scheduler:
    """A copy as the scheduler was at that time, with what it had derived."""
    copy = _copy(scheduler)
    copy.resume()
    now_ns = max(now_ns, copy.books.now_ns)
    if not copy.step([], now_ns).facts:
        return copy
    copy = _copy(scheduler)
    copy.look(now_ns)
    return copy


def judge_nodes(scheduler: Scheduler, ident: str) -> list[dict[str, Any]]:
    """By node: whether a task of this shape fits there now, and what rules the node out if not."""
    copy = _copy(scheduler)
    shape = copy.core.task(copy.view.slot(ident)).shape
    nodes = list(copy.books.cluster.by_name.values())
    with _silently(copy):
        for node in nodes:
            copy.core.open_node(node.slot, False)
        return [{"node": node.name, **_judged(copy, shape, node.slot, node.is_open)} for node in nodes]


def _judged(copy: Scheduler, shape: int, node: int, is_open: bool) -> dict[str, Any]:
    """With all others closed the verdict is about this one, but that the closed ones count as closed."""
    if not is_open:
        return {"fits": False, "why": RULED_OUT["closed"]}
    copy.core.open_node(node, True)
    verdict = copy.core.verdict(shape)
    copy.core.open_node(node, False)
    why = next((words for name, words in RULED_OUT.items() if name != "closed" and verdict[name]), None)
    return {"fits": bool(verdict["fits"]), "why": None if verdict["fits"] else why}


def choices(scheduler: Scheduler, ident: str, now_ns: int, most: int) -> list[dict[str, Any]]:
    """Where the engine puts the task, then where with that node closed, and so on: at most so many. Each is a decision of a copy."""
    found: list[dict[str, Any]] = []
    closed: list[int] = []
    while len(found) < most:
        copy = _copy(scheduler)
        slot = copy.view.slot(ident)
        copy.resume()
        with _silently(copy):
            for node in closed:
                copy.core.open_node(node, False)
        copy.step([], max(now_ns, copy.books.now_ns))
        live = copy.books.attempts.live.get(slot)
        if live is None:
            return found
        node_slot = copy.books.cluster.by_name[live.node].slot
        entry = placement_json(live.node, live.devices)
        found.append({**entry, "terms": copy.world.ranking.explain(slot)})
        closed.append(node_slot)
    return found


def _copy(scheduler: Scheduler) -> Scheduler:
    """The same state, and nothing of what hangs on it."""
    return Scheduler.restore(
        scheduler.config, scheduler.snapshot(), seed=scheduler.world.seed, epoch=scheduler.world.epoch
    )


class _silently:
    """Doors without facts trigger nothing meanwhile."""

    def __init__(self, copy: Scheduler) -> None:
        self._core = copy.core

    def __enter__(self) -> None:
        self._core.replaying = True

    def __exit__(self, *exc: object) -> None:
        self._core.replaying = False
