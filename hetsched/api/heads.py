"""Heads of requests that the fast path may answer, recognised by all their bytes.

A client says the same head again and again, but for the length of the body. So a head is read once, by rules stricter than HTTP's, and is found
again in a dictionary. Whatever is unusual about it (a header not listed here, one said twice, a token that is not known) leaves the
request to aiohttp, which answers it as it always did: nothing is refused here.
"""

from __future__ import annotations

import re

from hetsched._scan import Head
from hetsched.api.body import JSON, media_of
from hetsched.api.desk import Desk
from hetsched.errors import HetschedError

LINE = b"POST /v1/schedule HTTP/1.1\r\n"
END = b"\r\n\r\n"
LONGEST = 4096
MOST_KEPT = 1024

_HEADER = re.compile(rb"([A-Za-z-]{1,32}): ?([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)")
_IGNORED = frozenset((b"accept", b"accept-encoding", b"accept-language", b"user-agent"))
_NEEDED = frozenset((b"host", b"authorization", b"content-type", b"content-length"))


class Heads:
    """One per listener. Kept heads are forgotten when the tokens are read again."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._kept: dict[bytes, Head | None] = {}
        self._tokens = desk.tokens

    def find(self, head: bytes) -> Head | None:
        """`head`: what follows the request line, blank line and all. None: it is not for the fast path."""
        if self._tokens is not self._desk.tokens or len(self._kept) >= MOST_KEPT:
            self._kept, self._tokens = {}, self._desk.tokens
        try:
            return self._kept[head]
        except KeyError:
            found = self._kept[head] = self._read(head) if len(head) <= LONGEST else None
            return found

    def _read(self, head: bytes) -> Head | None:
        said: dict[bytes, str] = {}
        for line in head[: -len(END)].split(b"\r\n"):
            found = _HEADER.fullmatch(line)
            if found is None or (name := found[1].lower()) in said:
                return None
            said[name] = found[2].decode()
        if said.pop(b"connection", "keep-alive").lower() != "keep-alive" or said.keys() - _IGNORED != _NEEDED:
            return None
        length, limits = said[b"content-length"], self._desk.config.limits
        if not length.isdecimal() or len(length) > 9 or not 0 < int(length) <= limits.body_bytes:
            return None
        try:
            if media_of(said[b"content-type"], (JSON,)) != JSON or not self._desk.knows_host(said[b"host"]):
                return None
            token = self._desk.tokens.identify(said[b"authorization"])
            token.require("submit")
        except HetschedError:
            return None
        return Head(int(length), token, token.name, not token.queues and token.allows("immediate"))
