"""Tasks that have ended, oldest end first, as they will be forgotten: four bytes each, not an object."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator


class Ended:
    """Task slots. What is forgotten leaves from the left; the room that it had is given back when it is half of all."""

    def __init__(self) -> None:
        self._slots = array("I")
        self._gone = 0

    def __len__(self) -> int:
        return len(self._slots) - self._gone

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots[self._gone :])

    def append(self, task: int) -> None:
        """It ended last."""
        self._slots.append(task)

    def extend(self, slots: bytes | Iterable[int]) -> None:
        """These ended, in this order (bytes: an uint32 each)."""
        if isinstance(slots, bytes):
            self._slots.frombytes(slots)
        else:
            self._slots.extend(slots)

    def oldest(self) -> int:
        """There is at least one."""
        return self._slots[self._gone]

    def first(self, count: int) -> bytes:
        """The oldest ones, an uint32 each."""
        return self._slots[self._gone : self._gone + count].tobytes()

    def forget(self, slots: bytes) -> None:
        """These (uint32 each, in order) leave as far as they are the oldest."""
        count = len(slots) // 4
        if self.first(count) != slots:
            gone = array("I")
            gone.frombytes(slots)
            count = 0
            for task in gone:
                count += self._gone + count < len(self._slots) and self._slots[self._gone + count] == task
        self._gone += count
        if 2 * self._gone > len(self._slots):
            del self._slots[: self._gone]
            self._gone = 0
