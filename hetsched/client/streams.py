"""Answers that come bit by bit, logs and events: read to their end, and joined again where they broke off.

Promise: after a cut the reader goes on at the byte or the event after the last one it had; nothing is given twice.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from hetsched.client.problems import Unreachable
from hetsched.client.sse import parse
from hetsched.client.transport import Transport
from hetsched.errors import Unavailable

_PAUSE_S = 0.3
_QUIET_S = 30.0
_SILENCE_S = 60.0  # the daemon sends a comment every 15 s; after this much nothing the stream is cut and joined again


class _Patience:
    """For `patience_s` without a sign of life."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._deadline: float | None = None

    def alive(self) -> None:
        """Something came."""
        self._deadline = None

    def pause(self, error: Exception) -> None:
        """Waits a little; raises `error` when it has been too long."""
        self._deadline = self._deadline or time.monotonic() + self._patience_s
        if time.monotonic() > self._deadline:
            raise error
        time.sleep(_PAUSE_S)


def read_log(
    transport: Transport, path: str, stream: str, attempt: int | None, offset: int, follow: bool, patience_s: float
) -> Iterator[bytes]:
    """Pieces from byte `offset` on."""
    patience = _Patience(patience_s)
    while True:
        query = {"stream": stream, "offset": offset, "follow": _flag(follow)}
        if attempt is not None:
            query["attempt"] = attempt
        try:
            timeout_s = None if follow else _QUIET_S
            response = transport.open_stream(f"{path}?{urlencode(query)}", {"Accept": "text/plain"}, timeout_s)
            for piece in _pieces(response):
                offset += len(piece)
                patience.alive()
                yield piece
            return
        except (Unreachable, Unavailable) as error:
            patience.pause(error)


def read_events(transport: Transport, since: int | None, follow: bool, patience_s: float) -> Iterator[dict[str, Any]]:
    """Events after `since` (None: from now on)."""
    last = None if since is None else str(since)
    patience = _Patience(patience_s)
    while True:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last is not None else {})}
        query = urlencode({"follow": _flag(follow), **({"since": last} if last is not None else {})})
        try:
            with transport.open_stream(f"/v1/events?{query}", headers, _SILENCE_S) as response:
                for number, event in parse(response):
                    patience.alive()
                    if event is not None:
                        last = number or last
                        yield event
            if not follow:
                return
            raise Unreachable("the event stream ended", sent=True)
        except (Unreachable, Unavailable) as error:
            patience.pause(error)
        except (OSError, http.client.HTTPException) as error:
            patience.pause(Unreachable(f"the event stream broke: {error}", sent=True))


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    with response:
        while True:
            try:
                piece = response.read1(65536)
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"the connection broke: {error}", sent=True) from error
            if not piece:
                return
            yield piece
