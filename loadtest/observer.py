"""The observer process: follows the event stream and writes onto the boards when each task was placed and, if that is asked for, ended.

Promises: it resumes after a cut at the event it had last, so a placement is missed only if the daemon no longer has it; times are taken when
the bytes were read, before they are decoded.
"""

from __future__ import annotations

import http.client
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import msgspec

from loadtest.board import Board
from loadtest.generator import row_of

READ_BYTES = 1 << 18
SILENCE_S = 40.0  # the daemon says something every 15 s; less is a dead connection
RECONNECT_S = 0.2


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


class Told(msgspec.Struct):
    event: str
    task: str | None = None


class Observer:
    """Bytes of the stream in, times onto the boards out."""

    def __init__(self, watch: Watch) -> None:
        self._run = watch.run
        self._boards = [Board(watch.directory, number, watch.capacity) for number in range(watch.generators)]
        self._ends = watch.ends
        self._decode = msgspec.json.Decoder(Told).decode
        self._rest = b""
        self.last_id = b""

    def read(self, data: bytes, now_ns: int) -> None:
        """Any piece of the stream, cut anywhere."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                # Most events are others; the scan is a tenth of a decode.
                if self._ends or b'"placed"' in line:
                    self._told(self._decode(line[5:]), now_ns)
            elif line.startswith(b"id:"):
                self.last_id = line[3:].strip()

    def cut(self) -> None:
        """The connection broke; what was half read is sent again."""
        self._rest = b""

    def _told(self, event: Told, now_ns: int) -> None:
        found = row_of(event.task, self._run) if event.task else None
        if found is None:
            return
        number, row = found
        board = self._boards[number]
        if event.event == "placed" and board.placed[row] == 0:  # later placements are of further attempts
            board.placed[row] = now_ns
        elif event.event in ENDS and self._ends:
            board.ended[row] = now_ns


def observe(watch: Watch, ready: Event, stop: Event) -> None:
    """The process: follows until told to stop. `ready` is set once the stream is open."""
    observer = Observer(watch)
    while not stop.is_set():
        try:
            _follow(watch, observer, ready, stop)
        except (OSError, http.client.HTTPException):
            observer.cut()
            time.sleep(RECONNECT_S)


def _follow(watch: Watch, observer: Observer, ready: Event, stop: Event) -> None:
    connection = http.client.HTTPConnection(watch.host, watch.port, timeout=SILENCE_S)
    headers = {"Authorization": f"Bearer {watch.token}", "Accept": "text/event-stream"}
    if observer.last_id:
        headers["Last-Event-ID"] = observer.last_id.decode()
    try:
        connection.request("GET", "/v1/events", headers=headers)
        response = connection.getresponse()
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
