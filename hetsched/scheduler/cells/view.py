"""The read side of tasks that are on their way to another cell: in the words of those that wait here."""

from __future__ import annotations

from typing import Any

from hetsched.model import State, Task, task_to_json
from hetsched.scheduler import words
from hetsched.scheduler.cells.crossings import Away
from hetsched.scheduler.reasons import Waiting
from hetsched.scheduler.rendering import iso


def crossing_json(ident: str, away: Away, sent: words.Sent, task: Task) -> dict[str, Any]:
    """As `View.task`."""
    at = iso(sent.at_ns)
    return {
        "id": ident,
        "state": str(State.queued),
        "qos": str(task.qos),
        "queue": task.queue,
        "kind": task.kind,
        "name": task.name,
        "labels": task.labels,
        "priority": task.priority,
        "attempt": 0,
        "placement": None,
        "submitted_at": at,
        "changed_at": at,
        "deadline": None if task.deadline_ns is None else iso(task.deadline_ns),
        "reason": Waiting.IN_CELL,
        "cell": away.cell,
        "cancelling": away.is_cancelled,
        "spec": task_to_json(task),
        "attempts": [],
        "preemptions": 0,
        "failures": 0,
    }


def crossing_explained(ident: str, away: Away) -> dict[str, Any]:
    """As `View.explain`."""
    return {
        "id": ident,
        "state": str(State.queued),
        "reason": Waiting.IN_CELL,
        "detail": f"it was sent to cell {away.cell}, which has not answered yet",
        "numbers": {"cell": away.cell},
    }
