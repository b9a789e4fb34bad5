"""The lease: until when this machine may run tasks. One file per agent, written by the agent, read by every shim.

The clock is CLOCK_BOOTTIME: the same for every process of the machine, never set back, and it goes on while the machine sleeps.
(CLOCK_MONOTONIC stands still in a suspended laptop, which would then wake up and go on with what runs elsewhere by now.)
The file holds the deadline in nanoseconds and its complement, so that a reader can tell a torn read from a deadline. Then its *generation*,
a number that is another one for every agent, and whenever a lease was over before it was extended. Orders carry the one under which they
were given: what no shim has begun when that is over, none will begin.
"""

from __future__ import annotations

import os
import struct
import time

_FORMAT = struct.Struct("<QQ")
_GENERATION = struct.Struct("<Q")
_ALL_ONES = 2**64 - 1


def now_ns() -> int:
    """Nanoseconds since boot, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def read_deadline(handle: int) -> int:
    """The deadline in `now_ns` time; 0 (long over) where the file holds none."""
    for _ in range(8):
        raw = os.pread(handle, _FORMAT.size, 0)
        if len(raw) == _FORMAT.size:
            deadline, complement = _FORMAT.unpack(raw)
            if deadline ^ complement == _ALL_ONES:
                return int(deadline)
    return 0


class Lease:
    """The agent's side. The deadline only ever moves forward; a new boot begins without any. `generation` 0: none was made yet."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.deadline_ns = read_deadline(self._handle)
        self.generation = 0

    def extend(self, deadline_ns: int) -> None:
        """Tasks may run until then; those that were ordered before, only if it was not over."""
        if deadline_ns <= self.deadline_ns:
            return
        if self.left_ns() <= 0:
            self.renew_generation()  # first: who reads that the lease goes on reads this after it
        self._set(deadline_ns)

    def forget(self) -> None:
        """What the file says is of another boot: its clock began anew."""
        self._set(0)

    def renew_generation(self) -> None:
        """From now on nothing begins that was ordered before."""
        self.generation = now_ns()
        os.pwrite(self._handle, _GENERATION.pack(self.generation), _FORMAT.size)

    def left_ns(self) -> int:
        """Negative: over."""
        return self.deadline_ns - now_ns()

    def close(self) -> None:
        os.close(self._handle)

    def _set(self, deadline_ns: int) -> None:
        self.deadline_ns = deadline_ns
        os.pwrite(self._handle, _FORMAT.pack(deadline_ns, deadline_ns ^ _ALL_ONES), 0)
