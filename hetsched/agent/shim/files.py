"""Whole files or none: who the agent is, and what it wishes of a shim.

Promises: a reader never sees half a file; with `durable`, the content survives a power loss once the call has returned.
"""

from __future__ import annotations

import json
import os
from typing import Any


def write_whole(directory: int, name: str, content: dict[str, Any], *, durable: bool) -> None:
    """Writes `name` in the open directory as JSON, replacing it at once. Raises OSError (a full disk, a directory that is gone)."""
    write_text(directory, name, json.dumps(content), durable=durable)


def write_text(directory: int, name: str, text: str, *, durable: bool = False) -> None:
    """Likewise, as it is."""
    temporary = f".{name}.{os.getpid()}"
    _write(directory, temporary, text, durable)
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    if durable:
        os.fsync(directory)


def read_whole(directory: int, name: str) -> dict[str, Any] | None:
    """The content, or None where there is no such file (or none that was written whole)."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            content = json.loads(file.read())
        except ValueError:
            return None
    return content if isinstance(content, dict) else None


def open_directory(path: str) -> int:
    """A handle on a directory, never through a link at its end. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _write(directory: int, name: str, text: str, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except OSError:
        os.unlink(name, dir_fd=directory)  # a full disk must not be fuller for our trying
        raise
