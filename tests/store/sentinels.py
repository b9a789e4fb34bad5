"""A primary, two replicas and three sentinels of our own: real processes on loopback, killed and started again in their places."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from hetsched.store.server import find_server

SERVICE = "journal"
PATIENCE_S = 30.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Node:
    """One server process on a port that it keeps."""

    def __init__(self, directory: Path, sentinel: bool = False) -> None:
        self.directory = directory
        self.sentinel = sentinel
        self.port = free_port()
        self.client = Redis(port=self.port, socket_timeout=2.0, decode_responses=True)
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir()

    def configure(self, *lines: str) -> None:
        own = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.directory}", f'logfile "{self.directory / "log"}"']
        (self.directory / "conf").write_text("\n".join((*own, *lines)) + "\n")

    def start(self) -> None:
        command = [str(find_server()), str(self.directory / "conf"), *(["--sentinel"] if self.sentinel else [])]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self.client.ping(), f"{self.directory.name} answers")

    def kill(self) -> None:
        self.client.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def until(true: object, why: str) -> None:
    """Ask until it is true; what the client raises counts as not yet."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            if true():  # type: ignore[operator]
                return
        except RedisError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {why}")


class Watched:
    """All six. `url`: of the store on them."""

    def __init__(self, directory: Path) -> None:
        self.servers = [Node(directory / f"server{number}") for number in range(3)]
        self.sentinels = [Node(directory / f"sentinel{number}", sentinel=True) for number in range(3)]
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{places}/{SERVICE}"

    def start(self) -> None:
        first = self.servers[0]
        for server in self.servers:
            follows = [] if server is first else [f"replicaof 127.0.0.1 {first.port}"]
            server.configure(
                *('save ""', "appendonly yes", "appendfsync always", "repl-diskless-sync-delay 0", *follows),
            )
            server.start()
        until(lambda: first.client.info("replication")["connected_slaves"] == 2, "both replicas follow")
        for sentinel in self.sentinels:
            sentinel.configure(
                f"sentinel monitor {SERVICE} 127.0.0.1 {first.port} 2",
                f"sentinel down-after-milliseconds {SERVICE} 1500",
                f"sentinel failover-timeout {SERVICE} 3000",
            )
            sentinel.start()
        self.settled()

    @property
    def primary(self) -> Node:
        """As the first sentinel says."""
        _, port = self.sentinels[0].client.sentinel_get_master_addr_by_name(SERVICE)
        (found,) = (server for server in self.servers if server.port == int(port))
        return found

    @property
    def replicas(self) -> list[Node]:
        primary = self.primary
        return [server for server in self.servers if server is not primary]

    def settled(self) -> None:
        """All agree on a primary, both others follow it, and each sentinel knows the others: a failover can be decided."""
        until(self._is_settled, "one primary, two replicas, three sentinels of one mind")

    def _is_settled(self) -> bool:
        primary = self.primary
        for sentinel in self.sentinels:
            said = sentinel.client.sentinel_master(SERVICE)
            if (int(said["port"]), said["num-other-sentinels"], said["num-slaves"]) != (primary.port, 2, 2):
                return False
            if said["flags"] != "master":
                return False
        found = primary.client.info("replication")
        online = [found.get(f"slave{number}", {}).get("state") for number in range(2)]
        return bool(found["role"] == "master" and online == ["online", "online"])

    def until_replaced(self, dead: Node) -> None:
        until(
            lambda: self.primary is not dead and self.primary.client.info("replication")["role"] == "master",
            "the sentinels name another primary",
        )

    def close(self) -> None:
        for node in (*self.sentinels, *self.servers):
            node.kill()
