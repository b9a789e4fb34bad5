"""The agent's hand on the nursery (`hetsched.agent.shim.nursery`): started once, started again should it die.

Promises: `ask` never blocks; what the shims tell arrives in `heard`; when a nursery dies, `heard` gets `{"event": "nursery_died"}`
after everything that was said before, so that the runner can look after the orders it had not answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hetsched

log = logging.getLogger("hetsched.agent")

# Appended, not inserted: nothing beside the package may shadow the standard library.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); from hetsched.agent.shim import nursery; nursery.main(int(sys.argv[1]))"
)
_SEND_BUFFER_BYTES = 1 << 20


class Nursery:
    """One child process of the agent. `errors`: the file that gets what a shim has to complain about. `descriptors`: limits
    (RLIMIT_NOFILE) of tasks."""

    def __init__(self, errors: Path, descriptors: tuple[int, int], heard: Callable[[dict[str, Any]], None]) -> None:
        self.errors = errors
        self._descriptors = descriptors
        self._heard = heard
        self._waiting: deque[bytes] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._pidfd = -1

    @property
    def pid(self) -> int:
        """Of the present nursery; 0 = none."""
        return self._process.pid if self._process else 0

    def ask(self, attempt_directory: Path) -> None:
        """Makes a shim for the attempt whose record lies there."""
        if self._channel is None:
            self._begin()
        self._waiting.append(str(attempt_directory).encode())
        self._send()

    def close(self) -> None:
        """Lets the nursery go. Shims stay."""
        if self._channel is not None and self._process is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._channel.fileno())
            loop.remove_writer(self._channel.fileno())
            loop.remove_reader(self._pidfd)
            self._channel.close()
            os.close(self._pidfd)
            self._process.wait()
            self._channel = self._process = None

    def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        root = str(Path(hetsched.__file__).resolve().parent.parent)
        with theirs, self.errors.open("ab") as errors:
            # Not the agent's own stdout and stderr: shims would hold those pipes open long after it.
            self._process = subprocess.Popen(
                [os.path.realpath(sys.executable), "-I", "-S", "-c", _PROGRAM, str(theirs.fileno()), root],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd="/",
                env={},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        # The agent may have raised its own limit (main.py); tasks get what the agent was given.
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, self._descriptors)
        self._channel = ours
        self._pidfd = os.pidfd_open(self._process.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._read)
        # Shims hold the other end too, so its death is not the end of the stream.
        loop.add_reader(self._pidfd, self._died)

    def _send(self) -> None:
        assert self._channel is not None
        loop = asyncio.get_running_loop()
        while self._waiting:
            try:
                self._channel.send(self._waiting[0])
            except BlockingIOError:
                loop.add_writer(self._channel.fileno(), self._send)
                return
            except OSError:
                return  # it has died; `_died` is on its way and the runner asks again
            self._waiting.popleft()
        loop.remove_writer(self._channel.fileno())

    def _read(self) -> None:
        while self._channel is not None:
            try:
                raw = self._channel.recv(65536)
            except OSError:
                return
            if not raw:
                return
            self._heard(json.loads(raw))

    def _died(self) -> None:
        self._read()
        log.error("the nursery of the shims died; another one is started with the next order")
        self._waiting.clear()
        self.close()
        self._heard({"event": "nursery_died"})
