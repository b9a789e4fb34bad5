"""What a task of many is told in its environment: which one it is, and of how many.

Who else is in a gang is not told: members that come to replace others would have to be told to the rest.
"""

from __future__ import annotations

from hetsched.model import Task
from hetsched.wire import array_env


def membership_env(task_id: str, body: Task) -> dict[str, str]:
    """Variables beside the task's own."""
    told = array_env(task_id)
    if body.gang is not None:
        told |= {"HETSCHED_GANG": body.gang.id, "HETSCHED_GANG_SIZE": str(body.gang.size)}
    return told
