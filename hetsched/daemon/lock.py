"""One daemon per data directory: an flock that the kernel drops when the process is gone, however it went."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from hetsched.errors import ConfigError

LOCK_FILE = "lock"
CONFIG_FILE = "config.json"
"""The configuration in effect, as the daemon last started with it: for commands that read its journal without it."""


class DataDir:
    """`DATA`, made with mode 0700 if absent and held by this process until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._handle = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"cannot use {path} as data directory: {error.strerror}; name another with --data"
            ) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._handle, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._handle)
            raise ConfigError(
                f"{path} is in use by another daemon (process {holder}); stop it or name another with --data"
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def publish_url(self, url: str) -> None:
        """Write `DATA/url`, which clients on this machine read."""
        self._publish("url", url + "\n")

    def publish_config(self, tree: dict[str, Any]) -> None:
        """Write `DATA/config.json`."""
        self._publish(CONFIG_FILE, json.dumps(tree, indent=1))

    def _publish(self, name: str, text: str) -> None:
        """Whole or not at all."""
        part = self.path / f"{name}.new"
        part.touch(mode=0o600)
        part.write_text(text)
        part.rename(self.path / name)

    def release(self) -> None:
        """Another daemon may have it."""
        os.close(self._handle)
