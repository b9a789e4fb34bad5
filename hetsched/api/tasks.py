"""Reading tasks, ending them, and the operator's hand on them. Every change goes through the turn loop and is answered when durable."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from hetsched.api import schemas
from hetsched.api.call import Call
from hetsched.errors import NotFound, Problem
from hetsched.model import State
from hetsched.scheduler.messages import Cancel, Finish, Operate

PAGE, LONGEST_PAGE = 100, 1000
PRIORITY = 1000


async def listing(call: Call) -> web.Response:
    """A page of tasks in the order of submission."""
    query = call.query
    if not _is_label(query.get("label")):
        raise Problem.of_query("label", f"has to look like key=value, is {query['label'][:40]!r}")
    page = call.view.tasks(
        state=query.get("state") or None,
        queue=query.get("queue") or None,
        label=query.get("label") or None,
        qos=query.get("qos") or None,
        since=query.get("since") or None,
        limit=call.number("limit", PAGE, 1, LONGEST_PAGE),
        cursor=query.get("cursor") or None,
    )
    return await call.read(page)


async def one(call: Call) -> web.Response:
    """One task: spec, state, attempts, placement, times."""
    return await call.read(call.view.task(call.name("id")))


async def explain(call: Call) -> web.Response:
    """Why it waits, or why it is where it is; while it waits also when it will start, and remedies that were tried on a copy."""
    return await call.read(await call.reader.planner.explain(call.name("id")))


async def cancel(call: Call) -> web.Response:
    """Cancel one task; 409 when it has ended."""
    await call.no_body()
    task = call.name("id")
    _require_own(call, task)
    await call.daemon.ask(Cancel(ids=(task,), actor=call.actor))
    return await call.read({"id": task, "state": call.view.task(task)["state"]}, 202)


async def cancel_many(call: Call) -> web.Response:
    """Cancel all that match."""
    body = await call.typed_body(schemas.CancelBody)
    if body.ids is None and body.queue is None and body.label is None and body.qos is None and body.state is None:
        raise Problem.at("", "say which: ids, queue, label, qos or state")
    if body.state is not None and body.state not in set(State):
        raise Problem.at("/state", f"has to be one of {', '.join(State)}")
    if not _is_label(body.label):
        raise Problem.at("/label", "has to look like key=value")
    for task in body.ids or ():
        _require_own(call, task, missing_is_fine=True)
    if call.token.queues and body.ids is None:
        call.token.require_queue(body.queue or "")
    asked = Cancel(
        ids=tuple(body.ids or ()),
        queue=body.queue,
        label=body.label or None,
        qos=body.qos,
        state=body.state,
        actor=call.actor,
    )
    return call.answer(_counted(await call.daemon.ask(asked)), 202)


async def finish(call: Call) -> web.Response:
    """The end of a lease-only task, said by whoever used the lease."""
    body = await call.typed_body(schemas.FinishBody)
    task = call.name("id")
    _require_own(call, task)
    asked = Finish(
        task=task,
        attempt=body.attempt,
        succeeded=body.status == "succeeded",
        reason=body.reason,
        actor=call.actor,
    )
    return call.answer(await call.daemon.ask(asked))


async def hold(call: Call) -> web.Response:
    """Keep it from starting."""
    return await _operate(call, "hold")


async def release(call: Call) -> web.Response:
    """Let it go on."""
    return await _operate(call, "release")


async def requeue(call: Call) -> web.Response:
    """Stop the attempt and queue again."""
    return await _operate(call, "requeue")


async def prioritise(call: Call) -> web.Response:
    """Another priority within its qos."""
    body = await call.typed_body(schemas.PriorityBody)
    if not -PRIORITY <= body.priority <= PRIORITY:
        raise Problem.at("/priority", f"has to be a whole number from -{PRIORITY} to {PRIORITY}")
    return await _operate(call, "priority", body.priority)


async def _operate(call: Call, verb: str, priority: int | None = None) -> web.Response:
    if priority is None:
        await call.no_body()
    task = call.name("id")
    _require_own(call, task)
    value = await call.daemon.ask(Operate(verb=verb, task=task, priority=priority or 0, actor=call.actor))
    return call.answer(value)


def _counted(reply: dict[str, Any]) -> dict[str, Any]:
    """How many, beside which."""
    return {"accepted": len(reply.get("cancelled", ())), **reply}


def _require_own(call: Call, task: str, *, missing_is_fine: bool = False) -> None:
    """A token bound to queues changes only tasks in them."""
    if not call.token.queues:
        return
    try:
        queue = call.view.queue_of(task)
    except NotFound:
        if missing_is_fine:
            return
        raise
    call.token.require_queue(queue)


def _is_label(text: str | None) -> bool:
    """Or that there is none."""
    return not text or "=" in text[1:]
