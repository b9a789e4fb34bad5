"""What the daemon's own disk remembers of the store, so that an empty or older one is never mistaken for a fresh start.

`DATA/identity.json` holds the cluster's id and a position known to be confirmed. It is written rarely (when the epoch opens,
with each snapshot, every ten seconds and at the end), so it lags behind the journal and never runs ahead of it. Promise: if
the store has lost what this file knows of, `check` refuses and says what to do.

Why: a primary that restarts empty wipes its replica within seconds; without a second memory the daemon would begin anew and
call every running task unknown.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

import msgspec

from hetsched.store.backend import Head
from hetsched.store.base import START, DirectoryBusy, IdentityMismatch, Position


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str
    epoch: int
    seq: int
    store: str


class Identity:
    """The file's content. A new one gets a random cluster id and has confirmed nothing."""

    def __init__(self, path: Path, store: str) -> None:
        """`store`: its URL without secrets, for people. Raises IdentityMismatch if the file cannot be read."""
        self._path = path
        self._store = store
        record = self._load()
        self.known = record is not None
        self.cluster = record.cluster if record else secrets.token_hex(8)
        self.confirmed = Position(record.epoch, record.seq) if record else START

    def check(self, head: Head | None) -> None:
        """Raise IdentityMismatch unless `head` may be the store that this directory belongs to."""
        if not self.known or (head is None and self.confirmed.epoch == 0):
            return
        if head is None:
            raise self._mismatch("is empty")
        if head.cluster != self.cluster and self.confirmed.epoch:
            raise self._mismatch(f"belongs to cluster {head.cluster}")
        if head.epoch < self.confirmed.epoch or head.seq < self.confirmed.seq:
            raise self._mismatch(f"ends at {head.position.id}, before that")

    def know(self, at: Position) -> None:
        """This was read from the store: one that ends before it has lost something."""
        if at.seq > self.confirmed.seq:
            self.confirmed = Position(at.epoch, at.seq)

    def save(self, cluster: str, confirmed: Position) -> None:
        """Replace the file and sync it. Blocks for one or two disk syncs."""
        self.cluster, self.confirmed, self.known = cluster, confirmed, True
        record = _Record(cluster, confirmed.epoch, confirmed.seq, self._store)
        temporary = self._path.with_suffix(".new")
        with open(temporary, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
        _sync_directory(self._path.parent)

    def _load(self) -> _Record | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise IdentityMismatch(
                f"{self._path} cannot be read ({error}); restore it, or move it away if the store is surely the right one"
            ) from None

    def _mismatch(self, what: str) -> IdentityMismatch:
        return IdentityMismatch(
            f"the store {self._store} {what}, but this daemon has confirmed {self.confirmed.id} of cluster {self.cluster} "
            f"({self._path}). Point store.url (--store) at the right server or restore its data from a backup. "
            f"To give up what is missing and go on with the store as it is, move {self._path} away"
        )


def holder_of(directory: Path) -> str:
    """Names a data directory of this boot of this machine: whoever locks it next may take what its last holder had, for that one is dead."""
    found = directory.stat()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{found.st_dev:x}/{found.st_ino:x}"


class DirectoryLock:
    """One store a data directory. The kernel drops the lock with the process, however it ends."""

    def __init__(self, directory: Path) -> None:
        """Raises DirectoryBusy, naming the holder's process id."""
        path = directory / "store.lock"
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            self.release()
            raise DirectoryBusy(
                f"{directory} is in use by another daemon (process {holder}); stop it, or give --data another directory"
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
