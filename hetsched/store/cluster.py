"""A Redis or Valkey Cluster (`primary.py`): `redis+cluster://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]`, any of its nodes.

All keys of a journal lie in one slot, so to the journal the cluster is one primary: whoever serves that slot. A failover or a slot that was
moved is another primary, and the epoch begins anew there. While a slot moves key by key its server sends us on for some of them only (ASK,
TRYAGAIN): the journal waits until all of it is in one place. *Why not follow ASK:* the head would be written on one server and the frame it
names lie on another; a slot of one journal has some hundred keys and moves in seconds.
"""

from __future__ import annotations

from typing import Any

from redis import exceptions as redis_errors
from redis.crc import key_slot

from hetsched.errors import ConfigError
from hetsched.store.primary import Address, PrimaryBackend, asking, named, pool_to
from hetsched.store.scripts import Keys

NODE_PORT = 6379


class Nodes:
    """A cluster's nodes, for one slot. Any of them knows who serves it; those who have lost the others say so, and are not believed."""

    def __init__(self, seeds: list[Address], slot: int, **options: Any) -> None:
        self.slot = slot
        self._options = options
        self._clients = {address: asking(address, **options) for address in seeds}
        self._order = list(seeds)  # who answered last is asked first

    async def primary(self) -> Address:
        """Raises redis' ConnectionError."""
        said = "none answers"
        for address in list(self._order):
            try:
                client = self._clients[address]
                state = await client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]
                if b"cluster_state:ok" not in state:
                    said = "cluster_state:fail"
                    continue
                ranges = await client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
            except redis_errors.ResponseError as error:
                said = f"{address[0]}:{address[1]}: {error}"
                continue
            except (redis_errors.RedisError, OSError) as error:
                said = str(error) or said
                continue
            self._learn(address, ranges)
            for first, last, primary, *_ in ranges:
                if first <= self.slot <= last:
                    return place_of(address, primary)
            said = f"nobody serves slot {self.slot}"
        raise redis_errors.ConnectionError(f"the cluster names no primary: {said}")

    def _learn(self, asked: Address, ranges: list[Any]) -> None:
        """Other nodes may outlive those that were named in the URL."""
        self._order.remove(asked)
        self._order.insert(0, asked)
        for _, _, *nodes in ranges:
            for address in (place_of(asked, node) for node in nodes):
                if address not in self._clients:
                    self._clients[address] = asking(address, **self._options)
                    self._order.append(address)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()


class ClusterBackend(PrimaryBackend):
    kind = "cluster"

    def __init__(self, url: str, replicated: bool, keys: Keys) -> None:
        """ConfigError: the URL cannot be read."""
        seeds, options = parse(url)
        tls = bool(options.pop("ssl"))
        nodes = Nodes(seeds, key_slot(keys.head.encode()), ssl=tls, **options)
        super().__init__(nodes, pool_to(nodes, tls=tls, **options), f"slot {nodes.slot}", replicated, keys)


def parse(url: str) -> tuple[list[Address], dict[str, Any]]:
    """(nodes, username, password and ssl). ConfigError."""
    found = named(url, NODE_PORT)
    if not found.addresses or found.path or set(found.options) - {"ssl"}:
        raise ConfigError(
            "store.url has to look like redis+cluster://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…], with ssl as option"
        )
    return found.addresses, {**found.login, "ssl": found.tls}


def place_of(asked: Address, node: list[Any]) -> Address:
    """Of a node in an answer to CLUSTER SLOTS: one that does not know its own name is where we asked."""
    host = node[0].decode() if node[0] else ""
    return (asked[0] if host in ("", "?") else host), int(node[1])
