"""Whom not to trust any more: a task that takes its nodes down, a node that cannot start tasks.

Only what cannot be the task's own failing counts against a node, and only what the task did to three nodes in a row counts against a
task: three users with a typo each must not close a machine. Both rules are off in the simulator unless configured.
"""

from __future__ import annotations

import os
from errno import E2BIG, EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOEXEC, ENOTDIR, EPERM

from hetsched.scheduler import words
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.world import World

POISON_ATTEMPTS = 3
LEASE = "lease"
"""What an agent says of an attempt that ended as nobody was heard for a lease. It was there to say so: nothing took it down."""
CANNOT_START = "cannot_start"
_TASKS_OWN = tuple(
    f"{CANNOT_START}: {said}"
    for said in (
        "policy",  # the agent's owner refuses this task
        *map(os.strerror, (ENOENT, EACCES, EPERM, ENOEXEC, ENOTDIR, EISDIR, ENAMETOOLONG, ELOOP, E2BIG)),
    )
)
"""What a wrong command, directory or user leads to on every node alike."""


def is_poisoned(world: World, task: int) -> bool:
    """Whether the attempt that is just over, which could not start or went down with its node, is the third of them in a row; those that
    ended with their leases are passed over."""
    if not world.config.health.quarantine:
        return False
    past = [a for a in world.books.attempts.past.get(task, []) if a.reason != LEASE][1 - POISON_ATTEMPTS :]
    harmful = [a for a in past if a.outcome == "lost" or a.reason.startswith(CANNOT_START)]
    return len(harmful) == POISON_ATTEMPTS - 1


def could_not_start(world: World, node: Node, task: int, text: str) -> None:
    """Count it; `health.cordon_tasks` different tasks within `health.cordon_within` seconds cordon the node."""
    health = world.config.health
    if not health.auto_cordon or not text.startswith(CANNOT_START) or text.startswith(_TASKS_OWN):
        return
    turns = world.bad_turns.setdefault(node.name, {})
    turns[task] = world.now_ns
    oldest_ns = world.now_ns - round(health.cordon_within * 1e9)
    for other in [other for other, at_ns in turns.items() if at_ns < oldest_ns]:
        del turns[other]
    if len(turns) >= health.cordon_tasks and not node.cordoned:
        turns.clear()
        world.books.say(words.NodeMarked(node.name, node.up, node.silent, True, node.draining, node.boot_id))
        world.emit(
            "node_cordon", node=node.name, reason=f"{health.cordon_tasks} tasks could not start here; last: {text}"
        )
