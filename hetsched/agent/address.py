"""Where the daemon is and what lets us in, looked up anew at every try: a daemon on this machine may come back on another port.

Order: what the command line or the configuration says; the environment (`HETSCHED_URL`, `HETSCHED_TOKEN`); the data directory of a
daemon on this machine (`url`, `agent-token`).
"""

from __future__ import annotations

import os
from pathlib import Path

from hetsched.agent.link import Parted


class Address:
    """`server`: addresses separated by commas; `token`; as told, None = not told. `last_url`: those told, or the one of the last try; for the
    tasks' environment."""

    def __init__(self, data_dir: Path, server: str | None, token: str | None) -> None:
        self._data_dir = data_dir
        self._servers = [
            url.strip() for url in (server or os.environ.get("HETSCHED_URL") or "").split(",") if url.strip()
        ]
        self._token = token or os.environ.get("HETSCHED_TOKEN") or None
        self._tries = 0
        self._leader = self._asked = ""
        self.last_url = ",".join(self._servers)

    def find(self) -> tuple[str, str]:
        """(URL, token); raises Parted, saying what is missing."""
        url = self._asked = self._leader or self._given()
        if len(self._servers) < 2:
            self.last_url = url
        return url, self._token or self._read("agent-token", "the agent's token (HETSCHED_TOKEN)")

    def leave(self, leader: str) -> None:
        """That was not it. `leader`: the address it named, "" = none; it is tried once, never in clear where TLS was given. If it is not there
        either, whoever named it is asked again: that one will lead, or know who does."""
        clear = leader.startswith("http://") and self._asked.startswith("https://")
        was_named, self._leader = bool(self._leader), "" if clear or leader == self._asked else leader
        self._tries += not self._leader and not was_named

    def _given(self) -> str:
        """The one of those told whose turn it is, or that of this machine's daemon."""
        servers = self._servers
        url = servers[self._tries % len(servers)] if servers else self._read("url", "the daemon's address (--server)")
        return url if "://" in url else f"http://{url}"

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
