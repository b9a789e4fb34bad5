"""The journal on a primary that others watch and replace: Sentinels (`sentinel.py`), or the nodes of a cluster (`cluster.py`).

Every connection asks where the primary is before it is made, so none of them ever leads to one that has been given up. Promise: an epoch is
led on one primary. When another one is named, or the one we talk to sends us elsewhere, `Moved` ends the life of this epoch; the daemon reads
the journal of the new primary and opens the next one there, or refuses it by name if that one lacks what was confirmed. *Why not go on with
what is in flight:* what the new primary has may end before it, and the daemon's memory is ahead of both; and under `fsync` it may not know of
our epoch, which another daemon could then open once more.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hetsched.errors import ConfigError, StoreLost
from hetsched.store.backend import Head, Link
from hetsched.store.base import Leader, Moved, Unreachable
from hetsched.store.redis import CONNECT_TIMEOUT_S, SOCKET_TIMEOUT_S, RedisBackend
from hetsched.store.redis_succession import RedisSuccession
from hetsched.store.scripts import Keys
from hetsched.store.succession import Candidate

Address = tuple[str, int]

ASK_TIMEOUT_S = 1.0
"""So long one of those who watch may take; then another one is asked."""


class Watchers(Protocol):
    """Those who know where the primary is."""

    async def primary(self) -> Address:
        """Where it is now. Raises redis' ConnectionError."""

    async def close(self) -> None: ...


class Named(NamedTuple):
    """What the URL of such a store says. `login`: username and password, for connections to the primary."""

    addresses: list[Address]
    path: str
    options: dict[str, str]
    login: dict[str, str | None]

    @property
    def tls(self) -> bool:
        return self.options.get("ssl", "").lower() in ("1", "true", "yes")


def named(url: str, default_port: int) -> Named:
    """Of SCHEME://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/PATH][?OPTION=VALUE]. ConfigError."""
    parts = urlsplit(url)
    user, _, places = parts.netloc.rpartition("@")
    try:
        addresses = [_address_of(place, default_port) for place in places.split(",") if place]
    except ValueError as error:
        raise ConfigError(f"store.url: {error}") from None
    name, _, password = user.partition(":")
    login = {"username": unquote(name) or None, "password": unquote(password) or None}
    options = {option: values[-1] for option, values in parse_qs(parts.query).items()}
    return Named(addresses, parts.path.strip("/"), options, login)


def _address_of(place: str, default_port: int) -> Address:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError(f"{place!r} is no HOST:PORT")
    return parts.hostname, parts.port or default_port


def asking(address: Address, **options: Any) -> Redis:
    """To one of those who watch; nothing is retried."""
    return Redis(
        host=address[0],
        port=address[1],
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=ASK_TIMEOUT_S,
        socket_connect_timeout=ASK_TIMEOUT_S,
        **options,
    )


class _ToPrimary(Connection):
    """Asks where to go, then goes there."""

    def __init__(self, *, watchers: Watchers, **settings: Any) -> None:
        super().__init__(**settings)
        self._watchers = watchers

    async def _connect(self) -> None:
        self.host, self.port = await self._watchers.primary()
        await super()._connect()  # type: ignore[no-untyped-call]


class _ToPrimaryByTLS(_ToPrimary, SSLConnection):
    pass


def pool_to(watchers: Watchers, *, tls: bool, **settings: Any) -> ConnectionPool:
    """Connections to whoever is primary, which retry nothing by themselves."""
    return ConnectionPool(
        connection_class=_ToPrimaryByTLS if tls else _ToPrimary,
        watchers=watchers,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        **settings,
    )


class PrimaryBackend(RedisBackend):
    """`pool`: of `pool_to`. `whose`: for messages."""

    def __init__(self, watchers: Watchers, pool: ConnectionPool, whose: str, replicated: bool, keys: Keys) -> None:
        super().__init__(pool, replicated, keys)
        self._watchers = watchers
        self._whose = whose
        self.succession = _SuccessionThere(self)
        self._primary: Address | None = None

    async def open_epoch(self, cluster: str, create: bool) -> Head:
        before = await self.primary()
        head = await super().open_epoch(cluster, create)
        await self.lead_on(before)
        return head

    async def lead_on(self, primary: Address) -> None:
        """The epoch was opened there. Unreachable: it is primary no more."""
        if await self.primary() != primary:
            raise Unreachable("the primary changed while an epoch was opened")
        self._primary = primary

    async def dial(self) -> Link:
        if await self.primary() != self._primary:
            raise Moved(f"another server is primary of {self._whose} now; a new epoch is opened there")
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
        """As those who watch say."""
        try:
            return await self._watchers.primary()
        except redis_errors.AuthenticationError as error:
            raise StoreLost(f"the servers that know the primary of {self._whose} refuse us: {error}") from None
        except redis_errors.ConnectionError as error:
            raise Unreachable(str(error)) from None

    async def close(self) -> None:
        await super().close()
        await self._watchers.close()


class _SuccessionThere(RedisSuccession):
    """An epoch is led where it was claimed."""

    def __init__(self, backend: PrimaryBackend) -> None:
        super().__init__(backend._script, backend._opening, backend.keys)
        self._backend = backend

    async def claim(self, cluster: str, create: bool, candidate: Candidate, dead: Leader | None = None) -> Head:
        primary = await self._backend.primary()
        head = await super().claim(cluster, create, candidate, dead)
        await self._backend.lead_on(primary)
        return head
