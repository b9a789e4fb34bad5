"""The event log: one JSON object a line, the same bytes for the same seed."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

import msgspec

from hetsched.model import Task
from hetsched.scheduler.messages import Event

_encode = msgspec.json.Encoder().encode
FLUSH_BYTES = 1 << 18


class EventLog:
    """Writes to `file` (None: nowhere) and hashes what it writes."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._buffer = bytearray()

    def submitted(self, task: Task, now_ns: int) -> None:
        """Its `queued` event says so."""

    def happened(self, event: Event) -> None:
        self._buffer += _encode(event.line())
        self._buffer += b"\n"
        if len(self._buffer) > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write and hash what has gathered."""
        self._hash.update(self._buffer)
        if self._file is not None:
            self._file.write(self._buffer)
        self._buffer.clear()

    def sha256(self) -> str:
        """Of all that was written so far, in hex."""
        self.flush()
        return self._hash.hexdigest()
