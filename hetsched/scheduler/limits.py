"""Which limits of queues a task's start would break: the same sum that the core makes, with names."""

from __future__ import annotations

import msgspec

from hetsched.model import Task
from hetsched.scheduler.books import Books
from hetsched.scheduler.lifecycle import LIVE_MASK

HOLDERS = 5


class OverLimit(msgspec.Struct, frozen=True, kw_only=True):
    """`used` counts what is claimed, too. cpu and devices in thousandths, memory in bytes."""

    queue: str
    resource: str
    limit: int
    used: int
    asked: int

    @property
    def sentence(self) -> str:
        """For people, in cores, devices and GiB."""
        limit, used, asked = (amount_text(self.resource, amount) for amount in (self.limit, self.used, self.asked))
        return f"queue {self.queue} may use {limit} of {self.resource}, uses {used}, and this asks for {asked}"


def over_limits(books: Books, task: Task, count: int = 1) -> list[OverLimit]:
    """For `count` such tasks at once, innermost queue first."""
    ask = {"cpu": task.resources.cpu_milli, "memory": task.resources.memory_bytes}
    ask.update({device.kind: device.total_milli for device in task.resources.devices})
    found = []
    for name in books.queues.line(task.queue):
        spec = books.queues.spec.get(name)
        if spec is None or not spec.limit:
            continue
        used = books.core.queue_used(books.queues.slot[name])
        for resource, most in spec.limit.items():
            asked, has = ask.get(resource, 0) * count, used[books.queues.resource(resource)]
            if asked and has + asked > most:
                found.append(OverLimit(queue=name, resource=resource, limit=most, used=has, asked=asked))
    return found


def holders(books: Books, queue: str) -> list[str]:
    """Some tasks of the queue itself that hold what it uses, oldest first."""
    slot = books.queues.slot[queue]
    return [books.id_of(task) for task in books.core.page(0, HOLDERS, LIVE_MASK, slot)]


def amount_text(resource: str, amount: int) -> str:
    """Cores or devices as numbers, memory as GiB."""
    return f"{amount / 1024**3:.4g}Gi" if resource == "memory" else f"{amount / 1000:g}"
