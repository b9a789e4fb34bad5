"""The word to the service manager, over real sockets, named by path and abstract."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched import sdnotify, wire
from tests.agent_run.bench import AgentProcess, Daemon, until


def listening(address: str) -> socket.socket:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind("\0" + address[1:] if address.startswith("@") else address)
    manager.setblocking(False)
    return manager


def heard(manager: socket.socket) -> str:
    try:
        return manager.recv(4096).decode()
    except BlockingIOError:
        return ""


@pytest.mark.parametrize("abstract", [False, True])
def test_lines_arrive_in_one_message(data_dir: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    address = f"@hetsched-test-{os.getpid()}" if abstract else str(data_dir / "notify")
    with listening(address) as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        assert sdnotify.notify("READY=1", "STATUS=good")
        assert heard(manager) == "READY=1\nSTATUS=good"


def test_without_a_manager_nothing_happens(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not sdnotify.notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(data_dir / "nobody"))
    assert not sdnotify.notify("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "expected"),
    [("3000000", None, 1.5), ("3000000", "1", None), ("0", None, None), ("x", None, None), (None, None, None)],
)
def test_the_watchdog_is_fed_twice_as_often_as_it_must(
    monkeypatch: pytest.MonkeyPatch, usec: str | None, pid: str | None, expected: float | None
) -> None:
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert sdnotify.watchdog_s() == expected


async def test_an_agent_says_ready_feeds_the_watchdog_and_says_that_it_leaves(
    daemon: Daemon, data_dir: Path, start_agent: Callable[..., AgentProcess]
) -> None:
    with listening(str(data_dir / "notify")) as manager:
        agent = start_agent(env={"NOTIFY_SOCKET": str(data_dir / "notify"), "WATCHDOG_USEC": "200000"})
        assert "READY=1" in await until(lambda: heard(manager), "READY")
        assert await until(lambda: heard(manager), "WATCHDOG") == "WATCHDOG=1"
        await daemon.hear(wire.Hello)
        agent.send(signal.SIGTERM)
        assert await agent.gone() == 0
        said = []
        while word := heard(manager):
            said.append(word)
        assert "STOPPING=1" in said[-1]
