"""A cluster of our own: three primaries, each with a replica. Real processes on loopback, killed and started again in their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redis.crc import key_slot

from hetsched.store.scripts import Keys
from tests.store.sentinels import Node, free_port, until

SLOTS = 16384
TIMEOUT_MS = 1500


class Member(Node):
    """One server of it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.bus = free_port()
        self.configure(
            *('save ""', "appendonly yes", "appendfsync always", "repl-diskless-sync-delay 0"),
            *("cluster-enabled yes", f"cluster-config-file {directory / 'nodes.conf'}", f"cluster-port {self.bus}"),
            *(
                f"cluster-node-timeout {TIMEOUT_MS}",
                "cluster-require-full-coverage no",
                "cluster-replica-validity-factor 0",
            ),
        )

    @property
    def id(self) -> str:
        return str(self.ask("CLUSTER", "MYID"))

    @property
    def is_primary(self) -> bool:
        return bool(self.client.info("replication")["role"] == "master")

    def ask(self, *command: Any) -> Any:
        return self.client.execute_command(*command)


class Cluster:
    """All six. `url`: of the store on them."""

    def __init__(self, directory: Path) -> None:
        self.members = [Member(directory / f"member{number}") for number in range(6)]
        self.url = f"redis+cluster://{','.join(f'127.0.0.1:{member.port}' for member in self.members)}"

    def start(self) -> None:
        for member in self.members:
            member.start()
        primaries, replicas = self.members[:3], self.members[3:]
        for number, primary in enumerate(primaries):
            primary.ask("CLUSTER", "ADDSLOTSRANGE", number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1)
        for member in self.members[1:]:
            member.ask("CLUSTER", "MEET", "127.0.0.1", self.members[0].port, self.members[0].bus)
        until(lambda: all(len(self._known(member)) == 6 for member in self.members), "all know all")
        for primary, replica in zip(primaries, replicas, strict=True):
            replica.ask("CLUSTER", "REPLICATE", primary.id)
        self.settled()

    @property
    def primary(self) -> Member:
        return self.primary_of()

    @property
    def replicas(self) -> list[Node]:
        return [self.replica_of(self.primary)]

    def primary_of(self, cell: str = "") -> Member:
        """Who serves the cell's journal, as a member that lives says."""
        slot = key_slot(Keys(cell).head.encode())
        for member in self._living():
            for first, last, primary, *_ in member.ask("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return self._at(int(primary[1]))
        raise AssertionError(f"nobody serves slot {slot}")

    def replica_of(self, primary: Member) -> Member:
        (found,) = (m for m in self._living() if m.client.info("replication").get("master_port") == primary.port)
        return found

    def until_replaced(self, dead: Node, cell: str = "") -> None:
        until(
            lambda: self.primary_of(cell) is not dead and self.primary_of(cell).is_primary,
            "another primary serves the slot",
        )

    def settled(self) -> None:
        """All agree, and every primary has a replica that follows: a failover can be decided and loses nothing."""
        until(self._is_settled, "three primaries, each with a replica, of one mind")

    def _is_settled(self) -> bool:
        living = self._living()
        if len(living) != len(self.members) or any(
            "cluster_state:ok" not in member.ask("CLUSTER", "INFO") for member in living
        ):
            return False
        if any("fail" in flags for member in living for flags in self._known(member)):
            return False
        if any(len(served) != 2 for member in living for _, _, *served in member.ask("CLUSTER", "SLOTS")):
            return False
        primaries = [member for member in living if member.is_primary]
        online = [member.client.info("replication").get("slave0", {}).get("state") for member in primaries]
        return online == ["online"] * 3

    def _known(self, member: Member) -> list[str]:
        """Flags of every node that it knows."""
        return [line.split()[2] for line in member.ask("CLUSTER", "NODES").splitlines()]

    def _living(self) -> list[Member]:
        return [member for member in self.members if member.process is not None and member.process.poll() is None]

    def move(self, cell: str, to: Member, at_once: bool = False) -> None:
        """Let another primary serve the slot of a cell, key by key. `at_once` False: stop when half of the keys are there."""
        source, slot = self.primary_of(cell), key_slot(Keys(cell).head.encode())
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        for key in keys if at_once else keys[: len(keys) // 2]:
            source.ask("MIGRATE", "127.0.0.1", to.port, key, 0, 5000)
        if at_once:
            self.moved(cell, source, to)

    def moved(self, cell: str, source: Member, to: Member) -> None:
        """The rest of it, and let all know."""
        slot = key_slot(Keys(cell).head.encode())
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000):
            for key in keys:
                source.ask("MIGRATE", "127.0.0.1", to.port, key, 0, 5000)
        for member in (to, source):
            member.ask("CLUSTER", "SETSLOT", slot, "NODE", to.id)
        until(lambda: self.primary_of(cell) is to, "all know where the slot is")

    def _at(self, port: int) -> Member:
        (found,) = (member for member in self.members if member.port == port)
        return found

    def close(self) -> None:
        for member in self.members:
            member.kill()
