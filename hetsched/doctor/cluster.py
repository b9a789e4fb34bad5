"""A Redis or Valkey Cluster: whether all of it is of one mind, and whether the primary of our slot can be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.crc import key_slot

from hetsched.config import Config
from hetsched.doctor.check import Check, fail, ok, warn
from hetsched.errors import ConfigError
from hetsched.store import without_secrets
from hetsched.store.cluster import parse, place_of
from hetsched.store.primary import Address
from hetsched.store.scripts import Keys

REACH_S = 5.0
COVERAGE = "cluster-require-full-coverage"


class Served(NamedTuple):
    """Slots `first` to `last`, and where: the primary, then its replicas."""

    first: int
    last: int
    places: list[Address]


class Seen(NamedTuple):
    """One node. `state`: as it says of the cluster. `settings`: None where we may not ask."""

    place: str
    state: str
    is_primary: bool
    settings: dict[str, str] | None


def checks(config: Config, url: str) -> Iterator[Check]:
    """Of the cluster at `url`, for the slot of the cell that is configured."""
    place = without_secrets(url)
    slot = key_slot(Keys(config.store.cell).head.encode())
    try:
        seeds, options = parse(url)
        ranges, nodes, silent = asyncio.run(_ask(seeds, options))
    except ConfigError as error:
        yield fail("store", error.detail, "store.url, or --store URL")
        return
    if not nodes:
        yield fail("store", f"{place}: no node answers", "start them, or name others with --store")
        return
    yield ok("store", f"{place}: {len(nodes)} nodes answer, {sum(node.is_primary for node in nodes)} of them primaries")
    if silent:
        yield warn(
            "cluster nodes", f"{', '.join(silent)} do not answer", "start them; a cell is lost with its last server"
        )
    yield _state(nodes)
    yield _slot(config, slot, ranges, silent)
    yield from _settings(config, nodes)


def _state(nodes: list[Seen]) -> Check:
    failing = [node.place for node in nodes if node.state != "ok"]
    if failing:
        return fail("cluster state", f"{', '.join(failing)} say that it fails", "redis-cli --cluster check HOST:PORT")
    return ok("cluster state", "ok, as all who answer say")


def _slot(config: Config, slot: int, ranges: list[Served], silent: list[str]) -> Check:
    cell = f"cell {config.store.cell}" if config.store.cell else "the journal"
    served = next((found.places for found in ranges if found.first <= slot <= found.last), None)
    if served is None:
        return fail(
            "cluster slot", f"nobody serves slot {slot}, where {cell} lies", "redis-cli --cluster fix HOST:PORT"
        )
    places = [_text_of(address) for address in served]
    replicas = [place for place in places[1:] if place not in silent]
    said = f"slot {slot} of {cell} is served by {places[0]}, with {len(replicas)} replicas that answer"
    if not replicas:
        fix = "CLUSTER REPLICATE: without a replica the cell is lost with its server" + (
            ", and nothing is acknowledged" if config.store.durability == "replicated" else ""
        )
        return (fail if config.store.durability == "replicated" else warn)("cluster slot", said, fix)
    return ok("cluster slot", said)


def _settings(config: Config, nodes: list[Seen]) -> Iterator[Check]:
    told = [(node.place, node.settings) for node in nodes if node.settings is not None]
    if not told:
        yield warn("cluster settings", "we may not ask (CONFIG GET)", f"see that {COVERAGE} is no, appendfsync always")
        return
    whole = [place for place, settings in told if settings.get(COVERAGE) == "yes"]
    if whole:
        yield warn(
            COVERAGE,
            f"yes on {', '.join(whole)}: when one cell's servers are gone all others stop with it",
            f"CONFIG SET {COVERAGE} no; CONFIG REWRITE, on each",
        )
    else:
        yield ok(COVERAGE, "no")
    lax = [place for place, found in told if (found.get("appendonly"), found.get("appendfsync")) != ("yes", "always")]
    if lax:
        yield (warn if config.store.durability == "relaxed" else fail)(
            "appendfsync",
            f"not always on {', '.join(lax)}, and each of them may become a primary",
            "CONFIG SET appendonly yes; CONFIG SET appendfsync always; CONFIG REWRITE, on each",
        )
    else:
        yield ok("appendfsync", "always, on all that say")


async def _ask(seeds: list[Address], options: dict[str, Any]) -> tuple[list[Served], list[Seen], list[str]]:
    """(ranges of slots, nodes that answer, places of those that do not)."""
    waiting, ranges, nodes, silent = dict.fromkeys(seeds), list[Served](), list[Seen](), list[str]()
    asked = set[Address]()
    while waiting:
        address, _ = waiting.popitem()
        asked.add(address)
        try:
            async with asyncio.timeout(REACH_S):
                seen, found = await _look(address, options)
        except (redis_errors.RedisError, OSError, TimeoutError):
            silent.append(_text_of(address))
            continue
        nodes.append(seen)
        ranges = ranges or found
        waiting |= {other: None for served in found for other in served.places if other not in asked}
    return ranges, sorted(nodes), sorted(silent)


async def _look(address: Address, options: dict[str, Any]) -> tuple[Seen, list[Served]]:
    client: Redis = Redis(host=address[0], port=address[1], protocol=2, **options)
    try:
        info = await client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]
        slots = await client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
        role = await client.execute_command("ROLE")  # type: ignore[no-untyped-call]
        try:
            told = {
                **await client.config_get("append*"),
                **await client.config_get(COVERAGE),
            }
            settings = {_text(name): _text(value) for name, value in told.items()}
        except (redis_errors.NoPermissionError, redis_errors.ResponseError):
            settings = None
        state = "ok" if b"cluster_state:ok" in info else "fail"
        ranges = [Served(first, last, [place_of(address, node) for node in nodes]) for first, last, *nodes in slots]
        return Seen(_text_of(address), state, role[0] == b"master", settings), ranges
    finally:
        await client.aclose()


def _text_of(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
