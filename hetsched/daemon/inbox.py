"""What waits for the next turn: inputs in the order in which they were heard, and a bound on the tasks among them.

Only submissions are refused when it is full (429): an end that an agent reports or a cancellation makes room, and refusing
it would keep the daemon full. The bound counts tasks, not requests, because an array of a million is one request.
"""

from __future__ import annotations

from collections.abc import Callable

from hetsched._scan import Filling
from hetsched.errors import TooBusy
from hetsched.scheduler.messages import HEARD, Bundle, Input

RETRY_AFTER_S = 1.0

MOST_IN_BUNDLE = 8192
"""Single tasks that ride together; the next ones begin another bundle."""


class _Queue:
    """Inputs in their order. `filling`: the last of them, while it is a bundle that the next single may join; `tasks`: but for its own."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.tasks = 0
        self.filling: Filling | None = None

    def put(self, item: Input, tasks: int) -> None:
        self.seal()
        self.inputs.append(item)
        self.tasks += tasks

    def seal(self) -> int:
        """Singles that come from now on begin another bundle; how many are in the present one."""
        filling, self.filling = self.filling, None
        if filling is None:
            return 0
        filling.seal()
        self.tasks += len(filling)
        return len(filling)

    def singles(self) -> int:
        return 0 if self.filling is None else len(self.filling)

    def take(self) -> list[Input]:
        inputs, self.inputs = self.inputs, []
        self.tasks = 0
        return inputs


class Inbox:
    """`limit_tasks`: submitted tasks that may wait; one submission alone may exceed it, or it could never be taken. `fast_total`: singles that
    came in bundles. `heard`: how many of the inputs are what agents tell of many attempts. Submissions to the immediate lane have a queue of
    their own, which a turn may take alone."""

    def __init__(self, limit_tasks: int) -> None:
        self.limit_tasks = limit_tasks
        self.refused = 0
        self.fast_total = 0
        self.heard = 0
        self._usual = _Queue()
        self._urgent = _Queue()

    def __len__(self) -> int:
        return len(self._usual.inputs) + len(self._urgent.inputs)

    @property
    def has_urgent(self) -> bool:
        """Something of the immediate lane waits."""
        return bool(self._urgent.inputs)

    @property
    def waiting_tasks(self) -> int:
        """Tasks that were submitted and not yet taken."""
        return self._usual.tasks + self._urgent.tasks + self.singles()

    def put(self, item: Input) -> None:
        """Always taken."""
        self._seal(self._usual)
        self._usual.put(item, 0)
        self.heard += type(item) in HEARD

    @property
    def is_hearsay(self) -> bool:
        """Something waits, and all of it is what agents tell of many attempts."""
        return 0 < self.heard == len(self)

    def put_tasks(self, item: Input, tasks: int, *, is_urgent: bool = False) -> None:
        """A submission of that many tasks; raises TooBusy when they do not fit in any more."""
        waiting = self.waiting_tasks
        if waiting and waiting + tasks > self.limit_tasks:
            raise self._too_busy()
        queue = self._urgent if is_urgent else self._usual
        self._seal(queue)
        queue.put(item, tasks)

    def filling(self, *, is_urgent: bool) -> Filling | None:
        """The bundle that the next single may join, if there is one."""
        filling = (self._urgent if is_urgent else self._usual).filling
        return filling if filling is not None and filling.may_grow else None

    def fill(self, ticket: int, *, is_urgent: bool) -> Filling:
        """A new bundle for singles, with room for as many as may wait; raises TooBusy."""
        waiting = self.waiting_tasks
        if waiting >= self.limit_tasks:
            raise self._too_busy()
        queue = self._urgent if is_urgent else self._usual
        self._seal(queue)
        filling = Filling(singles_bundle(ticket), min(MOST_IN_BUNDLE, self.limit_tasks - waiting))
        queue.put(filling.bundle, 0)
        queue.filling = filling
        return filling

    def singles(self) -> int:
        """In the bundles that are being filled."""
        return self._usual.singles() + self._urgent.singles()

    def ring_at(self, crowd: int, ring: Callable[[], None]) -> bool:
        """Has `ring` called when that many singles wait; False where they do, or where more waits than a bundle of them, none urgent."""
        filling = self._usual.filling
        if filling is None or len(self) != 1 or len(filling) >= crowd:
            return False
        filling.enough, filling.ring = crowd, ring
        return True

    def take(self, *, only_urgent: bool = False) -> list[Input]:
        """Everything, for one turn, the urgent first; or those alone."""
        self._seal(self._urgent)
        inputs = self._urgent.take()
        if not only_urgent:
            self.seal()
            inputs += self._usual.take()
            self.heard = 0
        return inputs

    def seal(self) -> None:
        """Singles that come from now on begin another bundle."""
        self._seal(self._urgent)
        self._seal(self._usual)

    def _seal(self, queue: _Queue) -> None:
        self.fast_total += queue.seal()

    def _too_busy(self) -> TooBusy:
        self.refused += 1
        return TooBusy(
            f"{self.waiting_tasks} tasks wait to be taken in, and {self.limit_tasks} may", retry_after=RETRY_AFTER_S
        )


def singles_bundle(ticket: int) -> Bundle:
    """An empty one."""
    return Bundle(ticket=ticket, known=[], which=bytearray(), counts=[], ids=[], single=True, actors=[])
