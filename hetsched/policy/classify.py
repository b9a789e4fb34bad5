"""What sort of work a task is, where its `kind` does not say: training, inference, batch or service.

`batch` is the default of `kind` and says nothing, so a task of kind `batch` is looked at; any other kind stands as it is. The type picks
weights and profiles only; `kind` itself is never rewritten. Careful on purpose: what is not plainly something else is batch.
"""

from __future__ import annotations

from hetsched.model import Qos, Task

UNSAID = "batch"


def task_type(task: Task) -> str:
    """The kind, or what the fields give away."""
    if task.kind != UNSAID:
        return task.kind
    if task.resources.devices:
        if _is_training(task):
            return "training"
        return "inference" if _is_inference(task) else "batch"
    return "service" if _is_service(task) else "batch"


def _is_training(task: Task) -> bool:
    """Work on whole devices that saves its state, or runs on several machines at once."""
    whole = sum(ask.whole for ask in task.resources.devices)
    return whole > 0 and (task.checkpoint is not None or task.gang is not None)


def _is_inference(task: Task) -> bool:
    """Somebody waits for it, or a part of a device is enough and nobody says when it ends."""
    parts = sum(ask.parts for ask in task.resources.devices)
    return task.qos is Qos.critical or (parts > 0 and _is_endless(task))


def _is_service(task: Task) -> bool:
    return task.qos is Qos.critical and _is_endless(task)


def _is_endless(task: Task) -> bool:
    return task.duration is None and task.estimate is None and task.time_limit is None and task.deadline_ns is None
