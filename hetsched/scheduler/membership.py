"""What a task of many is told in its environment: which one it is, and of how many.

Nothing but the id remembers that a task came from an array, so the index is the number at its end; a task that was given such a name by hand
is told it as well. Who else is in a gang is not told: members that come to replace others would have to be told to the rest.
"""

from __future__ import annotations

import re

from hetsched.model import Task

_INDEX = re.compile(r"-(0|[1-9][0-9]{0,9})\Z")


def membership_env(task_id: str, body: Task) -> dict[str, str]:
    """Variables beside the task's own."""
    told = {}
    index = _INDEX.search(task_id)
    if index:
        told["HETSCHED_ARRAY_INDEX"] = index[1]
    if body.gang is not None:
        told |= {"HETSCHED_GANG": body.gang.id, "HETSCHED_GANG_SIZE": str(body.gang.size)}
    return told
