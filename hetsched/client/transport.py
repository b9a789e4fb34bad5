"""One HTTP exchange with the daemon, on the standard library alone: send, read, turn a problem into an exception.

Promises: a request that may be repeated (a read, or a submission with its key) is repeated after a dropped connection,
a 503 or a 429 until `patience_s` is over; one that may not is repeated only when it certainly did nothing.
Where several daemons share a store it is the leader that is asked, wherever that is by now (`places.py`); a standby's answer is taken only
while no leader can be reached. A task that another cell has is asked for there (307). One kept-alive connection a thread, so a
`Transport` may be shared by threads.
"""

from __future__ import annotations

import http.client
import json
import select
import threading
import time
from collections.abc import Mapping
from email.message import Message
from typing import Any
from urllib.parse import urlsplit

from hetsched.client.places import Place, Places, place_of
from hetsched.client.problems import Unreachable, from_answer
from hetsched.errors import ConfigError, HetschedError, TooBusy, Unavailable

# A daemon that comes back after kill -9 listens within about a second; below this pause we would only burn CPU.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_NAMED_PAUSE_S = 0.25  # before a leader that was named is asked: it is there, or will be in a moment

# On a kept connection it is an answer to our silence, not to the request, which was not read (RFC 9110, 15.5.9).
_STALE = 408

# A machine that is gone says nothing at all; where there is another one to ask it is not waited for.
_CONNECT_S = 2.0

# A frozen leader's kernel goes on taking connections and requests. After so much silence, longer than a lease, the others are asked whether one
# of them leads by now; a leader that only has much to do is waited for.
_SILENCE_S = 4.0
_LOOK_S = 1.0

LEADER = "Hetsched-Leader"
EPOCH = "Hetsched-Epoch"
CELL = "Hetsched-Cell"

# So long a leader that another one has replaced may not know it (its lease is shorter). What it says meanwhile is older than what this client
# has heard. After that a lower epoch is that of a store which somebody has restored.
_DEPOSED_S = 60.0

# A task that was taken by a cell may have been sent on before it came there under the same name; no further.
_MOST_CELLS = 2

_DROPPED = (ConnectionError, TimeoutError, http.client.HTTPException)


class Transport:
    """`urls`: addresses separated by commas. `patience_s`: how long an interrupted request is tried again. `reach_s`: how long nobody
    listening is endured, where there is one address. `timeout_s`: silence on one exchange before it counts as dropped."""

    def __init__(
        self, urls: str, token: str | None, *, patience_s: float = 10.0, reach_s: float = 1.0, timeout_s: float = 30.0
    ) -> None:
        self._places = Places(urls)
        self._headers = {"Accept": "application/json", "User-Agent": "hetsched-client"}
        if token:
            self._headers["Authorization"] = f"Bearer {sendable('the token', token)}"
        self._patience_s, self._reach_s, self._timeout_s = patience_s, reach_s, timeout_s
        self._local = threading.local()
        self._epochs: dict[str, tuple[int, float]] = {}  # of each cell the highest that was heard, and when last

    @property
    def url(self) -> str:
        """Where the last answer came from, or the next is expected from."""
        return self._places.present.url

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
        asked: set[Place] = set()  # since the last pause that was longer than the first
        while True:
            place = self._places.present
            asked.add(place)
            try:
                return self._once(place, method, path, body, headers or {}, repeatable)
            except (Unreachable, Unavailable, TooBusy) as error:
                was_named = self._move(place, error)
                did_nothing = repeatable or not (isinstance(error, Unreachable) and error.sent)
                if did_nothing and self._places.present not in asked:
                    wait_s = _FIRST_PAUSE_S  # what one says of itself says nothing of another, who is asked with whatever patience
                else:
                    asked.clear()
                    wait_s = max(pause_s, min(error.retry_after or 0.0, _LONGEST_PAUSE_S))
                    wait_s = min(wait_s, _NAMED_PAUSE_S) if was_named else wait_s
                    pause_s = min(2 * wait_s, _LONGEST_PAUSE_S)
                    if time.monotonic() + wait_s - began > self._limit_s(error, repeatable):
                        raise
            time.sleep(wait_s)

    def open_stream(self, path: str, headers: Mapping[str, str], timeout_s: float | None) -> http.client.HTTPResponse:
        """An answer to be read bit by bit, on a connection of its own which closes with it."""
        place = self._places.present
        try:
            response = self._stream(place, path, headers, timeout_s)
            for _ in range(_MOST_CELLS):
                target = self._cell_of(response.headers.get("Location", ""), place) if response.status == 307 else None
                if target is None:
                    break
                response.close()
                response = self._stream(*target, headers, timeout_s)
            if response.status >= 300:
                raise from_answer(response.status, response.read(), response.headers)
            return response
        except (Unreachable, Unavailable) as error:
            self._move(place, error)
            raise

    def _stream(
        self, place: Place, path: str, headers: Mapping[str, str], timeout_s: float | None
    ) -> http.client.HTTPResponse:
        connection = self._connect(place, timeout_s)
        try:
            connection.request("GET", place.prefix + path, headers={**self._headers, **headers, "Connection": "close"})
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _dropped(place.url, error) from error

    def close(self) -> None:
        """Closes this thread's connection."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            connection.close()

    def _move(self, place: Place, error: HetschedError) -> bool:
        """Where the next try goes; True: to a leader that was named."""
        if isinstance(error, Unavailable) and error.leader and self._places.follow(error.leader, place):
            return True
        if isinstance(error, Unreachable | Unavailable):
            self._places.leave(place)
        return False

    def _limit_s(self, error: HetschedError, repeatable: bool) -> float:
        if isinstance(error, Unreachable):
            if not error.sent:
                return self._patience_s if self._places.several else self._reach_s
            return self._patience_s if repeatable else 0.0
        return self._patience_s

    def _once(
        self, place: Place, method: str, path: str, body: bytes | None, headers: Mapping[str, str], repeatable: bool
    ) -> Any:
        answer = self._exchange(place, method, path, body, {**self._headers, **headers}, repeatable)
        if method == "GET" and path.startswith("/v1/") and answer[0] != 503 and (leader := answer[2].get(LEADER)):
            answer = self._from_leader(leader, place, path, {**self._headers, **headers}) or answer
        home = place
        for _ in range(_MOST_CELLS):
            if answer[0] != 307 or (target := self._cell_of(answer[2].get("Location", ""), place)) is None:
                break
            place, path = target
            try:
                answer = self._exchange(place, method, path, body, {**self._headers, **headers}, repeatable)
            finally:
                self.close()
        status, raw, answer_headers = answer
        if status >= 300:
            error = from_answer(status, raw, answer_headers)
            if place is not home and isinstance(error, Unavailable):
                error.leader = None  # of that cell: ours is asked again, which will know where its leader is
            raise error
        try:
            return json.loads(raw) if raw.strip() else None
        except ValueError as error:
            raise HetschedError(f"{place.url} answered {method} {path} with something that is no JSON") from error

    def _cell_of(self, location: str, told_by: Place) -> tuple[Place, str] | None:
        """(the daemon of the cell that has the task, what to ask there); believed as a leader's address is (`Places`)."""
        try:
            place = place_of(location)
        except ConfigError:
            return None
        if told_by.https and not place.https:
            return None
        parts = urlsplit(location)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return place._replace(url=f"{parts.scheme}://{parts.netloc}", prefix=""), path

    def _from_leader(
        self, leader: str, standby: Place, path: str, headers: Mapping[str, str]
    ) -> tuple[int, bytes, Message] | None:
        """The leader's answer instead of a standby's, which may be a moment older than what this client has seen; None = not to be had."""
        if not self._places.follow(leader, standby):
            return None
        try:
            answer = self._exchange(self._places.present, "GET", path, None, headers, True)
        except Unreachable:
            self._places.back(standby)
            return None
        if answer[0] == 503:
            self._places.back(standby)
            return None
        return answer

    def _exchange(
        self, place: Place, method: str, path: str, body: bytes | None, headers: Mapping[str, str], repeatable: bool
    ) -> tuple[int, bytes, Message]:
        if getattr(self._local, "place", place) != place:
            self.close()
        self._local.place = place
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        kept = connection is not None
        if connection is None:
            connection = self._connect(place, self._timeout_s)
        try:
            connection.request(method, place.prefix + path, body=body, headers=dict(headers))
            if repeatable and self._places.several:
                self._await(connection, place)
            response = connection.getresponse()
            answer = response.status, response.read(), response.headers
        except BaseException as error:
            self.close()
            connection.close()
            if not isinstance(error, (*_DROPPED, OSError)):
                raise
            stale = kept and isinstance(error, http.client.RemoteDisconnected | BrokenPipeError)
            if stale and method in ("GET", "PUT"):
                return self._exchange(place, method, path, body, headers, repeatable)
            raise _dropped(place.url, error) from error
        self._local.connection = None if response.will_close else connection
        if kept and answer[0] == _STALE:
            connection.close()
            return self._exchange(place, method, path, body, headers, repeatable)
        self._check_epoch(place, answer[2])
        return answer

    def _check_epoch(self, place: Place, answer: Message) -> None:
        """Raises Unavailable where it is a leader that has been replaced. What it was asked it has not done: its journal takes nothing."""
        said, cell = answer.get(EPOCH, ""), answer.get(CELL, "")
        if not (said.isascii() and said.isdecimal()):
            return
        epoch, now_s = int(said), time.monotonic()
        heard, heard_s = self._epochs.get(cell, (0, 0.0))
        if epoch < heard and now_s - heard_s < _DEPOSED_S:
            raise Unavailable(
                f"the daemon at {place.url} leads epoch {epoch}, and {heard} has been heard of", retry_after=0.0
            )
        self._epochs[cell] = epoch, now_s

    def _await(self, connection: http.client.HTTPConnection, place: Place) -> None:
        """Until the answer begins; TimeoutError when another daemon leads before that."""
        poll = select.poll()
        poll.register(connection.sock, select.POLLIN)
        until_s = time.monotonic() + self._timeout_s
        while not poll.poll(1000 * min(_SILENCE_S, self._timeout_s)) and time.monotonic() < until_s:
            if any(map(self._leads, self._places.others(place))):
                raise TimeoutError("it is silent, and another daemon leads")

    def _leads(self, place: Place) -> bool:
        try:
            connection = self._connect(place, _LOOK_S)
            try:
                connection.request("GET", place.prefix + "/readyz")
                return connection.getresponse().status == 200
            finally:
                connection.close()
        except (Unreachable, OSError, http.client.HTTPException):
            return False

    def _connect(self, place: Place, timeout_s: float | None) -> http.client.HTTPConnection:
        make = http.client.HTTPSConnection if place.https else http.client.HTTPConnection
        connection = make(place.host, place.port, timeout=_CONNECT_S if self._places.several else timeout_s)
        try:
            connection.connect()
        except OSError as error:
            raise Unreachable(f"cannot reach the daemon at {place.url}: {error.strerror or error}") from error
        connection.timeout = timeout_s
        connection.sock.settimeout(timeout_s)
        return connection


def sendable(what: str, text: str) -> str:
    """The text, if a header can hold it. Raises ConfigError."""
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(f"{what} must be printable ASCII")
    return text


def _dropped(url: str, error: BaseException) -> Unreachable:
    return Unreachable(f"the connection to the daemon at {url} broke: {error or type(error).__name__}", sent=True)
