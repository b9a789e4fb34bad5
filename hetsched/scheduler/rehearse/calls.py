"""A remedy as the HTTP calls that do it, or the command: what was tried on the copy, in the words in which a client would ask for it."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import quote

import msgspec

from hetsched.model import QueueSpec, Submission, Task, task_to_json
from hetsched.scheduler import messages
from hetsched.scheduler.rendering import amounts_json


def call_of(asked: messages.Input) -> dict[str, Any]:
    """{"method", "path", "body"} of an input that a client can cause."""
    if isinstance(asked, messages.Submit):
        return _call("POST", "/v1/schedule", _body(asked.submission))
    if isinstance(asked, messages.Cancel):
        return _call("POST", "/v1/tasks/cancel", {"ids": list(asked.ids)})
    if isinstance(asked, messages.SetQueue):
        queue = asked.queue
        body = {
            "weight": queue.weight,
            "guaranteed": amounts_json(queue.guaranteed),
            "limit": amounts_json(queue.limit),
        }
        return _call("PUT", f"/v1/queues/{quote(queue.name)}", body)
    if isinstance(asked, messages.OperateNode):
        return _call("POST", f"/v1/nodes/{quote(asked.node)}/{asked.verb}", {})
    assert isinstance(asked, messages.Operate), f"no client can cause a {type(asked).__name__}"
    body = {"priority": asked.priority} if asked.verb == "priority" else {}
    return _call("POST", f"/v1/tasks/{quote(asked.task)}/{asked.verb}", body)


def set_limits(queue: QueueSpec) -> str:
    """The command that gives the queue its limits, all of them, for it replaces them whole."""
    flags = [f"--limit {shlex.quote(f'{name}={amount}')}" for name, amount in _exact(queue.limit)]
    return " ".join(["hetsched queue set", shlex.quote(queue.name), *flags])


def _exact(amounts: dict[str, int]) -> list[tuple[str, str]]:
    """As a person would write them, nothing rounded: memory in the largest unit that it is whole in, the rest as decimals."""
    return [(name, _bytes(n) if name == "memory" else f"{n / 1000:.15g}") for name, n in amounts.items()]


def _bytes(amount: int) -> str:
    power = next((power for power in (4, 3, 2, 1) if amount and amount % 1024**power == 0), 0)
    return f"{amount // 1024**power}{('', 'Ki', 'Mi', 'Gi', 'Ti')[power]}"


def _call(method: str, path: str, body: Any) -> dict[str, Any]:
    return {"method": method, "path": path, "body": body}


def _body(submission: Submission) -> Any:
    """One task, or a template and a count: what is submitted together here is alike."""
    first = submission.items[0]
    assert isinstance(first, Task)
    body = task_to_json(msgspec.structs.replace(first, id=None))
    return body if len(submission.items) == 1 else {"template": body, "count": len(submission.items)}
