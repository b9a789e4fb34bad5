"""`POST /v1/schedule` and `POST /v1/plan`: from a body in any of its forms to the turn loop; the answers are in `accepted.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from hetsched.api import body as bodies
from hetsched.api import bulk, columns, stream
from hetsched.api.accepted import Body, accepted, nothing_accepted, place_in, problem_of
from hetsched.api.call import Call, aside
from hetsched.api.known import forbidden
from hetsched.errors import Problem
from hetsched.model import Rejection, State, Submission, Task, TaskDefaults, parse_submission
from hetsched.scheduler.messages import Submit, SubmitReply

if TYPE_CHECKING:
    from hetsched.daemon.auth import Token

MEDIA = (bodies.JSON, bodies.NDJSON, bodies.MSGPACK)
LONGEST_KEY = 256
WAITING = (State.queued, State.held, State.backoff)


async def schedule(call: Call) -> web.StreamResponse:
    """Accept tasks; 202 when they are in the journal. Lines are answered frame by frame where the client accepts lines."""
    wait_s = _wanted_wait_s(call, call.desk.config.server.longest_wait)
    key = _idempotency_key(call)
    is_plain = wait_s is None and key is None
    if is_plain and stream.is_asked(call):
        return await stream.schedule(call, _answer_to_frame)
    raw, kind = await call.raw_body(*MEDIA, columns.MEDIA)
    if kind != columns.MEDIA:
        return await _submit(call, raw, kind, wait_s, key)
    if not is_plain:
        raise Problem(
            "Prefer: wait and Idempotency-Key are not for columns; ids make a repetition harmless", code="malformed"
        )
    bundle = columns.bundle_of(call, raw)
    return await bulk.submit(call, bundle, are_ids_known=b"" not in bundle.ids)


async def _answer_to_frame(call: Call, raw: bytes, kind: str) -> bytes:
    answer = (await _submit(call, raw, kind, None, None)).body
    assert isinstance(answer, bytes)
    return answer


async def _submit(call: Call, raw: bytes, kind: str, wait_s: float | None, key: str | None) -> web.Response:
    if wait_s is None and key is None:
        if (bundle := bulk.bundle_of(call, raw, kind)) is not None:
            return await bulk.submit(call, bundle)
        if (array := bulk.array_of(call, raw, kind)) is not None:
            return await bulk.submit_array(call, array)
    body = await _read(call, raw, kind, call.taker.task_defaults)
    tasks = sum(isinstance(item, Task) for item in body.submission.items)
    if tasks == 0:
        raise nothing_accepted(body)
    asked = Submit(submission=body.submission, idempotency_key=key, actor=call.actor)
    reply: SubmitReply = await call.taker.submit(asked, tasks)
    if all(task is None for task in reply.ids):
        raise nothing_accepted(body, reply.rejected)
    if wait_s is not None:
        await _wait_until_placed(call, [task for task in reply.ids if task is not None], wait_s)
    answer = accepted(call, body.submission, reply, waited=wait_s is not None)
    if wait_s is not None:  # it tells of turns after its own
        await call.daemon.settled()
    return answer


async def plan(call: Call) -> web.Response:
    """What submitting this would do, tried on a copy of the scheduler: nothing is changed, no id is used up. 413 over limits.plan_tasks."""
    body = await _read(call, *await call.raw_body(*MEDIA), call.reader.task_defaults)
    if all(isinstance(item, Rejection) for item in body.submission.items):
        raise nothing_accepted(body)
    told = await call.reader.planner.plan(body.submission)
    if not told["tasks"]:
        refused = [(item["index"], item["problem"]) for item in told["rejected"]]
        raise problem_of(refused[0][1]) if body.submission.single else nothing_accepted(body, refused)
    return await call.read(told)


# ---------------------------------------------------------------------- reading


async def _read(call: Call, raw: bytes, kind: str, defaults: TaskDefaults) -> Body:
    value = await aside(call.body_bytes, bodies.decode, raw, kind)
    submission = await aside(call.body_bytes, parse_submission, value, defaults)
    return Body(_permitted(submission, call.token), place_in(value, defaults))


def _permitted(submission: Submission, token: Token) -> Submission:
    """Refuse what the token may not: a critical task without `immediate`, a queue it is not bound to."""
    if not token.queues and token.allows("immediate"):
        return submission
    items: list[Task | Rejection] = []
    for index, item in enumerate(submission.items):
        problem = forbidden(item, token) if isinstance(item, Task) else None
        items.append(item if problem is None else Rejection(index, problem, item.id))
    return msgspec.structs.replace(submission, items=items)


def _wanted_wait_s(call: Call, longest_s: float) -> float | None:
    """Seconds of `Prefer: wait=…`; preferences that are not understood are no error (RFC 7240)."""
    for header in call.request.headers.getall("Prefer", []):
        for preference in header.split(","):
            name, _, value = preference.partition(";")[0].partition("=")
            if name.strip().lower() == "wait":
                return _seconds(value.strip().strip('"'), longest_s)
    return None


def _seconds(text: str, longest_s: float) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return min(seconds, longest_s) if seconds >= 0 else None


def _idempotency_key(call: Call) -> str | None:
    key = call.request.headers.get("Idempotency-Key")
    if key is None:
        return None
    key = key.strip().strip('"')
    if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
        detail = f"Idempotency-Key has to have 1 to {LONGEST_KEY} printable characters"
        raise Problem(detail, code="malformed", title="A header cannot be read")
    return f"{call.actor}:{key}"  # two tokens that use the same key mean two things


# ---------------------------------------------------------------------- waiting


async def _wait_until_placed(call: Call, ids: list[str], wait_s: float) -> None:
    """Until none of them waits any more, or the time is over, or the daemon stops."""
    daemon = call.daemon
    deadline_s = asyncio.get_running_loop().time() + wait_s
    with daemon.events.watch(ids) as watch:
        waiting = {task for task in ids if daemon.state_of(task) in WAITING}
        while waiting and call.desk.serves(daemon):
            try:
                async with asyncio.timeout_at(deadline_s):
                    touched = await watch.changed()
            except TimeoutError:
                return
            waiting -= {task for task in touched if daemon.state_of(task) not in WAITING}
