"""The kernel's message buffer, followed without waiting, for Xids where the driver's library cannot tell them."""

from __future__ import annotations

import os
from pathlib import Path

from hetsched.agent.discovery.xid import KernelLog, XidEvent

_MOST_RECORDS = 10_000  # in one call: a flood must not hold a reading
_RECORD_BYTES = 8192  # the kernel never hands out more in one read


class KernelMessages:
    """`/dev/kmsg`, from now on. Each read gives one record: "priority,sequence,microseconds,flags;text", continued lines indented."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._log = KernelLog()

    @classmethod
    def open(cls, path: Path = Path("/dev/kmsg")) -> KernelMessages | None:
        """None where it may not be read (no root, no CAP_SYSLOG)."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            os.lseek(descriptor, 0, os.SEEK_END)
        except OSError:
            os.close(descriptor)
            return None
        return cls(descriptor)

    def new_xids(self) -> list[XidEvent]:
        """Xids in the records since the last call."""
        events = []
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except (
                BrokenPipeError
            ):  # EPIPE: records were overwritten before we came; the next read goes on behind the gap
                continue
            except OSError:
                break
            if not record:
                break
            events += self._parse(record.decode(errors="replace"))
        return events

    def close(self) -> None:
        """Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _parse(self, records: str) -> list[XidEvent]:
        """A plain file (a recording) hands out many records at once, the device one."""
        events = []
        for line in records.splitlines():
            text = line if line.startswith(" ") else line.partition(";")[2]
            if (event := self._log.feed(text)) is not None:
                events.append(event)
        return events
