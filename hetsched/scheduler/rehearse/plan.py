"""What submitting this would do: the submission goes into a copy of the scheduler, and what the copy does is the answer.

Promises: the same code judges, accepts and decides as if it were submitted now, alone, and its window flushed at once; the scheduler knows
nothing of it afterwards.
"""

from __future__ import annotations

from typing import Any

from hetsched import _core
from hetsched._core import NONE
from hetsched.errors import HetschedError
from hetsched.model import Submission
from hetsched.scheduler import messages
from hetsched.scheduler.lifecycle import STATE_OF_CODE, WAITING_CODES
from hetsched.scheduler.messages import SubmitReply
from hetsched.scheduler.rehearse.advise import Share, eta_json
from hetsched.scheduler.rehearse.forecast import Future, Runner
from hetsched.scheduler.rehearse.image import Image, Patience, open_copy
from hetsched.scheduler.rehearse.trial import grace_s
from hetsched.scheduler.rehearse.unknown import awaited, may_be_too_late, too_late, why_unknown
from hetsched.scheduler.rendering import placement_json
from hetsched.scheduler.scheduler import Scheduler

TICKET = 1
MOST_FORESEEN = 32
"""Waiting tasks of one plan that are told when they would start."""


def plan(image: Image, submission: Submission, now_ns: int, share: Share) -> dict[str, Any] | HetschedError:
    """The answer of `POST /v1/plan`; an error where nothing of it would be accepted."""
    copy = open_copy(image, now_ns)
    now_ns = copy.world.now_ns
    copy.window.max_wait_ns = 0
    known = {item.id for item in submission.items if item.id and copy.core.find(item.id.encode()) != NONE}
    turn = copy.step([messages.Submit(ticket=TICKET, submission=submission)], now_ns)
    reply = next(reply.value for reply in turn.replies if reply.ticket == TICKET)
    if not isinstance(reply, SubmitReply):
        assert isinstance(reply, HetschedError)
        return reply
    named = [item.id for item in submission.items]
    tasks = [
        _task(copy, index, ident, named[index], known) for index, ident in enumerate(reply.ids) if ident is not None
    ]
    _foresee(image, submission, tasks, copy, now_ns, share)
    for task in tasks:
        task.pop("slot")
    return {
        "tasks": tasks,
        "rejected": [{"index": index, "problem": problem} for index, problem in reply.rejected],
        "summary": _summary(tasks, len(reply.rejected)),
        "left_out": image.left_out(),
    }


# ---------------------------------------------------------------------- one task


def _task(copy: Scheduler, index: int, ident: str, named: str | None, known: set[str]) -> dict[str, Any]:
    """`named`: the id that was asked for; one that would be generated is told by no plan."""
    slot = copy.core.find(ident.encode())
    row = copy.core.task(slot)
    out: dict[str, Any] = {
        "slot": slot,
        "index": index,
        "id": named,
        "state": str(STATE_OF_CODE[row.state]),
        "lane": copy.books.lane(row.qos),
        "known": named in known if named else False,
    }
    live = copy.books.attempts.live.get(slot)
    if live is not None:
        out["starts"] = "now"
        out["eta"] = {"p50": 0.0, "p90": 0.0}
        out["placement"] = placement_json(live.node, live.devices)
    elif row.flags & _core.CLAIMING:
        out.update(_claim(copy, slot))
    elif row.state in WAITING_CODES:
        out.update(_waiting(copy, ident))
    return out


def _claim(copy: Scheduler, slot: int) -> dict[str, Any]:
    """p90: when the last victim is gone at the latest, or the deadline that ends the task before."""
    claim, wait_s = copy.books.attempts.claims[slot], grace_s(copy, slot)
    reason = {}
    if copy.world.expires_within(slot, wait_s):
        left_s = max(0.0, (copy.core.task(slot).deadline_ns - copy.world.now_ns) / 1e9)
        reason["eta_reason"] = may_be_too_late(left_s, wait_s)
        wait_s = left_s
    return {
        "starts": "after_victims",
        "eta": {"p50": 0.0, "p90": wait_s},
        **reason,
        "placement": placement_json(claim.node, claim.devices),
        "victims": [_victim(copy, ident) for ident in claim.victims],
        "price_device_seconds": claim.price_device_seconds,
        "proof": claim.proof,
    }


def _victim(copy: Scheduler, ident: str) -> dict[str, Any]:
    task = copy.view.task(ident)
    return {name: task[name] for name in ("id", "qos", "queue", "name")}


def _waiting(copy: Scheduler, ident: str) -> dict[str, Any]:
    told = copy.view.explain(ident)
    shown = ("reason", "detail", "numbers", "secondary", "nodes", "position")
    return {"starts": "later", "eta": None, **{name: told[name] for name in shown}}


# ---------------------------------------------------------------------- all of them


def _foresee(
    image: Image, submission: Submission, tasks: list[dict[str, Any]], copy: Scheduler, now_ns: int, share: Share
) -> None:
    """When the first of those that wait would start: both runs go on from the plan itself."""
    waiting = {task["slot"]: task for task in tasks if task.get("starts") == "later"}
    wanted = set(list(waiting)[:MOST_FORESEEN])
    if not wanted:
        return
    before = {slot: awaited(copy, slot) for slot in wanted}
    soon = Runner(copy, now_ns, late=False).run(set(wanted), share(0.5))
    again = open_copy(image, now_ns)
    again.step([messages.Submit(ticket=TICKET, submission=submission)], now_ns)
    late = Runner(again, now_ns, late=True).run(set(soon.starts), share(1.0))
    undated = _undated(image, submission, frozenset(soon.expired), now_ns, share(1.0))
    for slot in wanted:
        if slot in soon.starts:
            waiting[slot]["eta"] = eta_json(soon, late, slot, now_ns)
        elif slot in soon.expired:
            start = undated.starts.get(slot)
            start_ns = None if start is None else start.at_ns
            waiting[slot]["eta_reason"] = too_late(soon.expired[slot], start_ns, now_ns)
        else:
            waiting[slot]["eta_reason"] = why_unknown(before[slot], copy, slot, soon.why)


def _undated(image: Image, submission: Submission, expired: frozenset[int], now_ns: int, is_over: Patience) -> Future:
    """When those would start that end by their deadlines, if these did not end them."""
    if not expired:
        return Future(starts={})
    copy = open_copy(image, now_ns)
    copy.step([messages.Submit(ticket=TICKET, submission=submission)], now_ns)
    return Runner(copy, now_ns, late=False).run(set(expired), is_over, undated=expired)


def _summary(tasks: list[dict[str, Any]], rejected: int) -> dict[str, Any]:
    starts = [task.get("starts") for task in tasks]
    victims = {victim["id"] for task in tasks for victim in task.get("victims", ())}
    return {
        "tasks": len(tasks),
        "now": starts.count("now"),
        "after_victims": starts.count("after_victims"),
        "later": starts.count("later"),
        "rejected": rejected,
        "victims": len(victims),
        "price_device_seconds": sum(task.get("price_device_seconds", 0.0) for task in tasks),
    }
