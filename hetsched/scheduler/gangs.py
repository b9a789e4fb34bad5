"""Gangs by name: who belongs to each, and how many of them still count."""

from __future__ import annotations

import msgspec

from hetsched import _core
from hetsched._core import NONE, Core
from hetsched.model import Task
from hetsched.scheduler.cluster import Cluster
from hetsched.scheduler.templates import SAME_CODES

COLUMN_NODE = 8  # the core's column for "all on one node"
KEPT_FOR_REQUIRED = 4  # labels that gangs may require, however many others are wished for


class Gang(msgspec.Struct, kw_only=True):
    """`members`: task slots in the table. `joined`: how many ever joined (at most `size`). `same`: what they must share, `wish`: what they
    would like to share (at most one of the two)."""

    name: str
    slot: int
    size: int
    min_size: int
    same: str | None
    members: set[int] = set()
    joined: int = 0
    wish: str | None = None

    def fault(self, task: Task) -> str | None:
        """Why the task cannot join, if it cannot."""
        gang = task.gang
        assert gang is not None
        if (gang.size, gang.min_size) != (self.size, self.min_size):
            return f"gang {self.name} has size {self.size} and min_size {self.min_size}"
        if gang_same(task) != self.same:
            return f"gang {self.name} is kept together by {self.same or 'nothing'}"
        if self.joined >= self.size:
            return f"gang {self.name} has all its {self.size} members"
        return None


def gang_same(task: Task) -> str | None:
    """`node` or the label that all members must share, if one is required. Islands of a board are about each member's own devices."""
    if task.topology is None or not task.topology.required or task.topology.same in SAME_CODES:
        return None
    return task.topology.same


def gang_wish(task: Task) -> str | None:
    """`node` or the label that the members would like to share. Who names islands of a board would have all members on one board."""
    if task.topology is None or gang_same(task) is not None:
        return None
    return "node" if task.topology.same in SAME_CODES else task.topology.same


def claimants(core: Core, task: int) -> list[int]:
    """Who claims together with this claiming task: all members of its gang that do, or it alone."""
    gang = core.task(task).gang
    if gang == NONE:
        return [task]
    return [member for member in core.gang_members(gang) if core.task(member).flags & _core.CLAIMING]


def awaited(core: Core, task: int) -> list[int]:
    """Victims that have to end before the claim of this task, and its gang, is theirs; in order of slots."""
    claims = [core.claim(member) for member in claimants(core, task)]
    return sorted({victim for claim in claims if claim is not None for victim in claim[2]})


class Gangs:
    """By name and by the core's slot."""

    def __init__(self, core: Core, cluster: Cluster) -> None:
        self._core = core
        self._cluster = cluster
        self.by_name: dict[str, Gang] = {}
        self.by_slot: dict[int, Gang] = {}

    def join(self, task: Task, count: int) -> int:
        """The core's slot of the task's gang, made if need be; `count` members are about to be accepted."""
        if task.gang is None:
            return NONE
        gang = self.by_name.get(task.gang.id)
        if gang is None:
            size, least = task.gang.size, task.gang.min_size
            same, wish = gang_same(task), gang_wish(task)
            slot = self._core.add_gang(size, least, self._column(same), self._wish_column(wish))
            gang = Gang(name=task.gang.id, slot=slot, size=size, min_size=least, same=same, wish=wish)
            gang.members = set()
            self.by_name[gang.name] = self.by_slot[slot] = gang
        gang.joined += count
        return gang.slot

    def _column(self, same: str | None) -> int:
        if same is None:
            return -1
        return COLUMN_NODE if same == "node" else self._cluster.domain_column(same)

    def _wish_column(self, wish: str | None) -> int:
        """A wish for a label too many is no reason to refuse anybody: it is not heard."""
        labels = self._cluster.labels
        is_new = wish not in (None, "node") and labels.known(str(wish)) < 0
        if is_new and len(labels.words) >= labels.limit - KEPT_FOR_REQUIRED:
            return -1
        return self._column(wish)

    def add_members(self, slot: int, tasks: list[int]) -> None:
        """These slots were accepted as members."""
        if slot != NONE:
            self.by_slot[slot].members.update(tasks)

    def of(self, slot: int) -> Gang | None:
        """Gang by the core's slot; None for NONE."""
        return self.by_slot.get(slot)

    def is_short(self, gang: Gang) -> bool:
        """Some members live, too few to be of use (those that succeeded count as present)."""
        states = [self._core.task(member).state for member in gang.members]
        alive = sum(state in (_core.PLACED, _core.RUNNING) for state in states)
        return 0 < alive and alive + states.count(_core.SUCCEEDED) < gang.min_size

    def forget(self, gang: Gang, task: int) -> None:
        """A member left the table; the gang goes with the last one."""
        gang.members.discard(task)
        if not gang.members:
            self._core.remove_gang(gang.slot)
            del self.by_name[gang.name], self.by_slot[gang.slot]

    # -- snapshot

    def save(self) -> list[Gang]:
        return list(self.by_name.values())

    def load(self, saved: list[Gang]) -> None:
        for gang in saved:
            self.by_name[gang.name] = self.by_slot[gang.slot] = gang
