"""Where the daemon is and how to be let in: flags first, then the environment, then the daemon's own data directory.

A daemon writes `url` and `token` into its data directory, so whoever may read that directory needs no settings. One that has just
been started gets a moment to do so: `hetsched serve --data D & hetsched submit …` in one breath has to work.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from hetsched.client.places import split
from hetsched.client.problems import Unreachable

DEFAULT_URL = "http://127.0.0.1:7463"
_POLL_S = 0.05


class Address(NamedTuple):
    """`url` without a slash at its end, or several separated by commas; `token` None = ask without one (and most likely be refused)."""

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
    chosen = ",".join(split(chosen))
    chosen_token = token or os.environ.get("HETSCHED_TOKEN")
    if not chosen_token and (local_url is None or data or chosen == local_url.rstrip("/")):
        chosen_token = _read(directory / "token")
    return Address(chosen, chosen_token or None)


def find_soon(url: str | None, token: str | None, data: str | None, patience_s: float = 3.0) -> Address:
    """As `find`; but where only a data directory is named, by option or environment, and nobody has listened there yet, waits up to
    `patience_s` for its daemon. Raises Unreachable then, rather than try the default address without a token."""
    named = data or os.environ.get("HETSCHED_DATA")
    told = url or token or os.environ.get("HETSCHED_URL") or os.environ.get("HETSCHED_TOKEN")
    if named and not told:
        deadline_s = time.monotonic() + patience_s
        while _read(Path(named) / "url") is None:
            if time.monotonic() > deadline_s:
                raise Unreachable(
                    f"no daemon listens with the data directory {named}: there is no file {Path(named) / 'url'}"
                )
            time.sleep(_POLL_S)
    return find(url, token, data)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
