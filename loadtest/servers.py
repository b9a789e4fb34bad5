"""A Redis or Valkey Cluster of our own for one run: primaries with a replica each, on loopback, in a directory that is gone afterwards."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from hetsched.store.scripts import Keys
from hetsched.store.server import find_server

SLOTS = 16_384
PATIENCE_S = 30.0
SETTINGS = (
    'save ""',
    "appendonly yes",
    "appendfsync always",
    "cluster-enabled yes",
    "cluster-node-timeout 1500",
    "cluster-require-full-coverage no",
    "repl-diskless-sync-delay 0",
)


class Member:
    """One server process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.port, self.bus = _free_port(), _free_port()
        lines = (*SETTINGS, f"port {self.port}", "bind 127.0.0.1", f"cluster-port {self.bus}", f"dir {directory}")
        (directory / "conf").write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [str(find_server()), str(directory / "conf")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.client: Redis = Redis(port=self.port, socket_timeout=2.0, decode_responses=True)
        _until(self.client.ping, "a server answers")

    def ask(self, *command: Any) -> Any:
        """One command's answer."""
        return self.client.execute_command(*command)  # type: ignore[no-untyped-call]

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


class Servers:
    """`url`: of a store on all of them."""

    def __init__(self, directory: Path, primaries: int = 3) -> None:
        self.members = [Member(directory / f"{number}") for number in range(2 * primaries)]
        self._primaries, replicas = self.members[:primaries], self.members[primaries:]
        for number, member in enumerate(self._primaries):
            member.ask("CLUSTER", "ADDSLOTSRANGE", number * SLOTS // primaries, (number + 1) * SLOTS // primaries - 1)
        for member in self.members[1:]:
            member.ask("CLUSTER", "MEET", "127.0.0.1", self.members[0].port, self.members[0].bus)
        _until(lambda: all(_known(member) == len(self.members) for member in self.members), "all know all")
        for primary, replica in zip(self._primaries, replicas, strict=True):
            replica.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))
        _until(lambda: all(_is_followed(primary) for primary in self._primaries), "every primary has its replica")
        self.url = f"redis+cluster://{','.join(f'127.0.0.1:{member.port}' for member in self.members)}"

    def cpu_s(self) -> float:
        """Processor time of all that live."""
        spent = 0.0
        for member in self.members:
            with contextlib.suppress(psutil.Error):
                times = psutil.Process(member.process.pid).cpu_times()
                spent += times.user + times.system
        return spent

    def primary_of(self, cell: str) -> Member:
        """Who serves it at first."""
        slot = key_slot(Keys(cell).head.encode())
        return self._primaries[slot * len(self._primaries) // SLOTS]

    def names(self, cells: int) -> list[str]:
        """So many names of cells, the first of which has a primary to itself and the others the rest of them."""
        found: list[str] = []
        for number in range(10_000):
            name = f"cell{number}"
            at = self._primaries.index(self.primary_of(name))
            if at == (0 if not found else 1 + (len(found) - 1) % (len(self._primaries) - 1)):
                found.append(name)
            if len(found) == cells:
                return found
        raise AssertionError("ten thousand names, and not enough for the primaries")


@contextlib.contextmanager
def own_servers() -> Iterator[Servers]:
    """Six of them, for this run alone."""
    directory = Path(tempfile.mkdtemp(prefix="hs-servers-"))
    servers: Servers | None = None
    try:
        servers = Servers(directory)
        yield servers
    finally:
        for member in servers.members if servers is not None else ():
            member.client.close()
            member.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _known(member: Member) -> int:
    return len(member.ask("CLUSTER", "NODES").splitlines())


def _is_followed(primary: Member) -> bool:
    found: dict[str, Any] = primary.client.info("replication")
    return bool(
        found.get("slave0", {}).get("state") == "online" and "cluster_state:ok" in primary.ask("CLUSTER", "INFO")
    )


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _until(true: Callable[[], Any], why: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(RedisError):
            if true():
                return
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {why}")
