"""Where the daemon is and how to be let in: flags first, then the environment, then the daemon's own data directory.

A daemon writes `url` and `token` into its data directory, so whoever may read that directory needs no settings.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

DEFAULT_URL = "http://127.0.0.1:7463"


class Address(NamedTuple):
    """`url` without a slash at its end; `token` None = ask without one (and most likely be refused)."""

    url: str
    token: str | None


def data_dir() -> Path:
    """Where `hetsched serve` keeps its state unless told otherwise."""
    if os.environ.get("HETSCHED_DATA"):
        return Path(os.environ["HETSCHED_DATA"])
    if os.geteuid() == 0:
        return Path("/var/lib/hetsched")
    return Path.home() / ".local" / "share" / "hetsched"


def find(url: str | None = None, token: str | None = None, data: str | None = None) -> Address:
    """The address to talk to. A token from the data directory is only ever sent to the daemon that lives there:
    with another URL given and no token, none is sent."""
    directory = Path(data) if data else data_dir()
    local_url = _read(directory / "url")
    chosen = url or os.environ.get("HETSCHED_URL") or local_url or DEFAULT_URL
    chosen = chosen.rstrip("/")
    chosen_token = token or os.environ.get("HETSCHED_TOKEN")
    if not chosen_token and (local_url is None or data or chosen == local_url.rstrip("/")):
        chosen_token = _read(directory / "token")
    return Address(chosen, chosen_token or None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
