"""What waits for the next turn: inputs in the order in which they were heard, and a bound on the tasks among them.

Only submissions are refused when it is full (429): an end that an agent reports or a cancellation makes room, and refusing
it would keep the daemon full. The bound counts tasks, not requests, because an array of a million is one request.
"""

from __future__ import annotations

from hetsched._scan import Filling
from hetsched.errors import TooBusy
from hetsched.scheduler.messages import HEARD, Bundle, Input

RETRY_AFTER_S = 1.0

MOST_IN_BUNDLE = 8192
"""Single tasks that ride together; the next ones begin another bundle."""


class Inbox:
    """`limit_tasks`: submitted tasks that may wait; one submission alone may exceed it, or it could never be taken.
    `filling`: the last thing heard, while it is a bundle that the next single may join. `fast_total`: singles that came in bundles.
    `heard`: how many of the inputs are what agents tell of many attempts."""

    def __init__(self, limit_tasks: int) -> None:
        self.limit_tasks = limit_tasks
        self._waiting_tasks = 0  # without those of `filling`
        self.refused = 0
        self.fast_total = 0
        self.filling: Filling | None = None
        self.heard = 0
        self._inputs: list[Input] = []

    def __len__(self) -> int:
        return len(self._inputs)

    @property
    def waiting_tasks(self) -> int:
        """Tasks that were submitted and not yet taken."""
        return self._waiting_tasks + self.singles()

    def put(self, item: Input) -> None:
        """Always taken."""
        self.seal()
        self._inputs.append(item)
        self.heard += type(item) in HEARD

    @property
    def is_hearsay(self) -> bool:
        """Something waits, and all of it is what agents tell of many attempts."""
        return 0 < self.heard == len(self._inputs)

    def seal(self) -> None:
        """Singles that come from now on begin another bundle."""
        if self.filling is not None:
            self.filling.seal()
            self.fast_total += len(self.filling)
            self._waiting_tasks += len(self.filling)
            self.filling = None

    def put_tasks(self, item: Input, tasks: int) -> None:
        """A submission of that many tasks; raises TooBusy when they do not fit in any more."""
        self.make_room(tasks)
        self.put(item)

    def fill(self, ticket: int) -> Filling:
        """A new bundle for singles, with room for as many as may wait; raises TooBusy."""
        self.seal()
        waiting = self._waiting_tasks
        if waiting >= self.limit_tasks:
            raise self._too_busy()
        filling = Filling(singles_bundle(ticket), min(MOST_IN_BUNDLE, self.limit_tasks - waiting))
        self.put(filling.bundle)
        self.filling = filling
        return filling

    def singles(self) -> int:
        """In the bundle that is being filled."""
        return 0 if self.filling is None else len(self.filling)

    def may_grow(self, crowd: int) -> bool:
        """Nothing waits but a bundle of fewer singles than that, none of them urgent."""
        is_alone = len(self._inputs) == 1 and self.filling is not None and not self.filling.is_urgent
        return is_alone and self.singles() < crowd

    def make_room(self, tasks: int) -> None:
        """Count them in; raises TooBusy."""
        waiting = self.waiting_tasks
        if waiting and waiting + tasks > self.limit_tasks:
            raise self._too_busy()
        self._waiting_tasks += tasks

    def _too_busy(self) -> TooBusy:
        self.refused += 1
        return TooBusy(
            f"{self.waiting_tasks} tasks wait to be taken in, and {self.limit_tasks} may", retry_after=RETRY_AFTER_S
        )

    def take(self) -> list[Input]:
        """Everything, for one turn."""
        self.seal()
        inputs, self._inputs = self._inputs, []
        self.heard = 0
        self._waiting_tasks = 0
        return inputs


def singles_bundle(ticket: int) -> Bundle:
    """An empty one."""
    return Bundle(ticket=ticket, known=[], which=bytearray(), counts=[], ids=[], single=True, actors=[])
