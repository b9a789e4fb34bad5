"""The observer process: follows the event stream and writes onto the boards when each task was placed and, if that is asked for, ended.

Promises: it resumes after a cut at the event it had last, so a placement is missed only if the daemon no longer has it; times are taken when
the bytes were read, before they are decoded.
"""

from __future__ import annotations

import http.client
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetsched.model import runs
from loadtest.board import Board
from loadtest.rows import row_of, rows_in

READ_BYTES = 1 << 20
SILENCE_S = 40.0  # the daemon says something every 15 s; less is a dead connection
RECONNECT_S = 0.2


class Lost(Exception):
    """The daemon has forgotten events that were not read yet."""


class Watch(NamedTuple):
    """What to follow, and where to write it."""

    host: str
    port: int
    token: str
    run: str
    directory: Path
    generators: int
    capacity: int
    ends: bool = False


ENDS = frozenset(("succeeded", "failed", "cancelled", "expired", "skipped"))


class Observer:
    """Bytes of the stream in, times onto the boards out. The stream is that of runs (docs/http.md): a turn's placements are one stroke."""

    def __init__(self, watch: Watch) -> None:
        self._run = watch.run
        self._boards = [Board(watch.directory, number, watch.capacity) for number in range(watch.generators)]
        self._ends = watch.ends
        self._rest = b""
        self.last_seq: int | None = None

    def read(self, data: bytes, now_ns: int) -> None:
        """Any piece of the stream, cut anywhere. Raises Lost when the daemon no longer has what comes next."""
        bodies, self._rest = runs.cut(self._rest + data if self._rest else data)
        for body in bodies:
            run = runs.decode(body)
            if isinstance(run, runs.Moves):
                self._moved(run, now_ns)
            elif isinstance(run, runs.Single):
                self._told(run.event, now_ns)
            self.last_seq = run.seq + (1 if isinstance(run, runs.Single) else len(run.tasks)) - 1

    def cut(self) -> None:
        """The connection broke; what was half read is sent again."""
        self._rest = b""

    def _told(self, event: dict[str, Any], now_ns: int) -> None:
        if event["event"] == "gone":
            raise Lost
        found = row_of(event["task"], self._run) if event.get("task") else None
        if found is None:
            return
        number, row = found
        if event["event"] == "placed":
            self._placed(number, np.array([row]), now_ns)
        elif event["event"] in ENDS and self._ends:
            self._boards[number].ended[row] = now_ns

    def _moved(self, run: runs.Moves, now_ns: int) -> None:
        what = np.frombuffer(run.what, np.uint8)
        placed = what == run.names.index("placed")
        ended = np.isin(what, [at for at, name in enumerate(run.names) if name in ENDS]) if self._ends else None
        for number, at, rows in rows_in(run.tasks, self._run):
            self._placed(number, rows[placed[at]], now_ns)
            if ended is not None:
                self._boards[number].ended[rows[ended[at]]] = now_ns

    def _placed(self, number: int, rows: NDArray[np.int64], now_ns: int) -> None:
        column = self._boards[number].placed
        column[rows[column[rows] == 0]] = now_ns  # later placements are of further attempts


def observe(watch: Watch, ready: Event, stop: Event) -> None:
    """The process: follows until told to stop. `ready` is set once the stream is open."""
    observer = Observer(watch)
    while not stop.is_set():
        try:
            _follow(watch, observer, ready, stop)
        except Lost:  # what was missed stays unseen, and counts as such
            observer.cut()
            observer.last_seq = None
        except (OSError, http.client.HTTPException):
            observer.cut()
            time.sleep(RECONNECT_S)


def _follow(watch: Watch, observer: Observer, ready: Event, stop: Event) -> None:
    connection = http.client.HTTPConnection(watch.host, watch.port, timeout=SILENCE_S)
    headers = {"Authorization": f"Bearer {watch.token}", "Accept": runs.MEDIA}
    if observer.last_seq is not None:
        headers["Last-Event-ID"] = str(observer.last_seq)
    try:
        connection.request("GET", "/v1/events", headers=headers)
        response = connection.getresponse()
        if response.status == 410:
            raise Lost
        if response.status != 200:
            raise http.client.HTTPException(f"/v1/events answered {response.status}")
        ready.set()
        while not stop.is_set():
            piece = response.read1(READ_BYTES)
            if not piece:
                return
            observer.read(piece, time.monotonic_ns())
    finally:
        connection.close()
