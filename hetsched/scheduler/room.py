"""Whether the core's tables have room for the words of a submission, counted over the whole of it before any of it is accepted.

The tables are small on purpose (16 kinds, 64 models, 8 topology labels, 65,535 queues), so a client that makes words up could fill them.
A quarter of the kinds and models is therefore kept for nodes: a machine of a new model can always join a cluster whose users misspell.
"""

from __future__ import annotations

from collections.abc import Iterable

from hetsched.errors import Problem
from hetsched.model import NodeSpec, QueueSpec, Task
from hetsched.scheduler.books import Books
from hetsched.scheduler.gangs import gang_same
from hetsched.scheduler.intern import Interned

KEPT_FOR_NODES = 4  # one part in so many
MOST_QUEUES = 60_000


class NewWords:
    """Words that one submission would add to one table."""

    def __init__(self, table: Interned, pointer: str) -> None:
        self._table = table
        self._pointer = pointer
        self._words: set[str] = set()

    def check(self, words: Iterable[str], kept_part: int = 0) -> set[str]:
        """Those that are new here. Raises Problem if they do not fit; `kept_part`: one part in so many is not for them (0: none)."""
        new = {word for word in words if word not in self._words and self._table.known(word) < 0}
        most = self._table.limit - (self._table.limit // kept_part if kept_part else 0)
        if new and len(self._table.words) + len(self._words) + len(new) > most:
            named = ", ".join(sorted(new))
            raise Problem.at(
                self._pointer, f"at most {most} different {self._table.what} can be known; new here: {named}"
            )
        return new

    def add(self, new: set[str]) -> None:
        """They will be in the table."""
        self._words |= new


class Room:
    """One submission: `take` every new task in order."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._kinds = NewWords(books.kinds, "/resources")
        self._models = NewWords(books.models, "/models")
        self._labels = NewWords(books.cluster.labels, "/topology/same")
        self._queues: set[str] = set()
        self._shapes: set[bytes] = set()

    def take(self, task: Task) -> None:
        """Count it in. Raises Problem, and counts nothing, where a table would overflow."""
        kinds = self._kinds.check((ask.kind for ask in task.resources.devices), KEPT_FOR_NODES)
        models = self._models.check((model for ask in task.resources.devices for model in ask.models), KEPT_FOR_NODES)
        labels = self._labels.check(_gang_label(task))
        queues = new_queues(self._books, task.queue) - self._queues
        check_queues(self._books, len(self._queues) + len(queues))
        shape = self._new_shape(task)
        self._kinds.add(kinds)
        self._models.add(models)
        self._labels.add(labels)
        self._queues |= queues
        self._shapes |= shape

    def _new_shape(self, task: Task) -> set[bytes]:
        templates = self._books.templates
        shape = templates.unknown_shape(task)
        most = self._books.config.limits.shapes
        if shape is None or shape in self._shapes:
            return set()
        if len(templates.shapes) + len(self._shapes) >= most:
            raise Problem.at("", f"at most {most} different shapes of task can be known (limits.shapes)")
        return {shape}


def check_node(books: Books, spec: NodeSpec) -> None:
    """Raises Problem if the node's kinds and models do not all fit, or if it is one node too many: an agent's token makes up names."""
    most = books.config.limits.nodes
    if spec.name not in books.cluster.by_name and len(books.cluster.by_name) >= most:
        raise Problem.at(
            "/name", f"{most} nodes are known, as many as may be (limits.nodes); {spec.name} is not one of them"
        )
    NewWords(books.kinds, "/devices").check(device.kind for device in spec.devices)
    NewWords(books.models, "/devices").check(device.model for device in spec.devices if device.model is not None)


def check_queue(books: Books, spec: QueueSpec) -> None:
    """Raises Problem if the queue, its ancestors or the kinds that it speaks of do not all fit."""
    kinds = (spec.guaranteed.keys() | spec.limit.keys()) - {"cpu", "memory"}
    NewWords(books.kinds, "/limit").check(kinds, KEPT_FOR_NODES)
    check_queues(books, len(new_queues(books, spec.name)))


def check_queues(books: Books, new: int) -> None:
    """Raises Problem if so many more queues do not fit."""
    if new and len(books.queues.slot) + new > MOST_QUEUES:
        raise Problem.at("/queue", f"at most {MOST_QUEUES} queues can be known")


def new_queues(books: Books, name: str) -> set[str]:
    """The queue and its ancestors, as far as they are not there yet."""
    if name in books.queues.slot:
        return set()
    return {one for one in books.queues.line(name) if one not in books.queues.slot}


def _gang_label(task: Task) -> set[str]:
    """The topology label that keeps the task's gang together, if the core needs a column for it."""
    same = gang_same(task) if task.gang is not None else None
    return set() if same is None or same == "node" else {same}
