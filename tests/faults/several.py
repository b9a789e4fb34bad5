"""Two daemons on one store, an agent that knows both, and clients that never stop submitting: what a change of leader costs them.

Promise: everything a client was told is remembered here, so that what is lost is found by comparing, and not by trusting anybody.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hetsched.client import Client
from hetsched.errors import HetschedError
from tests.daemon.process import DaemonProcess
from tests.end_to_end.cluster import Agent, eventually, leftovers
from tests.store.helpers import Server

TASK = {"resources": {"cpu": 1}, "node_selector": {"never": "there"}}
PATIENCE_S = 30.0


class Clients:
    """Threads that submit one task after the other, each under its own name, and note what was acknowledged and when."""

    def __init__(self, urls: str, token: str, threads: int = 2) -> None:
        self.acknowledged: set[str] = set()
        self.longest_s = 0.0
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._client = Client(urls, token, patience_s=PATIENCE_S, reach_s=PATIENCE_S)
        self._threads = [threading.Thread(target=self._submit, args=(number,)) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def _submit(self, thread: int) -> None:
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            began_s = time.monotonic()
            try:
                task = self._client.submit({"id": f"c{thread}-{number}", **TASK})["id"]
            except HetschedError as error:
                self.failed.append(f"c{thread}-{number}: {error}")
                continue
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
            self.acknowledged.add(task)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Several:
    """`daemons`: two, of which one leads."""

    def __init__(self, directory: Path, store: str, **sets: object) -> None:
        self.directory = directory
        self.clients: Clients | None = None
        self.daemons = [DaemonProcess(directory / name, store=store, server__name=name, **sets) for name in ("a", "b")]

    def start(self) -> None:
        first, *others = self.daemons
        for daemon in self.daemons:
            daemon.data_dir.mkdir()
        first.start()
        for daemon in others:
            for name in ("token", "agent-token"):
                shutil.copy(first.data_dir / name, daemon.data_dir / name)
            daemon.start()
        self.urls = ",".join(daemon.url for daemon in self.daemons)
        self.client = Client(self.urls, first.token, patience_s=PATIENCE_S, reach_s=PATIENCE_S)
        self.clients = Clients(self.urls, first.token)

    @property
    def leader(self) -> DaemonProcess:
        url = self.client.cluster()["leader"]
        (found,) = (daemon for daemon in self.daemons if daemon.url == url)
        return found

    @property
    def standby(self) -> DaemonProcess:
        leader = self.leader
        (found,) = (daemon for daemon in self.daemons if daemon is not leader)
        return found

    def ready(self) -> None:
        """One leads and knows that the other follows."""
        eventually(lambda: self.client.cluster()["standbys"], why="a standby follows")

    def change(self, act: Callable[[DaemonProcess], None]) -> float:
        """Do this to the leader; seconds until the other one has acknowledged a submission."""
        self.ready()
        leader, standby = self.leader, self.standby
        began_s = time.monotonic()
        act(leader)
        while standby.submit({"id": f"probe-{began_s}", **TASK}).status != 202:
            time.sleep(0.01)
            assert time.monotonic() - began_s < PATIENCE_S, "nobody took over"
        return time.monotonic() - began_s

    def settle(self) -> list[str]:
        """End the clients; what was acknowledged and is not there."""
        self.clients.close()
        known = {task["id"] for task in self.client.tasks()}
        return sorted(self.clients.acknowledged - known)

    def close(self) -> None:
        if self.clients is not None:
            self.clients.close()
        for daemon in self.daemons:
            if daemon.process is not None:
                daemon.kill()


@contextmanager
def several(directory: Path, **sets: object) -> Iterator[Several]:
    """The whole of it, on a server of its own, for the length of a block."""
    (directory / "s").mkdir()
    server = asyncio.run(_started(directory / "s"))
    found = Several(directory, server.url, **sets)
    try:
        found.start()
        yield found
    finally:
        found.close()
        for pid in leftovers(directory):
            _kill(pid)


@contextmanager
def agent_of(several: Several) -> Iterator[Agent]:
    """An agent that knows both daemons."""

    class Both:
        url = several.urls
        agent_token = several.daemons[0].agent_token

    agent = Agent(several.directory, "n1", Both())  # type: ignore[arg-type]
    agent.start()
    try:
        eventually(lambda: several.client.cluster()["agents_connected"] == 1, why="the agent joins")
        yield agent
    finally:
        agent.stop()


def table(title: str, took_s: Iterable[float], several: Several, lost: list[str]) -> str:
    """What is reported: times, and what clients saw."""
    took = sorted(took_s)
    longest_s = several.clients.longest_s
    return (
        f"{title}: {len(took)} runs, seconds until the next leader acknowledged: p50 {statistics.median(took):.2f}, "
        f"p99 {took[max(0, -(-99 * len(took) // 100) - 1)]:.2f}, most {took[-1]:.2f}; a client's longest wait {longest_s:.2f} s; "
        f"acknowledged {len(several.clients.acknowledged)}, lost {len(lost)}, requests failed {len(several.clients.failed)}"
    )


async def _started(directory: Path) -> Server:
    server = Server(directory)
    await server.start()
    await server.client.aclose()
    return server


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
