"""A real daemon in its own process, and plain ways to talk to it: one request, one raw socket."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

JSON = {"Content-Type": "application/json"}


class Answer:
    """Status, headers and body of one answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def problem(self) -> dict[str, Any]:
        """The problem it has to be."""
        assert self.headers.get("content-type") == "application/problem+json", (self.status, self.body[:300])
        body: dict[str, Any] = self.json
        assert body["status"] == self.status and body["title"] and body["type"] and "detail" in body
        return body

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:500]!r}"


class DaemonProcess:
    """`hetsched serve` on a free port, which it keeps when it is started again. `sets`: configuration over the defaults.
    `role`: what it said that it does, "listening on" or
    "standing by at". Ends with the context."""

    def __init__(
        self, data_dir: Path, *, store: str = "memory:", env: dict[str, str] | None = None, **sets: Any
    ) -> None:
        self.data_dir = data_dir
        self.store = store
        self.env = env or {}
        self.sets = sets
        self.port = 0
        self.role = ""
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> DaemonProcess:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    # ------------------------------------------------------------------ living

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "hetsched", "serve", "--listen", f"127.0.0.1:{self.port}"]
        words += ["--store", self.store, "--data", str(self.data_dir)]
        for key, value in self.sets.items():
            words += ["--set", f"{key.replace('__', '.')}={json.dumps(value)}"]
        return words

    def start(self, timeout_s: float = 20.0) -> None:
        """Until it says that it listens."""
        self.process = subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=(self.data_dir / "stderr").open("a"),
            text=True,
            env={**os.environ, **self.env},
        )
        self.role, _, url = self._first_line(timeout_s).strip().rpartition(" ")
        assert self.role in ("listening on", "standing by at") and url.startswith("http://127.0.0.1:"), self.stderr()
        self.port = urlsplit(url).port or 0

    def _first_line(self, timeout_s: float) -> str:
        assert self.process is not None and self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        return self.process.stdout.readline() if ready else ""

    def stderr(self) -> str:
        return (self.data_dir / "stderr").read_text()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self.kill(signal.SIGTERM)

    # ------------------------------------------------------------------ talking

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.data_dir / "token").read_text().strip()

    @property
    def agent_token(self) -> str:
        return (self.data_dir / "agent-token").read_text().strip()

    def headers(self, **more: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", **{k.replace("_", "-"): v for k, v in more.items()}}

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = 20.0,
    ) -> Answer:
        """One request on a connection of its own; `body` bytes, or anything that JSON holds."""
        sent = {**self.headers(), **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body, sent = json.dumps(body).encode(), {**JSON, **sent}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, {k: v for k, v in sent.items() if v is not None})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **more: Any) -> Answer:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.call("POST", path, body, **more)

    def submit(self, body: Any, **headers: str) -> Answer:
        return self.post("/v1/schedule", body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def task(self, task: str) -> dict[str, Any]:
        answer = self.get(f"/v1/tasks/{quote(task, safe='')}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json
        return found

    def until_state(self, task: str, *states: str, timeout_s: float = 10.0) -> dict[str, Any]:
        """Ask until it is in one of the states."""
        deadline = time.monotonic() + timeout_s
        while (found := self.task(task))["state"] not in states:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    def raw(self, data: bytes, *, timeout_s: float = 10.0, close_after: bool = False) -> bytes:
        """Bytes in, bytes out, until the daemon closes or falls silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            connection.sendall(data)
            if close_after:
                connection.shutdown(socket.SHUT_WR)
            return drain(connection)


def drain(connection: socket.socket) -> bytes:
    """What comes until the end, or until one whole answer with Content-Length is there."""
    got = b""
    while True:
        try:
            piece = connection.recv(65536)
        except (TimeoutError, ConnectionResetError):
            return got
        if not piece:
            return got
        got += piece
        head, _, rest = got.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:") and len(rest) >= int(line.split(b":")[1]):
                return got
