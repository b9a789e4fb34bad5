"""Where the daemon is and what lets us in, looked up anew at every try: a daemon on this machine may come back on another port.

Order: what the command line or the configuration says; the environment (`HETSCHED_URL`, `HETSCHED_TOKEN`); the data directory of a
daemon on this machine (`url`, `agent-token`).
"""

from __future__ import annotations

import os
from pathlib import Path

from hetsched.agent.link import Parted


class Address:
    """`server`, `token`: as told, None = not told. `last_url`: the one of the last try, for the tasks' environment."""

    def __init__(self, data_dir: Path, server: str | None, token: str | None) -> None:
        self._data_dir = data_dir
        self._server = server or os.environ.get("HETSCHED_URL") or None
        self._token = token or os.environ.get("HETSCHED_TOKEN") or None
        self.last_url = self._server or ""

    def find(self) -> tuple[str, str]:
        """(URL, token); raises Parted, saying what is missing."""
        url = self._server or self._read("url", "the daemon's address (--server)")
        if "://" not in url:
            url = f"http://{url}"
        self.last_url = url
        return url, self._token or self._read("agent-token", "the agent's token (HETSCHED_TOKEN)")

    def _read(self, name: str, what: str) -> str:
        path = self._data_dir / name
        try:
            text = path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise Parted(f"{what} is not told, and {path} cannot be read: {error.strerror}") from None
        if not text:
            raise Parted(f"{what} is not told, and {path} is empty")
        if not text.isascii() or not text.isprintable():
            raise Parted(f"{what} is not told, and {path} holds something else")
        return text
