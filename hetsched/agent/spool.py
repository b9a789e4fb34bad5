"""Attempts on disk: one directory each below `tasks/`, in the files that `hetsched.agent.shim` describes.

Promises: a directory's name says whose it is, so a start for an attempt that was ever here is recognised, whatever was in memory;
the record is on disk (fsync, its directory too) before `prepare` returns; nothing outside `tasks/` is ever opened or removed.
All calls block; the runner makes them in its threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from hetsched.agent.attempts import Key, Outcome
from hetsched.agent.shim import files

_LONGEST = 180  # bytes of a readable name; a file name may have 255


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt's directory says. `shim`: (pid, start time); `task_pid`: of its first process, which leads its session."""

    key: Key
    record: dict[str, Any]
    shim: tuple[int, int] | None = None
    task_pid: int | None = None
    started_at: float = 0.0
    outcome: Outcome | None = None


def directory_name(key: Key) -> str:
    """`train/7` attempt 2 → `train%2F7.2`. A name that would be too long is a hash."""
    readable = quote(key.task, safe="")
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
    """The directory `root` of one agent, made if need be. New directories get its mode: where it lets other users pass through
    (not look), their tasks can work below it."""

    def __init__(self, root: Path) -> None:
        make_directory(root, 0o700)
        self.root = root
        self._mode = stat.S_IMODE(root.stat().st_mode)

    def path(self, key: Key) -> Path:
        return self.root / directory_name(key)

    def prepare(self, key: Key, record: dict[str, Any]) -> None:
        """Writes the record of a new attempt, durably. FileExistsError: it was here before."""
        path = self.path(key)
        os.mkdir(path, self._mode)
        os.chmod(path, self._mode)
        self._write(key, "attempt.json", {"task": key.task, "attempt": key.attempt, **record}, durable=True)
        _sync_directory(self.root)

    def ask_to_stop(self, key: Key, reason: str, grace_s: float) -> None:
        """Leaves the wish for the shim, which looks when it is nudged."""
        self._write(key, "stop.json", {"reason": reason, "grace_s": grace_s}, durable=False)

    def write_outcome(self, key: Key, outcome: Outcome) -> None:
        """How it ended, where no shim can write that down: held attempts, those never started, those whose shim was killed.
        What is written there already stays."""
        path = self.path(key)
        if not path.exists():
            self.prepare(key, {})
        elif self._outcome(path) is not None:
            return
        content = {"succeeded": outcome.succeeded, "exit_code": outcome.exit_code, "reason": outcome.reason}
        self._write(key, "exit.json", {**content, "ended_at": time.time()}, durable=True)

    def settle(self, key: Key) -> None:
        """The daemon has its end. Not durable: forgetting this means saying the end once more."""
        try:
            (self.path(key) / "settled").touch()
        except FileNotFoundError:
            pass  # never prepared, or removed by hand

    def outcome(self, key: Key) -> Outcome | None:
        """How it ended, if that is on disk."""
        return self._outcome(self.path(key))

    def take_from_shims(self, key: Key) -> bool:
        """Makes sure that no shim will ever start this attempt; False if one has it already."""
        with _Opened(self.path(key)) as directory:
            return files.create_whole(directory, "shim.pid", {"pid": 0, "start_time": 0})

    def find(self, path: Path) -> Found | None:
        """What is in an attempt's directory; None if the agent died before its record was whole: nothing began. Raises OSError or
        ValueError where somebody has spoilt it."""
        with _Opened(path) as directory:
            record = files.read_whole(directory, "attempt.json")
            shim = files.read_whole(directory, "shim.pid")
            started = files.read_whole(directory, "started.json") or {}
        if record is None:
            if shim or (path / "work").exists():
                raise ValueError("its record is gone")
            return None
        key = Key(record["task"], record["attempt"])
        if self.path(key) != path:
            raise ValueError(f"its record is that of {key}")
        return Found(
            key=key,
            record=record,
            shim=(shim["pid"], shim["start_time"]) if shim else None,
            task_pid=started.get("pid"),
            started_at=started.get("started_at", 0.0),
            outcome=self._outcome(path),
        )

    def is_settled(self, path: Path) -> bool:
        """Whether the daemon has the end of the attempt in this directory."""
        return (path / "settled").exists()

    def latest(self, task: str) -> Key | None:
        """The task's highest attempt that left anything here."""
        prefix = directory_name(Key(task, 0))[:-1]
        numbers = (name[len(prefix) :] for name in os.listdir(self.root) if name.startswith(prefix))
        highest = max((int(number) for number in numbers if number.isdigit()), default=0)
        return Key(task, highest) if highest else None

    def directories(self) -> list[Path]:
        """Of every attempt that left anything."""
        return [path for path in self.root.iterdir() if path.is_dir() and not path.is_symlink()]

    def remove(self, path: Path) -> None:
        """An attempt's directory with its logs and its work directory; links in there are removed, never followed."""
        assert path.parent == self.root, f"{path} is not an attempt's directory"
        shutil.rmtree(path, ignore_errors=True)

    def _write(self, key: Key, name: str, content: dict[str, Any], *, durable: bool) -> None:
        with _Opened(self.path(key)) as directory:
            files.write_whole(directory, name, content, durable=durable)

    @staticmethod
    def _outcome(path: Path) -> Outcome | None:
        with _Opened(path) as directory:
            content = files.read_whole(directory, "exit.json")
        try:
            return None if content is None else msgspec.convert(content, Outcome)
        except msgspec.ValidationError:
            return None  # spoilt: as good as not written


def make_directory(path: Path, mode: int) -> None:
    """With exactly this mode, its parents as they come; one that exists keeps its own. Agents that begin together may both want it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(mode)


class _Opened:
    """A directory's handle for a `with`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._handle = files.open_directory(str(self._path))
        return self._handle

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def _sync_directory(path: Path) -> None:
    with _Opened(path) as handle:
        os.fsync(handle)
