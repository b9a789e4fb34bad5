"""What a submission is answered.

202 as soon as anything was accepted, with the refusals beside it; the refusals' own status (422 where they differ) when nothing was. So a
client that only looks at the status never believes that something runs which does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from hetsched.api.call import Call
from hetsched.errors import Elsewhere, HetschedError, NotFound, Problem
from hetsched.model import Qos, Rejection, Submission, Task, TaskDefaults, task_to_json
from hetsched.model.read_submission import Spot, spots
from hetsched.scheduler.messages import SubmitReply

MOST_ERRORS = 100
MOST_REFUSALS = 1000
"""Told one by one where nothing was accepted: sixty bytes can ask for 100,000 tasks, whose refusals would be 25 MB."""

MOST_SHOWN = 1000
"""Tasks whose states are told after `Prefer: wait`; of larger submissions only the ids."""

Refused = tuple[int, dict[str, Any]]
"""(index, problem)."""

Place = Callable[[int, str], str]


class Body(msgspec.Struct, frozen=True):
    """A submission as it was read. `place(index, pointer)`: a pointer from an item as one from the body that was sent."""

    submission: Submission
    place: Place


def place_in(raw: Any, defaults: TaskDefaults) -> Place:
    """By the form of the body, which is looked at when it is asked."""
    found: list[Spot] = []

    def place(index: int, pointer: str) -> str:
        if not found:
            found.extend(spots(raw, defaults))
        return found[index].of(pointer)

    return place


# ---------------------------------------------------------------------- yes


def accepted(call: Call, submission: Submission, reply: SubmitReply, *, waited: bool) -> web.Response:
    """202. `waited`: tell how the tasks are now, not how they were in their turn."""
    headers = {"Preference-Applied": "wait"} if waited else {}
    if not reply.single:
        return call.answer(_many(call, reply, waited), 202, headers)
    body = _single(call, submission.items[0], reply, waited)
    headers["Location"] = location(body["id"])
    return call.answer(body, 202, headers)


def location(task: str) -> str:
    """Where the task is read. Slashes stay where they may: an id with "/../" or "//" would be tidied by clients, one that ends in
    "/explain" would be another call."""
    parts = task.split("/")
    is_plain = all(part.strip(".") for part in parts) and parts[-1] not in ("explain", "logs")
    return f"/v1/tasks/{quote(task, safe='/:' if is_plain else ':')}"


def _single(call: Call, item: Task | Rejection, reply: SubmitReply, waited: bool) -> dict[str, Any]:
    task = reply.ids[0]
    assert task is not None and isinstance(item, Task)
    body: dict[str, Any] = {"id": task, "state": reply.states[0], "lane": reply.lanes[0]}
    placement = reply.placements.get(task) if item.qos is Qos.critical else None
    if waited and (now := _now(call, task)) is not None:
        body["state"], placement = now["state"], now["placement"]
    if placement is not None:
        body["placement"] = placement
    body["durability"] = call.taker.durability
    body["request"] = task_to_json(msgspec.structs.replace(item, id=task))
    return body


def _many(call: Call, reply: SubmitReply, waited: bool) -> dict[str, Any]:
    ids = [task for task in reply.ids if task is not None]
    body: dict[str, Any] = {
        "accepted": len(ids),
        "rejected": [{"index": index, "problem": problem} for index, problem in reply.rejected],
        "ids": ids,
        "durability": call.taker.durability,
    }
    if reply.array is not None and not reply.rejected:
        body["ids"] = {"first": reply.array[0], "count": reply.array[1]}
    placements = reply.placements
    if waited and len(ids) <= MOST_SHOWN:
        tasks = {task: now for task in ids if (now := _now(call, task)) is not None}
        body["states"] = {task: now["state"] for task, now in tasks.items()}
        placements = {task: now["placement"] for task, now in tasks.items() if now["placement"]}
    if placements:
        body["placements"] = placements
    return body


def _now(call: Call, task: str) -> dict[str, Any] | None:
    """The task as it is; None when it has ended and been forgotten meanwhile, or another cell has it."""
    try:
        return call.view.task(task)
    except (NotFound, Elsewhere):
        return None


# ---------------------------------------------------------------------- no


def problem_of(body: dict[str, Any]) -> Problem:
    """A problem that was rendered already, to be raised."""
    return Problem(
        body.get("detail", ""),
        errors=body.get("errors", ()),
        status=body["status"],
        title=body["title"],
        type=body["type"],
    )


def nothing_accepted(body: Body, refused: Iterable[Refused] | None = None) -> HetschedError:
    """The problem for a submission of which nothing was taken. `refused`: by the scheduler; None = at reading."""
    items = body.submission.items
    if refused is None:
        refused = [(item.index, item.problem.body()) for item in items if isinstance(item, Rejection)]
        if body.submission.single and isinstance(items[0], Rejection):
            return items[0].problem
    found = list(refused)
    return NothingAccepted(found, body.place) if found else Problem.at("", "holds no task")


class NothingAccepted(HetschedError):
    """A list of which every item was refused: one problem that holds them all, or the first thousand and their number."""

    code = "invalid"

    def __init__(self, refused: list[Refused], place: Place) -> None:
        super().__init__(f"none of the {len(refused)} tasks was accepted; the first: {refused[0][1].get('detail', '')}")
        self._refused = refused
        self._place = place
        statuses = {problem["status"] for _, problem in refused}
        self._status = statuses.pop() if len(statuses) == 1 else 422

    @property
    def status(self) -> int:
        return self._status

    def body(self) -> dict[str, Any]:
        return {
            **super().body(),
            "status": self.status,
            "errors": self._errors(),
            "accepted": 0,
            "rejected": [{"index": index, "problem": problem} for index, problem in self._refused[:MOST_REFUSALS]],
            "rejected_total": len(self._refused),
            "ids": [],
        }

    def _errors(self) -> list[dict[str, str]]:
        """Each fault once (the items of an array share theirs), with its place in the body."""
        errors: dict[tuple[str, str], dict[str, str]] = {}
        for index, problem in self._refused:
            for error in problem.get("errors") or [{"pointer": "", "detail": problem.get("detail", "")}]:
                pointer = self._place(index, error["pointer"])
                errors[pointer, error["detail"]] = {**error, "pointer": pointer}
            if len(errors) >= MOST_ERRORS:
                break
        return list(errors.values())
