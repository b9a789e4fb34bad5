"""The agent's ledger: what was ordered, how it ended and what of that the daemon has, a line each in one file.

    ["ordered", task, attempt, …]      on disk before anything of the attempt is begun
    ["ended", task, attempt, …]        its end, from its shim or from whoever had to find it out
    ["settled", task, attempt, at]     the daemon has the end
    ["forgotten", task, attempt]       nothing of it ever began, or it is no longer kept

Promises: `write` returns when its lines are on disk (fsync); a line that was not written whole is no line; only the agent writes here,
so nobody has to be waited for.

*Why one file (2026-11-30).* A file for every fact of an attempt, written, fsynced, renamed and its directory fsynced, was five fsyncs
(3.6 ms each on the disk where this was measured) and nine new inodes a task (20 µs each, 350 where many were lately removed, for
ext4 looks through those). Appended together, a hundred starts share one fsync and make no inode.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from hetsched.agent.attempts import Holds

log = logging.getLogger("hetsched.agent")


class Line(msgspec.Struct, frozen=True, array_like=True, tag_field="line"):
    """Of one attempt."""

    task: str
    attempt: int


class Ordered(Line, frozen=True, array_like=True, tag="ordered"):
    """`argv` None: held, it has no process, until `held_until_ns` in `lease.now_ns` time (None: until told). `uid` None: the agent's own.
    `cgroup`: of all tasks."""

    boot_id: str
    argv: tuple[str, ...] | None
    held_until_ns: int | None = None
    holds: Holds = Holds()
    uid: int | None = None
    cgroup: str = ""


class Ended(Line, frozen=True, array_like=True, tag="ended"):
    """`silent`: it left nothing to read, and its directory is not its own any more."""

    succeeded: bool
    exit_code: int | None = None
    reason: str = ""
    silent: bool = False


class Settled(Line, frozen=True, array_like=True, tag="settled"):
    """`at`: seconds of the wall clock."""

    at: float


class Forgotten(Line, frozen=True, array_like=True, tag="forgotten"):
    """As if it had never been here."""


AnyLine = Ordered | Ended | Settled | Forgotten

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyLine).decode


class Ledger:
    """One agent's file. All calls block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.size_bytes = os.fstat(self._handle).st_size

    def read(self) -> Iterator[AnyLine]:
        """All whole lines. A last one that is torn is cut off; one that cannot be read otherwise is said and passed over."""
        *lines, torn = self._path.read_bytes().split(b"\n")
        self.size_bytes -= len(torn)
        os.ftruncate(self._handle, self.size_bytes)
        for number, line in enumerate(lines, 1):
            try:
                yield _decode(line)
            except msgspec.MsgspecError as error:
                log.error("%s, line %d cannot be read: %s", self._path, number, error)

    def write(self, lines: list[bytes]) -> None:
        """Encoded lines, durably. Raises OSError: then none of them counts."""
        before = self.size_bytes
        text = b"".join(line + b"\n" for line in lines)
        try:
            if os.write(self._handle, text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            os.fdatasync(self._handle)
        except OSError:
            os.ftruncate(self._handle, before)
            raise
        self.size_bytes = before + len(text)

    def replace(self, lines: Iterable[bytes]) -> None:
        """By fewer that say as much, durably. Raises OSError: then it is as it was."""
        new = self._path.with_suffix(".new")
        handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(os.dup(handle), "wb") as file:
                file.writelines(line + b"\n" for line in lines)
            os.fsync(handle)
            os.rename(new, self._path)
        except OSError:
            os.close(handle)
            raise
        os.close(self._handle)
        self._handle = handle
        self.size_bytes = os.fstat(handle).st_size
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        os.close(self._handle)
