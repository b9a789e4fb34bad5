"""What waits for the next turn: inputs in the order in which they were heard, and a bound on the tasks among them.

Only submissions are refused when it is full (429): an end that an agent reports or a cancellation makes room, and refusing
it would keep the daemon full. The bound counts tasks, not requests, because an array of a million is one request.
"""

from __future__ import annotations

from typing import Protocol

from hetsched.errors import HetschedError, TooBusy
from hetsched.model import Qos
from hetsched.scheduler.messages import Bundle, BundleReply, Input, Known

RETRY_AFTER_S = 1.0

MOST_IN_BUNDLE = 8192
"""Single tasks that ride together; the next ones begin another bundle."""


class Asker(Protocol):
    """Who submitted a single task by `ask_single`. Told once for each, in order, then `told` once a turn."""

    def answered(self, reply: BundleReply, index: int) -> None: ...

    def failed(self, error: HetschedError) -> None: ...

    def told(self) -> None: ...


def answer_all(askers: list[Asker], reply: BundleReply) -> None:
    """Each his own."""
    for index, asker in enumerate(askers):
        asker.answered(reply, index)
    for asker in set(askers):
        asker.told()


def fail_all(askers: list[Asker], error: HetschedError) -> None:
    """All the same."""
    for asker in askers:
        asker.failed(error)
    for asker in set(askers):
        asker.told()


class Filling:
    """A bundle of singles that further ones may join. `askers`: who waits for each. `is_urgent`: one of them is critical."""

    __slots__ = ("_places", "askers", "bundle", "is_urgent")

    def __init__(self, ticket: int) -> None:
        self.bundle = Bundle(ticket=ticket, known=[], which=bytearray(), counts=[], ids=[], single=True, actors=[])
        self.askers: list[Asker] = []
        self.is_urgent = False
        self._places: dict[int, int] = {}  # identity of a Known → its place in the bundle, which keeps it alive

    def add(self, known: Known, ident: bytes, actor: str, asker: Asker) -> None:
        """One more."""
        bundle = self.bundle
        at = self._places.get(id(known))
        if at is None:
            at = self._places[id(known)] = len(bundle.known)
            bundle.known.append(known)
            bundle.counts.append(0)
            self.is_urgent = self.is_urgent or known.task.qos is Qos.critical
        bundle.counts[at] += 1
        bundle.which.extend(at.to_bytes(2, "little"))
        bundle.ids.append(ident)
        bundle.actors.append(actor)
        self.askers.append(asker)


class Inbox:
    """`limit_tasks`: submitted tasks that may wait; one submission alone may exceed it, or it could never be taken.
    `filling`: the last thing heard, while it is a bundle that the next single may join. `fast_total`: singles that came in bundles."""

    def __init__(self, limit_tasks: int) -> None:
        self.limit_tasks = limit_tasks
        self.waiting_tasks = 0
        self.refused = 0
        self.fast_total = 0
        self.filling: Filling | None = None
        self._inputs: list[Input] = []

    def __len__(self) -> int:
        return len(self._inputs)

    def put(self, item: Input) -> None:
        """Always taken."""
        self._inputs.append(item)
        self.filling = None

    def put_tasks(self, item: Input, tasks: int) -> None:
        """A submission of that many tasks; raises TooBusy when they do not fit in any more."""
        self.make_room(tasks)
        self.put(item)

    def fill(self, ticket: int) -> Filling:
        """A new bundle for singles; `make_room` is the caller's to call for each."""
        filling = Filling(ticket)
        self.put(filling.bundle)
        self.filling = filling
        return filling

    def singles(self) -> int:
        """In the bundle that is being filled."""
        return 0 if self.filling is None else len(self.filling.askers)

    def may_grow(self, crowd: int) -> bool:
        """Nothing waits but a bundle of fewer singles than that, none of them urgent."""
        is_alone = len(self._inputs) == 1 and self.filling is not None and not self.filling.is_urgent
        return is_alone and self.singles() < crowd

    def make_room(self, tasks: int) -> None:
        """Count them in; raises TooBusy."""
        if self.waiting_tasks and self.waiting_tasks + tasks > self.limit_tasks:
            self.refused += 1
            raise TooBusy(
                f"{self.waiting_tasks} tasks wait to be taken in, and {self.limit_tasks} may", retry_after=RETRY_AFTER_S
            )
        self.waiting_tasks += tasks

    def take(self) -> list[Input]:
        """Everything, for one turn."""
        inputs, self._inputs = self._inputs, []
        self.waiting_tasks = 0
        self.filling = None
        return inputs
