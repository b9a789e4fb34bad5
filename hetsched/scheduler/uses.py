"""What live attempts use, as last measured, and how busy their devices were over their whole run. Fed by word facts."""

from __future__ import annotations

import msgspec

from hetsched.config import Config


def beyond(config: Config) -> tuple[int, int]:
    """What a node may promise beyond its own cpu and memory, in thousandths."""
    return round((config.overcommit.cpu - 1) * 1000), round((config.overcommit.memory - 1) * 1000)


def is_lending(config: Config) -> bool:
    """Whether anything is ever promised twice."""
    return any(beyond(config))


class Use(msgspec.Struct, frozen=True, array_like=True):
    """-1 = not measured. `busy`: utilisation x time from the first measurement up to `since_ns`, milli x ns."""

    cpu_milli: int
    memory_bytes: int
    utilization_milli: int
    begun_ns: int
    since_ns: int
    busy: int = 0

    def mean_milli(self, now_ns: int) -> int:
        """Mean utilisation of its devices so far; -1 = not known."""
        if self.utilization_milli < 0:
            return -1
        if now_ns <= self.begun_ns:
            return self.utilization_milli
        return (self.busy + self.utilization_milli * (now_ns - self.since_ns)) // (now_ns - self.begun_ns)


class Uses:
    """By task slot."""

    def __init__(self) -> None:
        self.by_task: dict[int, Use] = {}

    def measured(self, task: int, cpu_milli: int, memory_bytes: int, utilization_milli: int, now_ns: int) -> None:
        """From now on it uses so much."""
        before = self.by_task.get(task)
        if before is None or before.utilization_milli < 0:
            begun_ns, busy = now_ns, 0
        else:
            begun_ns, busy = before.begun_ns, before.busy + before.utilization_milli * (now_ns - before.since_ns)
        self.by_task[task] = Use(cpu_milli, memory_bytes, utilization_milli, begun_ns, now_ns, busy)

    def over(self, task: int) -> None:
        """Its attempt, if it had one, uses nothing any more."""
        self.by_task.pop(task, None)

    # -- snapshot

    def save(self) -> list[tuple[int, Use]]:
        return sorted(self.by_task.items(), key=lambda pair: pair[0])

    def load(self, saved: list[tuple[int, Use]]) -> None:
        self.by_task = dict(saved)
