"""The journal on a primary that Sentinels watch and replace: `redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/SERVICE`.

Every connection asks the sentinels where the primary is before it is made, so none of them ever leads to one that they have given up.
Promise: an epoch is led on one primary. When the sentinels name another one, or the one we talk to has become a replica, `Moved` ends the
life of this epoch; the daemon reads the journal of the new primary and opens the next one there, or refuses it by name if that one lacks
what was confirmed. *Why not go on with what is in flight:* what the new primary has may end before it, and the daemon's memory is ahead
of both.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hetsched.errors import ConfigError
from hetsched.store.backend import Head, Link
from hetsched.store.base import Moved, Unreachable
from hetsched.store.redis import CONNECT_TIMEOUT_S, SOCKET_TIMEOUT_S, RedisBackend, opened
from hetsched.store.redis_succession import RedisSuccession
from hetsched.store.succession import Candidate

SENTINEL_TIMEOUT_S = 1.0
SENTINEL_PORT = 26379
_OPTIONS = ("db", "ssl", "sentinel_username", "sentinel_password")

Address = tuple[str, int]


class Sentinels:
    """Those who know where the primary of a service is."""

    def __init__(self, addresses: list[Address], service: str, **options: Any) -> None:
        self.service = service
        self._clients = [
            Redis(
                host=host,
                port=port,
                protocol=2,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=SENTINEL_TIMEOUT_S,
                socket_connect_timeout=SENTINEL_TIMEOUT_S,
                **options,
            )
            for host, port in addresses
        ]

    async def primary(self) -> Address:
        """As the first that answers says; that one is asked first next time. Raises redis' ConnectionError."""
        said = "none answers"
        for client in list(self._clients):
            try:
                found = await client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)  # type: ignore[no-untyped-call]
            except (redis_errors.RedisError, OSError) as error:
                said = str(error) or said
                continue
            if found:
                self._clients.remove(client)
                self._clients.insert(0, client)
                return found[0].decode(), int(found[1])
            said = f"they know no service {self.service!r}"
        raise redis_errors.ConnectionError(f"the sentinels name no primary: {said}")

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


class _ToPrimary(Connection):
    """Asks where to go, then goes there."""

    def __init__(self, *, sentinels: Sentinels, **settings: Any) -> None:
        super().__init__(**settings)
        self._sentinels = sentinels

    async def _connect(self) -> None:
        self.host, self.port = await self._sentinels.primary()
        await super()._connect()  # type: ignore[no-untyped-call]


class _ToPrimaryByTLS(_ToPrimary, SSLConnection):
    pass


class SentinelBackend(RedisBackend):
    kind = "sentinel"

    def __init__(self, url: str, replicated: bool) -> None:
        """ConfigError: the URL cannot be read."""
        self._sentinels, pool = _parse(url)
        super().__init__(pool, replicated)
        self.succession = _SuccessionThere(self)
        self._primary: Address | None = None

    async def lead_on(self, primary: Address) -> None:
        """The epoch was opened there. Unreachable: it is primary no more."""
        if await self.primary() != primary:
            raise Unreachable("the primary changed while an epoch was opened")
        self._primary = primary

    async def dial(self) -> Link:
        if await self.primary() != self._primary:
            raise Moved(f"the sentinels name another primary of {self._sentinels.service}; a new epoch is opened there")
        return await super().dial()

    async def _do(self, *command: Any) -> Any:
        return await self._there(super()._do(*command))

    async def _opening(self, script: str, keys: list[str], *arguments: Any) -> Any:
        return await self._there(super()._opening(script, keys, *arguments))

    async def _there(self, answer: Awaitable[Any]) -> Any:
        """What a primary says; one that is none any more is left."""
        try:
            return await answer
        except Moved as error:
            await self._pool.disconnect()
            if self._primary is None:  # nothing is led here yet: ask again, of whoever is primary then
                raise Unreachable(str(error)) from None
            raise

    async def primary(self) -> Address:
        """As the sentinels say."""
        try:
            return await self._sentinels.primary()
        except redis_errors.ConnectionError as error:
            raise Unreachable(str(error)) from None

    async def close(self) -> None:
        await super().close()
        await self._sentinels.close()


class _SuccessionThere(RedisSuccession):
    """An epoch is led where it was claimed."""

    def __init__(self, backend: SentinelBackend) -> None:
        super().__init__(backend._script, backend._opening, opened)
        self._backend = backend

    async def claim(self, cluster: str, create: bool, candidate: Candidate) -> Head:
        primary = await self._backend.primary()
        head = await super().claim(cluster, create, candidate)
        await self._backend.lead_on(primary)
        return head


def _parse(url: str) -> tuple[Sentinels, ConnectionPool]:
    parts = urlsplit(url)
    user, _, places = parts.netloc.rpartition("@")
    service = parts.path.strip("/")
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    try:
        addresses = [_address(place) for place in places.split(",") if place]
        db = int(options.get("db", "0"))
    except ValueError as error:
        raise ConfigError(f"store.url: {error}") from None
    if not addresses or not service or "/" in service or set(options) - set(_OPTIONS):
        raise ConfigError(
            "store.url has to look like redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/SERVICE, with "
            f"{', '.join(_OPTIONS)} as options"
        )
    name, _, password = user.partition(":")
    sentinel = {"username": options.get("sentinel_username"), "password": options.get("sentinel_password")}
    sentinels = Sentinels(addresses, service, **sentinel)
    tls = options.get("ssl", "").lower() in ("1", "true", "yes")
    pool = ConnectionPool(
        connection_class=_ToPrimaryByTLS if tls else _ToPrimary,
        sentinels=sentinels,
        db=db,
        username=unquote(name) or None,
        password=unquote(password) or None,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
    )
    return sentinels, pool


def _address(place: str) -> Address:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError(f"{place!r} is no HOST:PORT of a sentinel")
    return parts.hostname, parts.port or SENTINEL_PORT
