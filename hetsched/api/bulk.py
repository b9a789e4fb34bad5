"""Lists of tasks whose like was read before: recognised in C, accepted as one bundle, answered without an object a task.

As on the fast path (`fast.py`), nothing is refused here: whatever is unusual about a body or what it asks for is left to `submit.py`.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from hetsched._scan import Recognised
from hetsched.api import body as bodies
from hetsched.api.accepted import Body, accepted, nothing_accepted
from hetsched.api.call import Call
from hetsched.api.known import may_submit
from hetsched.errors import Problem
from hetsched.model import Submission, parse_task
from hetsched.model.read_submission import LONGEST_ID
from hetsched.scheduler.bundles import known_of
from hetsched.scheduler.messages import Array, ArrayReply, Bundle, BundleReply, SubmitReply

LONGEST_ARRAY = 1 << 16
"""Bytes: longer ones are read aside, as they would stop the event loop."""


def bundle_of(call: Call, raw: bytes, kind: str) -> Bundle | None:
    """The body's tasks; None where they have to be looked at one by one."""
    if kind not in (bodies.JSON, bodies.NDJSON):
        return None
    found = call.desk.memory().recall.many(raw, call.taker.task_defaults.bulk_tasks, kind == bodies.NDJSON)
    if found is None:
        return None
    values, counts, which, ids = found
    recognised: list[Recognised] = values
    token = call.token
    if (token.queues or not token.allows("immediate")) and not all(
        may_submit(token, each.known.task) for each in recognised
    ):
        return None
    known = [each.known for each in recognised]
    return Bundle(known=known, counts=counts, which=bytearray(which), ids=ids, actor=call.actor)


def array_of(call: Call, raw: bytes, kind: str) -> Array | None:
    """The body's tasks, where it is a template and a count."""
    if len(raw) > LONGEST_ARRAY or b"count" not in raw:
        return None
    defaults, token = call.taker.task_defaults, call.token
    try:
        body = bodies.decode(raw, kind)
        if not isinstance(body, dict) or body.keys() != {"template", "count"} or not isinstance(body["template"], dict):
            return None
        task, count = parse_task(body["template"], defaults), body["count"]
    except Problem:
        return None
    if type(count) is not int or not 1 <= count <= defaults.array_tasks or len(f"{task.id}-{count - 1}") > LONGEST_ID:
        return None
    known = known_of(task)
    if known is None or not may_submit(token, task):
        return None
    return Array(known=known, base=task.id or "", count=count, actor=call.actor)


async def submit_array(call: Call, array: Array) -> web.Response:
    """Accept it; 202 when it is in the journal."""
    reply: ArrayReply | SubmitReply = await call.taker.submit(array, array.count)
    if isinstance(reply, SubmitReply):
        submission = Submission(single=False, items=[array.known.task] * array.count)
        if all(task is None for task in reply.ids):
            raise nothing_accepted(Body(submission, lambda _, pointer: f"/template{pointer}"), reply.rejected)
        return accepted(call, submission, reply, waited=False)
    answer = {
        "accepted": reply.count,
        "rejected": [],
        "ids": {"first": reply.first, "count": reply.count},
        "durability": call.taker.durability,
    }
    return call.answer({**answer, "placements": reply.placements} if reply.placements else answer, 202)


async def submit(call: Call, bundle: Bundle, *, are_ids_known: bool = False) -> web.Response:
    """Accept it; 202 when it is in the journal. `are_ids_known`: the client gave them, and is told the first and how many."""
    reply: BundleReply | SubmitReply = await call.taker.submit(bundle, len(bundle.ids))
    if isinstance(reply, SubmitReply):
        return _told_apart(call, bundle, reply)
    if are_ids_known:
        ids = b'{"first":"%b","count":%d}' % (reply.ids[0], len(reply.ids))
    else:
        ids = b'["%b"]' % b'","'.join(reply.ids)
    placed = b',"placements":' + msgspec.json.encode(reply.placements) if reply.placements else b""
    durability = call.taker.durability.encode()
    body = b'{"accepted":%d,"rejected":[],"ids":%b,"durability":"%b"%b}' % (len(reply.ids), ids, durability, placed)
    return call.encoded(body, 202)


def _told_apart(call: Call, bundle: Bundle, reply: SubmitReply) -> web.Response:
    """Something of it was refused."""
    items = [bundle.known[at].task for at in memoryview(bytes(bundle.which)).cast("H")]
    submission = Submission(single=False, items=[*items])
    if all(task is None for task in reply.ids):
        raise nothing_accepted(Body(submission, lambda index, pointer: f"/{index}{pointer}"), reply.rejected)
    return accepted(call, submission, reply, waited=False)
