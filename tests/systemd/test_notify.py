"""Daemon and agent talk to the service manager over a real notify socket, in the right order."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.end_to_end.cluster import Agent, Daemon, Program

WATCHDOG_US = 400_000


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(20)
        self.heard: list[str] = []

    def hears(self, line: str) -> None:
        """Waits for a message with this line."""
        while True:
            lines = self._socket.recv(4096).decode().splitlines()
            self.heard += lines
            if line in lines:
                return


@contextmanager
def watched(program: Program, directory: Path) -> Iterator[Manager]:
    manager = Manager(directory / "notify")
    program.env |= {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": str(WATCHDOG_US)}
    program.start()
    try:
        yield manager
    finally:
        if program.alive():
            program.kill()


def test_the_daemon_is_ready_when_it_answers_alive_while_it_turns_and_says_when_it_stops(data_dir: Path) -> None:
    daemon = Daemon(data_dir, ["store.url=memory:"])
    with watched(daemon, data_dir) as manager:
        manager.hears("READY=1")
        assert manager.heard[0] == "READY=1", "nothing before it can answer"
        for _ in range(3):
            manager.hears("WATCHDOG=1")
        os.kill(daemon.pid, 15)
        manager.hears("STOPPING=1")
        assert daemon.process is not None
        assert daemon.process.wait(20) == 0


def test_the_agent_is_ready_when_it_has_adopted_and_says_when_it_leaves(data_dir: Path) -> None:
    daemon = Daemon(data_dir, ["store.url=memory:"])
    daemon.start()
    try:
        agent = Agent(data_dir, "n", daemon)
        with watched(agent, data_dir) as manager:
            manager.hears("READY=1")
            manager.hears("WATCHDOG=1")
            os.kill(agent.pid, 15)
            manager.hears("STOPPING=1")
            assert agent.process is not None
            assert agent.process.wait(20) == 0
    finally:
        daemon.kill()
