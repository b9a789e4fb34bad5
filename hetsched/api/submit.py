"""`POST /v1/schedule` and `POST /v1/plan`: from a body in any of its forms to an answer that promises.

What is answered: 202 as soon as anything was accepted, with the refusals beside it; the refusals' own status (422 where they differ) when
nothing was. So a client that only looks at the status never believes that something runs which does not.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from hetsched.api import body as bodies
from hetsched.api.call import Call, aside
from hetsched.api.problem import plain
from hetsched.errors import Forbidden, HetschedError, Problem
from hetsched.model import Qos, Rejection, Submission, Task, parse_submission, task_to_json
from hetsched.scheduler.messages import Submit, SubmitReply

if TYPE_CHECKING:
    from hetsched.daemon.auth import Token

MEDIA = (bodies.JSON, bodies.NDJSON, bodies.MSGPACK)
LONGEST_KEY = 256
WAITING = ("queued", "held", "backoff")


async def schedule(call: Call) -> web.Response:
    """Accept tasks; 202 when they are in the journal."""
    wait_s = _wanted_wait_s(call, call.desk.config.server.longest_wait)
    key = _idempotency_key(call)
    submission = _permitted(await _read_submission(call), call.token)
    tasks = sum(isinstance(item, Task) for item in submission.items)
    if tasks == 0:
        raise _nothing_accepted(
            submission, [(r.index, r.problem.body()) for r in submission.items if isinstance(r, Rejection)]
        )
    asked = Submit(submission=submission, idempotency_key=key, actor=call.actor)
    reply: SubmitReply = await call.daemon.submit(asked, tasks)
    if all(task is None for task in reply.ids):
        raise _nothing_accepted(submission, list(reply.rejected))
    waited = None
    if wait_s is not None:
        waited = await _wait_until_placed(call, [task for task in reply.ids if task is not None], wait_s)
    return _accepted(call, submission, reply, waited)


async def plan(call: Call) -> web.Response:
    """Not yet: the body is read and judged, and then honestly refused."""
    submission = _permitted(await _read_submission(call), call.token)
    refused = [(item.index, item.problem.body()) for item in submission.items if isinstance(item, Rejection)]
    if len(refused) == len(submission.items):
        raise _nothing_accepted(submission, refused)
    raise plain(
        501,
        "not_yet",
        "Not in this release",
        "the dry run comes with the next release; GET /v1/tasks/ID/explain tells why a task waits",
    )


# ---------------------------------------------------------------------- reading


async def _read_submission(call: Call) -> Submission:
    raw = await call.body(*MEDIA)
    return await aside(call.body_bytes, parse_submission, raw, call.daemon.task_defaults)


def _permitted(submission: Submission, token: Token) -> Submission:
    """Refuse what the token may not: a critical task without `immediate`, a queue it is not bound to."""
    items: list[Task | Rejection] = []
    for index, item in enumerate(submission.items):
        problem = _forbidden(item, token) if isinstance(item, Task) else None
        items.append(item if problem is None else Rejection(index, problem, item.id))
    return msgspec.structs.replace(submission, items=items)


def _forbidden(task: Task, token: Token) -> Problem | None:
    pointer = "/queue"
    try:
        token.require_queue(task.queue)
        pointer = "/qos"
        if task.qos is Qos.critical:
            token.require("immediate")
    except Forbidden as error:
        return Problem.at(pointer, error.detail, code="forbidden")
    return None


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
        raise Problem(f"Idempotency-Key has to have 1 to {LONGEST_KEY} printable characters", code="malformed")
    return f"{call.actor}:{key}"  # two tokens that use the same key mean two things


# ---------------------------------------------------------------------- waiting


async def _wait_until_placed(call: Call, ids: list[str], wait_s: float) -> dict[str, dict[str, Any]]:
    """Until none of them waits any more, or the time is over; the tasks as they are then."""
    daemon = call.daemon
    deadline_s = asyncio.get_running_loop().time() + wait_s
    with daemon.events.watch(ids) as watch:
        tasks = {task: daemon.view.task(task) for task in ids}
        waiting = {task for task in ids if tasks[task]["state"] in WAITING}
        while waiting and call.desk.state == "ready":
            try:
                async with asyncio.timeout_at(deadline_s):
                    touched = await watch.changed()
            except TimeoutError:
                break
            tasks.update((task, daemon.view.task(task)) for task in touched)
            waiting -= {task for task in touched if tasks[task]["state"] not in WAITING}
    await daemon.settled()
    return tasks


# ---------------------------------------------------------------------- answering


def _accepted(
    call: Call, submission: Submission, reply: SubmitReply, waited: dict[str, dict[str, Any]] | None
) -> web.Response:
    headers = {} if waited is None else {"Preference-Applied": "wait"}
    if not reply.single:
        return call.answer(_many(call, reply, waited), 202, headers)
    task = reply.ids[0]
    assert task is not None
    item = submission.items[0]
    assert isinstance(item, Task)
    body: dict[str, Any] = {"id": task, "state": reply.states[0], "lane": reply.lanes[0]}
    placement = reply.placements.get(task)
    if waited is not None:
        body["state"], placement = waited[task]["state"], waited[task].get("placement")
    if placement is not None and (waited is not None or item.qos is Qos.critical):
        body["placement"] = placement
    body["durability"] = call.daemon.durability
    body["request"] = task_to_json(msgspec.structs.replace(item, id=task))
    headers["Location"] = f"/v1/tasks/{task}"
    return call.answer(body, 202, headers)


def _many(call: Call, reply: SubmitReply, waited: dict[str, dict[str, Any]] | None) -> dict[str, Any]:
    ids = [task for task in reply.ids if task is not None]
    body: dict[str, Any] = {
        "accepted": len(ids),
        "rejected": [{"index": index, "problem": problem} for index, problem in reply.rejected],
        "ids": ids,
        "durability": call.daemon.durability,
    }
    if reply.array is not None and not reply.rejected:
        body["ids"] = {"first": reply.array[0], "count": reply.array[1]}
    placements = reply.placements
    if waited is not None:
        placements = {task: value["placement"] for task, value in waited.items() if value.get("placement")}
        body["states"] = {task: value["state"] for task, value in waited.items()}
    if placements:
        body["placements"] = placements
    return body


class NothingAccepted(HetschedError):
    """A list of which every item was refused: one problem that holds them all."""

    code = "invalid"

    def __init__(self, refused: list[tuple[int, dict[str, Any]]]) -> None:
        super().__init__(f"none of the {len(refused)} tasks was accepted; the first: {refused[0][1].get('detail', '')}")
        self._refused = refused
        statuses = {problem["status"] for _, problem in refused}
        self._status = statuses.pop() if len(statuses) == 1 else 422

    @property
    def status(self) -> int:
        return self._status

    def body(self) -> dict[str, Any]:
        out = super().body()
        out["status"] = self.status
        out["errors"] = [
            {**error, "pointer": f"/{index}{error['pointer']}"}
            for index, problem in self._refused[:100]
            for error in problem.get("errors") or [{"pointer": "", "detail": problem.get("detail", "")}]
        ]
        out["accepted"] = 0
        out["rejected"] = [{"index": index, "problem": problem} for index, problem in self._refused]
        out["ids"] = []
        return out


def _nothing_accepted(submission: Submission, refused: list[tuple[int, dict[str, Any]]]) -> HetschedError:
    if not refused:
        return Problem.at("", "holds no task")
    if submission.single:
        item = submission.items[0]
        assert isinstance(item, Rejection)
        return item.problem
    return NothingAccepted(refused)
