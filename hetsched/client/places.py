"""Where daemons may be: the addresses that a client was given, and the one that leads as far as it was told.

Promises: a leader is believed only from a daemon that was asked with the token anyway, and never leads from TLS to clear text; what was given
is never forgotten, so that a leader that dies is looked for there again. Threads share it; whoever finds a place wanting moves only if nobody
has moved meanwhile.
"""

from __future__ import annotations

import threading
from typing import NamedTuple
from urllib.parse import urlsplit

from hetsched.errors import ConfigError


class Place(NamedTuple):
    """`prefix`: of paths, without a slash at its end."""

    url: str
    https: bool
    host: str
    port: int | None
    prefix: str


class Places:
    """`present`: where to ask now."""

    def __init__(self, urls: str) -> None:
        """Addresses separated by commas. Raises ConfigError where one is none."""
        self._given = [place_of(url) for url in split(urls)]
        self.present = self._given[0]
        self._lock = threading.Lock()

    @property
    def several(self) -> bool:
        """Whether there is another one to try."""
        return len(self._given) > 1 or self.present not in self._given

    def others(self, than: Place) -> list[Place]:
        """Those given, without this one."""
        return [given for given in self._given if given != than]

    def follow(self, leader: str, told_by: Place) -> bool:
        """Ask the leader from now on; False where that is not to be, or is so already."""
        try:
            place = place_of(leader)
        except ConfigError:
            return False
        with self._lock:
            if self.present is not told_by or place == told_by or (told_by.https and not place.https):
                return False
            self.present = next((given for given in self._given if given == place), place)
            return True

    def leave(self, found_wanting: Place) -> None:
        """Ask the next of those given."""
        with self._lock:
            if self.present is found_wanting:
                at = self._given.index(found_wanting) if found_wanting in self._given else -1
                self.present = self._given[(at + 1) % len(self._given)]

    def back(self, to: Place) -> None:
        """Ask there again."""
        with self._lock:
            self.present = to


def split(urls: str) -> list[str]:
    """The addresses in a text, without slashes at their ends."""
    return [url.strip().rstrip("/") for url in urls.split(",") if url.strip()] or [urls]


def place_of(url: str) -> Place:
    """ConfigError where it is no address of a daemon."""
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is no address of a daemon: {error}") from None
    if parts.scheme not in ("http", "https") or not host or not host.isprintable() or " " in host:
        raise ConfigError(f"{url!r} is no address of a daemon; it looks like http://HOST:PORT")
    return Place(url.rstrip("/"), parts.scheme == "https", host, port, parts.path.rstrip("/"))
