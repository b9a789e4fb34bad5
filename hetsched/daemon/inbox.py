"""What waits for the next turn: inputs in the order in which they were heard, and a bound on the tasks among them.

Only submissions are refused when it is full (429): an end that an agent reports or a cancellation makes room, and refusing
it would keep the daemon full. The bound counts tasks, not requests, because an array of a million is one request.
"""

from __future__ import annotations

from hetsched.errors import TooBusy
from hetsched.scheduler.messages import Input

RETRY_AFTER_S = 1.0


class Inbox:
    """`limit_tasks`: submitted tasks that may wait; one submission alone may exceed it, or it could never be taken."""

    def __init__(self, limit_tasks: int) -> None:
        self.limit_tasks = limit_tasks
        self.waiting_tasks = 0
        self.refused = 0
        self._inputs: list[Input] = []

    def __len__(self) -> int:
        return len(self._inputs)

    def put(self, item: Input) -> None:
        """Always taken."""
        self._inputs.append(item)

    def put_tasks(self, item: Input, tasks: int) -> None:
        """A submission of that many tasks; raises TooBusy when they do not fit in any more."""
        if self.waiting_tasks and self.waiting_tasks + tasks > self.limit_tasks:
            self.refused += 1
            raise TooBusy(
                f"{self.waiting_tasks} tasks wait to be taken in, and {self.limit_tasks} may", retry_after=RETRY_AFTER_S
            )
        self.waiting_tasks += tasks
        self._inputs.append(item)

    def take(self) -> list[Input]:
        """Everything, for one turn."""
        inputs, self._inputs = self._inputs, []
        self.waiting_tasks = 0
        return inputs
