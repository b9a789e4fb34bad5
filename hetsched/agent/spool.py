"""Attempts on disk: the ledger, what it says in memory, and below `tasks/` a directory for each attempt that has a shim or left something.

Promises: a start for an attempt that was ever here is recognised; what is noted is in memory at once and on disk when `write` has
returned; nothing outside the agent's directory is ever opened or removed. `note` and the look-ups are for the event loop; what blocks
says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from hetsched.agent import ledger
from hetsched.agent.attempts import Key, Outcome
from hetsched.agent.ledger import Ended, Forgotten, Ledger, Ordered, Settled
from hetsched.agent.shim import files
from hetsched.agent.shim.life import Life, read_life

log = logging.getLogger("hetsched.agent")

_LONGEST = 180  # bytes of a readable name; a file name may have 255
_is_plain = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch  # what quote leaves alone, found sooner
_LEAST_TO_REPLACE, _GROWTH = 8 << 20, 4  # a ledger that is four times what it was after it was last replaced


class Entry(msgspec.Struct):
    """What the ledger says of one attempt. `settled_at` 0: the daemon may not have its end."""

    key: Key
    ordered: Ordered | None = None
    ended: Ended | None = None
    settled_at: float = 0.0

    @property
    def outcome(self) -> Outcome | None:
        end = self.ended
        return None if end is None else Outcome(end.succeeded, end.exit_code, end.reason)


def directory_name(key: Key) -> str:
    """`train/7` attempt 2 → `train%2F7.2`. A name that would be too long is a hash."""
    readable = key.task if _is_plain(key.task) else quote(key.task, safe="")
    if len(readable) > _LONGEST:
        readable = "sha256-" + hashlib.sha256(key.task.encode()).hexdigest()
    return f"{readable}.{key.attempt}"


def key_of(name: str) -> Key | None:
    """Whose directory that is; None for a hash, or a name that is none of ours."""
    task, _, attempt = name.rpartition(".")
    if not task or not attempt.isdigit():
        return None
    key = Key(unquote(task), int(attempt))
    return key if directory_name(key) == name else None


class Spool:
    """Below `directory`, one agent's own. `tasks/` is made if need be; attempts' directories get its mode: where it lets other users
    pass through (not look), their tasks can work below it. Blocks: it reads the ledger."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "tasks"
        make_directory(self.root, 0o700)
        self._ledger = Ledger(directory / "ledger")
        self._entries: dict[Key, Entry] = {}
        self._noted: list[bytes] = []
        for line in self._ledger.read():
            self._take(line)
        self._replaced_bytes = self._ledger.size_bytes

    def close(self) -> None:
        self._ledger.close()

    # ------------------------------------------------------------------ the ledger

    def note(self, line: ledger.AnyLine) -> None:
        """Counts from now on; on disk with the next `write`."""
        self._take(line)
        self._noted.append(ledger.encode(line))

    def noted(self) -> list[bytes]:
        """What is to be written next."""
        lines, self._noted = self._noted, []
        return lines

    @property
    def is_behind(self) -> bool:
        """Whether anything is noted and not written."""
        return bool(self._noted)

    def write(self, lines: list[bytes]) -> None:
        """Durably. Blocks; raises OSError."""
        self._ledger.write(lines)

    @property
    def has_grown(self) -> bool:
        """Whether `replace` is worth it."""
        return self._ledger.size_bytes > max(_LEAST_TO_REPLACE, _GROWTH * self._replaced_bytes)

    def whole(self) -> list[bytes]:
        """All that is known, in lines; what is noted and not written yet is in it."""
        self._noted.clear()
        return [ledger.encode(line) for entry in self._entries.values() for line in _lines_of(entry)]

    def replace(self, lines: list[bytes]) -> None:
        """A ledger of only these. Blocks; raises OSError."""
        self._ledger.replace(lines)
        self._replaced_bytes = self._ledger.size_bytes

    def get(self, key: Key) -> Entry | None:
        """None: it never was here."""
        return self._entries.get(key)

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def latest(self, task: str) -> Key | None:
        """The task's highest attempt that was here."""
        return max((key for key in self._entries if key.task == task), default=None)

    def _take(self, line: ledger.AnyLine) -> None:
        key = Key(line.task, line.attempt)
        if isinstance(line, Forgotten):
            self._entries.pop(key, None)
            return
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(key)
        match line:
            case Ordered():
                entry.ordered = line
            case Ended():
                entry.ended = line
            case Settled():
                entry.settled_at = line.at
                entry.ordered = None  # of no further interest

    # ------------------------------------------------------------------ directories

    def path(self, key: Key) -> Path:
        """Where an attempt's directory is, if it has one."""
        return self.root / directory_name(key)

    def life(self, key: Key) -> Life | None:
        """None: no shim has begun with it. Blocks; raises OSError, ValueError where it is spoilt."""
        try:
            directory = files.open_directory(str(self.path(key)))
        except FileNotFoundError:
            return None
        try:
            return read_life(directory, directory_name(key))
        except FileNotFoundError:
            raise ValueError("its life is gone") from None
        finally:
            os.close(directory)

    def take_from_shims(self, key: Key) -> bool:
        """Makes sure that no shim will ever begin this attempt; False if one has. Blocks."""
        try:
            self.path(key).mkdir()
        except FileExistsError:
            return False
        return True

    def ask_to_stop(self, key: Key, reason: str, grace_s: float) -> None:
        """Leaves the wish for the shim, which looks when it is nudged. Blocks; FileNotFoundError: nothing of it is here."""
        directory = files.open_directory(str(self.path(key)))
        try:
            files.write_text(directory, "stop", f"{round(grace_s * 1000)} {reason}")
        finally:
            os.close(directory)

    def directories(self) -> list[Path]:
        """Of every attempt that has one. Blocks."""
        return [path for path in self._all_directories() if not path.name.startswith(".")]

    def sweep(self) -> None:
        """Removes what nobody will look at again: directories that shims had ready, and those of attempts without anything to read.
        Only while no shim is idle. Blocks."""
        silent = {directory_name(one.key) for one in self.entries() if one.ended is not None and one.ended.silent}
        for path in list(self._all_directories()):
            if path.name.startswith(".") or path.name in silent:
                self.remove(path)

    def remove(self, path: Path) -> None:
        """An attempt's directory with its logs and its work directory; links in there are removed, never followed. Blocks."""
        assert path.parent == self.root, f"{path} is not an attempt's directory"
        shutil.rmtree(path, ignore_errors=True)

    def _all_directories(self) -> Iterator[Path]:
        return (path for path in self.root.iterdir() if path.is_dir() and not path.is_symlink())


def _lines_of(entry: Entry) -> Iterator[ledger.AnyLine]:
    if entry.ordered is not None:
        yield entry.ordered
    if entry.ended is not None:
        yield entry.ended
    if entry.settled_at:
        yield Settled(*entry.key, entry.settled_at)


def make_directory(path: Path, mode: int) -> None:
    """With exactly this mode, its parents as they come; one that exists keeps its own. Agents that begin together may both want it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(mode)
