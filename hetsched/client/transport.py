"""One HTTP exchange with the daemon, on the standard library alone: send, read, turn a problem into an exception.

Promises: a request that may be repeated (a read, or a submission with its key) is repeated after a dropped connection,
a 503 or a 429 until `patience_s` is over; one that may not is repeated only when it certainly did nothing.
One kept-alive connection a thread, so a `Transport` may be shared by threads.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from hetsched.client.problems import Unreachable, from_answer
from hetsched.errors import ConfigError, HetschedError, TooBusy, Unavailable

# A daemon that comes back after kill -9 listens within about a second; below this pause we would only burn CPU.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0

# On a kept connection it is an answer to our silence, not to the request, which was not read (RFC 9110, 15.5.9).
_STALE = 408

_DROPPED = (ConnectionError, TimeoutError, http.client.HTTPException)


def _parts(url: str) -> tuple[bool, str, int | None, str]:
    """(https, host, port, path) of an address; ConfigError where it is none."""
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is no address of a daemon: {error}") from None
    if parts.scheme not in ("http", "https") or not host or not host.isprintable() or " " in host:
        raise ConfigError(f"{url!r} is no address of a daemon; it looks like http://HOST:PORT")
    return parts.scheme == "https", host, port, parts.path.rstrip("/")


class Transport:
    """`patience_s`: how long an interrupted request is tried again. `reach_s`: how long nobody listening is endured.
    `timeout_s`: silence on one exchange before it counts as dropped."""

    def __init__(
        self, url: str, token: str | None, *, patience_s: float = 10.0, reach_s: float = 1.0, timeout_s: float = 30.0
    ) -> None:
        self.url = url
        self._https, self._host, self._port, self._prefix = _parts(url)
        self._headers = {"Accept": "application/json", "User-Agent": "hetsched-client"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._patience_s, self._reach_s, self._timeout_s = patience_s, reach_s, timeout_s
        self._local = threading.local()

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> Any:
        """The decoded JSON answer of a 2xx; anything else raises an error of the tree."""
        began = time.monotonic()
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self._once(method, path, body, headers or {})
            except (Unreachable, Unavailable, TooBusy) as error:
                limit_s = self._limit_s(error, repeatable)
                pause_s = max(pause_s, min(error.retry_after or 0.0, _LONGEST_PAUSE_S))
                if time.monotonic() + pause_s - began > limit_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def open_stream(self, path: str, headers: Mapping[str, str], timeout_s: float | None) -> http.client.HTTPResponse:
        """An answer to be read bit by bit, on a connection of its own which closes with it."""
        connection = self._connect(timeout_s)
        try:
            connection.request("GET", self._prefix + path, headers={**self._headers, **headers, "Connection": "close"})
            response = connection.getresponse()
            if response.status >= 300:
                raise from_answer(response.status, response.read(), response.headers)
            return response
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _dropped(self.url, error) from error

    def close(self) -> None:
        """Closes this thread's connection."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            connection.close()

    def _limit_s(self, error: HetschedError, repeatable: bool) -> float:
        if isinstance(error, Unreachable):
            if not error.sent:
                return self._reach_s
            return self._patience_s if repeatable else 0.0
        return self._patience_s

    def _once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
        status, raw, answer_headers = self._exchange(method, path, body, {**self._headers, **headers})
        if status >= 300:
            raise from_answer(status, raw, answer_headers)
        try:
            return json.loads(raw) if raw.strip() else None
        except ValueError as error:
            raise HetschedError(f"{self.url} answered {method} {path} with something that is no JSON") from error

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, Message]:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        kept = connection is not None
        if connection is None:
            connection = self._connect(self._timeout_s)
        try:
            connection.request(method, self._prefix + path, body=body, headers=dict(headers))
            response = connection.getresponse()
            answer = response.status, response.read(), response.headers
        except BaseException as error:
            self.close()
            connection.close()
            if not isinstance(error, (*_DROPPED, OSError)):
                raise
            stale = kept and isinstance(error, http.client.RemoteDisconnected | BrokenPipeError)
            if stale and method in ("GET", "PUT"):
                return self._exchange(method, path, body, headers)
            raise _dropped(self.url, error) from error
        self._local.connection = None if response.will_close else connection
        if kept and answer[0] == _STALE:
            connection.close()
            return self._exchange(method, path, body, headers)
        return answer

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._https:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.connect()
        except OSError as error:
            raise Unreachable(f"cannot reach the daemon at {self.url}: {error.strerror or error}") from error
        return connection


def _dropped(url: str, error: BaseException) -> Unreachable:
    return Unreachable(f"the connection to the daemon at {url} broke: {error or type(error).__name__}", sent=True)
