"""Clients that submit without a pause and keep what they were told; whoever is cut off sends again under the same ids."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator

from tests.daemon.process import DaemonProcess, drain

TASK = {"resources": {"cpu": 1}}


def request(daemon: DaemonProcess, body: object, *lines: str, first: str = "POST /v1/schedule HTTP/1.1") -> bytes:
    """One, as bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (first, "Host: localhost", f"Authorization: Bearer {daemon.token}", "Content-Type: application/json", *lines)
    return "\r\n".join((*head, f"Content-Length: {len(raw)}", "", "")).encode() + raw


def read(daemon: DaemonProcess, path: str, *lines: str) -> bytes:
    """A request for something else than submitting."""
    head = (f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {daemon.token}", *lines, "", "")
    return "\r\n".join(head).encode()


def metric(daemon: DaemonProcess, name: str) -> float:
    """Its value."""
    found = re.search(rf"^{name} (\S+)", daemon.get("/metrics").body.decode(), re.MULTILINE)
    assert found is not None, f"no metric {name}"
    return float(found[1])


class Client(threading.Thread):
    """Submits single tasks and, each fifth time, a list of ten, on one connection, until `stop`."""

    def __init__(self, daemon: DaemonProcess, name: str) -> None:
        super().__init__(daemon=True)
        self.target = daemon
        self.prefix = name
        self.stop = threading.Event()
        self.acknowledged: set[str] = set()
        self.refused: list[bytes] = []
        self.cuts = 0

    def run(self) -> None:
        line: socket.socket | None = None
        for ids in self._ids():
            body = [{"id": ident, **TASK} for ident in ids]
            said = request(self.target, body if len(ids) > 1 else body[0])
            while not self.stop.is_set():
                try:
                    line = line or socket.create_connection(("127.0.0.1", self.target.port), timeout=5)
                    line.sendall(said)
                    answer = drain(line)
                except OSError:
                    answer = b""
                if answer.startswith(b"HTTP/1.1 202 ") and answer.endswith(b"}"):
                    self.acknowledged.update(ids)
                    break
                if answer.startswith(b"HTTP/1.1 "):
                    self.refused.append(answer)
                    return
                self.cuts += 1  # nobody knows what became of it: again, with the same ids
                if line is not None:
                    line.close()
                line = None

    def _ids(self) -> Iterator[list[str]]:
        number = 0
        while not self.stop.is_set():
            count = 10 if number % 5 == 4 else 1
            yield [f"{self.prefix}-{number}-{at}" for at in range(count)]
            number += 1
