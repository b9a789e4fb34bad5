"""Why an attempt or a task ended, stopped or waits: one closed list of codes, the same in core, events, API and metrics.

The core stores the number and knows only `PREEMPTED`; the word is what people and programs read. Texts that no code
can hold ("exit 3") are kept beside it by `attempts.py`.
"""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Reason of a fact. Numbers are in journals: never reuse one, add at the end."""

    NONE = 0
    PREEMPTED = 1
    NODE_LOST = 2
    DEVICE_FAILED = 3
    CANCELLED = 4
    TIME_LIMIT = 5
    FAILED = 6
    GANG = 7
    DEPENDENCY = 8
    DEADLINE = 9
    OPERATOR = 10
    RECLAIM = 11
    FINISHED = 12
    LOST_ATTEMPT = 13
    POISONED = 14
    UNPLACED = 15
    CONSOLIDATE = 16
    REPLANNED = 24

    @property
    def word(self) -> str:
        """As in the event log and in JSON."""
        return self.name.lower()


EVICTIONS = frozenset((Reason.PREEMPTED, Reason.RECLAIM, Reason.CONSOLIDATE))
"""An attempt had to go for another task."""


class Waiting:
    """Coded reasons for everything that waits."""

    IN_CELL = "in_cell"
    UNSATISFIABLE = "unsatisfiable"
    HELD = "held"
    DEPENDENCY = "dependency"
    BACKOFF = "backoff"
    CLAIMING = "claiming"
    GANG_INCOMPLETE = "gang_incomplete"
    QUEUE_LIMIT = "queue_limit"
    GUARANTEE_LENT = "guarantee_lent"
    NODES_CLOSED = "nodes_closed"
    NO_CAPACITY = "no_capacity"
    GANG_NO_ROOM = "gang_no_room"
    RESERVED = "reserved"
    BEHIND_RESERVATION = "behind_reservation"
    STRANDING = "stranding"
    PATIENCE = "patience"
    WINDOW = "window"


class Beside:
    """Coded reasons beside `placed`: whose it is that a task holds, and what its place was chosen for."""

    BORROWED = "borrowed"
    LENT = "lent"
    KEPT_WHOLE = "kept_whole"


#: Most telling first: a task is said to wait for the first reason that is true of it.
PRECEDENCE = tuple(value for name, value in vars(Waiting).items() if name.isupper())
