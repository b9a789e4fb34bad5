"""A primary that Sentinels watch and replace (`primary.py`): `redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/SERVICE`."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from redis import exceptions as redis_errors

from hetsched.errors import ConfigError
from hetsched.store.primary import Address, PrimaryBackend, asking, named, pool_to
from hetsched.store.scripts import Keys

SENTINEL_PORT = 26379
_OPTIONS = ("db", "ssl", "sentinel_username", "sentinel_password")


class Sentinels:
    """Those who know where the primary of a service is."""

    def __init__(self, addresses: list[Address], service: str, **options: Any) -> None:
        self.service = service
        self._clients = [asking(address, **options) for address in addresses]

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


class SentinelPlaces(NamedTuple):
    """What the URL of such a store says. `credentials`: for sentinels; `settings`: for connections to the primary."""

    addresses: list[Address]
    service: str
    credentials: dict[str, str | None]
    tls: bool
    settings: dict[str, Any]

    def url_of(self, host: str, port: int) -> str:
        """Of the primary, as if it were the store by itself."""
        user, password = (quote(self.settings[name] or "", safe="") for name in ("username", "password"))
        secret = f"{user}:{password}@" if user or password else ""
        return f"{'rediss' if self.tls else 'redis'}://{secret}{host}:{port}/{self.settings['db']}"


def parsed(url: str) -> SentinelPlaces:
    """Raises ConfigError."""
    found = named(url, SENTINEL_PORT)
    options = found.options
    try:
        db = int(options.get("db", "0"))
    except ValueError as error:
        raise ConfigError(f"store.url: {error}") from None
    if not found.addresses or not found.path or "/" in found.path or set(options) - set(_OPTIONS):
        raise ConfigError(
            "store.url has to look like redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/SERVICE, with "
            f"{', '.join(_OPTIONS)} as options"
        )
    return SentinelPlaces(
        found.addresses,
        found.path,
        {"username": options.get("sentinel_username"), "password": options.get("sentinel_password")},
        found.tls,
        {"db": db, **found.login},
    )


class SentinelBackend(PrimaryBackend):
    kind = "sentinel"

    def __init__(self, url: str, replicated: bool, keys: Keys) -> None:
        """ConfigError: the URL cannot be read."""
        places = parsed(url)
        sentinels = Sentinels(places.addresses, places.service, **places.credentials)
        pool = pool_to(sentinels, tls=places.tls, **places.settings)
        super().__init__(sentinels, pool, places.service, replicated, keys)
