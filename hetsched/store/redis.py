"""The journal in any Redis or Valkey server ≥ 6.2, by URL: redis://, rediss://, unix://.

The client retries nothing by itself (its default turned one append into two entries); what is repeated is repeated by the
lane, under the same id. Appends have a connection of their own (`redis_link.py`); everything else shares a small pool.

The user in the URL needs, on keys `{hetsched}:*` (of a cell `{hetsched:NAME}:*`): EVAL, EVALSHA, SCRIPT LOAD, HGETALL, HMGET, HGET, HSET,
HDEL, HINCRBY, EXISTS, XADD, XRANGE, XTRIM, SET, GET, UNLINK, DEL, PEXPIRE, TIME, with `store.durability = "replicated"` WAIT, for
`journal truncate` XDEL and XSETID, on a cluster CLUSTER INFO and CLUSTER SLOTS, between cells XREAD and HKEYS; better also INFO and CONFIG GET.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hetsched.errors import ConfigError, Conflict, Deposed, StoreLost
from hetsched.store import scripts
from hetsched.store.backend import Head, Health, Link, Manifest
from hetsched.store.base import Durability, JournalCorrupt, Position, Unreachable
from hetsched.store.head import head_of, lost_head, opened
from hetsched.store.redis_link import REPLICA_TIMEOUT_MS, RedisLink
from hetsched.store.redis_succession import RedisSuccession
from hetsched.store.scripts import WHOLE, Keys
from hetsched.store.words import server_words

SOCKET_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
CONNECT_PATIENCE_S = 30.0  # for a server that nobody answers for; one that loads is waited for without end
OLDEST = (6, 2)
RELOADS_AS_NOBODY = (7, 2)  # from here on; before, as user default (see server.py)


def connection_pool(url: str, **options: Any) -> ConnectionPool:
    """A pool whose connections never retry. ConfigError: the URL cannot be read."""
    try:
        return ConnectionPool.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            **options,
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"store.url: {error}") from None


class RedisBackend:
    """`backend.Backend` over a pool. `embedded` builds on it."""

    kind = "redis"

    def __init__(self, pool: ConnectionPool, replicated: bool = False, keys: Keys = WHOLE) -> None:
        """`replicated`: confirm a frame only when a replica has it too."""
        self.keys = keys
        self._pool = pool
        self._replicated = replicated
        self._client: Redis = Redis(connection_pool=pool)
        self._version: tuple[int, ...] = ()  # () = it does not tell
        self.succession = RedisSuccession(self._script, self._opening, keys)

    @property
    def restarts_total(self) -> int:
        return 0

    async def start(self) -> None:
        until_s = time.monotonic() + CONNECT_PATIENCE_S
        while True:
            try:
                await self._do("HGETALL", self.keys.head)  # INFO would be answered while it loads
                break
            except Unreachable as error:
                if "loading" in str(error).lower():
                    until_s = time.monotonic() + CONNECT_PATIENCE_S
                if time.monotonic() > until_s:
                    raise StoreLost(f"the store's server cannot be reached: {error}") from None
                await asyncio.sleep(0.05)
        self._check_version((await self._info("server")).get("redis_version") or await self._version_by_trying())
        await self._check_eviction()
        await self._check_reload()

    async def head(self) -> Head | None:
        fields = await self._do("HGETALL", self.keys.head)
        if not fields:
            if await self._do("EXISTS", self.keys.journal):
                raise lost_head(self.keys)
            return None
        return head_of(self.keys, {key.decode(errors="replace"): value for key, value in fields.items()})

    async def open_epoch(self, cluster: str, create: bool) -> Head:
        answer = await self._opening(
            scripts.OPEN, [self.keys.head, self.keys.journal], cluster, "1" if create else "", scripts.FORMAT
        )
        return opened(self.keys, answer)

    async def dial(self) -> Link:
        # Not from the pool: a pooled connection may be checked, shared and replaced behind our back.
        connection = self._pool.connection_class(**{**self._pool.connection_kwargs, "socket_timeout": None})
        try:
            with server_words():
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await connection.connect()  # type: ignore[no-untyped-call]
                    await connection.send_command("SCRIPT", "LOAD", self._text(scripts.APPEND))
                    sha = await connection.read_response(disable_decoding=True)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return RedisLink(connection, sha, self.keys, self._replicated)

    async def read(self, after: Position, count: int) -> list[tuple[str, bytes]]:
        entries = await self._do("XRANGE", self.keys.journal, f"({after.id}", "+", "COUNT", count)
        frames: list[tuple[str, bytes]] = []
        for entry_id, fields in entries:
            where = entry_id.decode()
            if set(fields or ()) == {scripts.FIELD}:
                frames.append((where, fields[scripts.FIELD]))
            elif frames:
                break  # those before it are whole; asked for what comes after them, it is named
            else:
                raise JournalCorrupt(
                    where, 0, f"has fields {sorted(fields or {})}, not the one field {scripts.FIELD!r}"
                )
        return frames

    async def announce(self, manifest: Manifest) -> None:
        await self._do("HSET", self.keys.head, "unfinished", msgspec.json.encode(manifest))

    async def put_chunk(self, name: str, index: int, data: bytes) -> None:
        await self._do("SET", self.keys.chunk(name, index), data)

    async def get_chunk(self, name: str, index: int) -> bytes | None:
        chunk: bytes | None = await self._do("GET", self.keys.chunk(name, index))
        return chunk

    async def publish(self, epoch: int, snapshots: tuple[Manifest, ...], trim: Position | None) -> None:
        newest = snapshots[0]
        chunks = [self.keys.chunk(newest.name, index) for index in range(newest.chunks)]
        answer = await self._script(
            scripts.PUBLISH,
            [self.keys.head, self.keys.journal, *chunks],
            epoch,
            msgspec.json.encode(snapshots),
            trim.id if trim is not None and trim.seq else "",
        )
        if answer == b"DEPOSED":
            raise Deposed("a snapshot was not published: a higher epoch leads")
        if answer != b"OK":
            raise StoreLost(f"a snapshot was not published: {answer.decode()} is missing")

    async def drop_chunks(self, manifest: Manifest) -> None:
        for first in range(0, manifest.chunks, 256):
            indexes = range(first, min(first + 256, manifest.chunks))
            await self._do("UNLINK", *(self.keys.chunk(manifest.name, index) for index in indexes))

    async def cut(self, epoch: int, ids: Sequence[str]) -> None:
        await self._mend(scripts.CUT, epoch, *ids)

    async def end_at(self, head: Head) -> None:
        last, snapshots = head.position, msgspec.json.encode(head.snapshots)
        await self._mend(scripts.END, head.epoch, last.id, head.seq, head.crc, snapshots)

    async def rehead(self, head: Head) -> None:
        arguments = (head.cluster, head.epoch, head.seq, head.crc, scripts.FORMAT, msgspec.json.encode(head.snapshots))
        if await self._script(scripts.REHEAD, [self.keys.head, self.keys.leader], *arguments) != b"OK":
            raise Conflict("a daemon leads this store: stop it first (and wait for its lease to end)")

    async def snapshot_names(self) -> list[str]:
        first, names, cursor = self.keys.chunk("*", 0), set[str](), 0
        before, after = first.split("*")
        while True:
            cursor, found = await self._do("SCAN", cursor, "MATCH", f"{before}*{after}", "COUNT", 1000)
            names.update(key.decode()[len(before) : -len(after)] for key in found)
            if not int(cursor):
                return sorted(names)

    async def _mend(self, script: str, *arguments: Any) -> None:
        if await self._script(script, [self.keys.head, self.keys.journal], *arguments) != b"OK":
            raise Deposed("the journal was not cut: a higher epoch leads")

    async def health(self) -> Health:
        memory = await self._info("memory")
        return Health(
            durability=await self._durability(),
            memory_used_bytes=int(memory.get("used_memory", 0)),
            memory_limit_bytes=int(memory.get("maxmemory", 0)),
        )

    async def close(self) -> None:
        await self._client.aclose()
        await self._pool.disconnect()

    async def do(self, *command: Any) -> Any:
        """One command, its answer as it comes. Raises Unreachable and StoreLost; it may then have happened."""
        return await self._do(*command)

    # ------------------------------------------------------------------ inside

    async def _do(self, *command: Any) -> Any:
        with server_words():
            return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]

    async def _script(self, script: str, keys: list[str], *arguments: Any) -> Any:
        """Rare scripts travel as text: no cache to miss."""
        return await self._do("EVAL", self._text(script), len(keys), *keys, *arguments)

    async def _opening(self, script: str, keys: list[str], *arguments: Any) -> Any:
        """A script that opens an epoch; where frames are replicated the epoch is, too, before anybody leads in it: a primary that knew nothing
        of it would let another daemon open the same one."""
        if not self._replicated:
            return await self._script(script, keys, *arguments)
        both = self._client.pipeline(transaction=False)
        both.execute_command("EVAL", self._text(script), len(keys), *keys, *arguments)
        both.execute_command("WAIT", 1, REPLICA_TIMEOUT_MS)
        with server_words():
            answer, replicas = await both.execute()
        if replicas < 1:
            raise Unreachable(f"no replica has heard of the epoch in {REPLICA_TIMEOUT_MS} ms")
        return answer

    def _text(self, script: str) -> str:
        return scripts.without_shebang(script) if () < self._version < (7, 0) else script

    async def _info(self, section: str) -> dict[str, Any]:
        """The server's own account of itself; empty where its rules forbid asking."""
        return await self._allowed("INFO", section) or {}

    async def _allowed(self, *command: Any) -> Any:
        """None where the server's access rules forbid the command or hide it."""
        with server_words():
            try:
                return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]
            except redis_errors.NoPermissionError:
                return None
            except redis_errors.ResponseError as error:
                if "unknown" in str(error).lower():
                    return None
                raise

    async def _durability(self) -> Durability:
        answer = await self._allowed("CONFIG GET", "append*")
        if not answer:
            persistence = await self._info("persistence")
            return Durability.RELAXED if persistence.get("aof_enabled") == 0 else Durability.UNKNOWN
        settings = {_text(key): _text(value) for key, value in answer.items()}
        synced = settings.get("appendonly") == "yes" and settings.get("appendfsync") == "always"
        if synced and self._replicated:
            return Durability.REPLICATED
        return Durability.FSYNC if synced else Durability.RELAXED

    def _check_version(self, version: Any) -> None:
        numbers = tuple(int(part) for part in re.findall(r"\d+", str(version or ""))[:2])
        if numbers and numbers < OLDEST:
            raise ConfigError(f"the store's server is version {version}; the journal needs 6.2 or newer")
        self._version = numbers

    async def _version_by_trying(self) -> str:
        """Where INFO is not allowed: only 7.0 and newer understand a script's first line."""
        try:
            await self._do("EVAL", "#!lua\nreturn 1", 0)
            return ""
        except StoreLost:
            return "6.2"

    async def _check_eviction(self) -> None:
        memory = await self._info("memory")
        policy = _text(memory.get("maxmemory_policy", "noeviction"))
        if int(memory.get("maxmemory", 0)) and policy.startswith("allkeys"):
            raise ConfigError(
                f"the store's server has maxmemory-policy {policy} and would throw the journal away when memory runs "
                "short; set it to noeviction, or give the journal a server of its own"
            )

    async def _check_reload(self) -> None:
        """Older servers reload their file as user default, and forget the journal where that one is restricted."""
        if not () < self._version < RELOADS_AS_NOBODY:
            return
        answer = await self._allowed("ACL", "LIST")
        rules = [_text(line).split() for line in answer or []]
        default = next((words for words in rules if words[:2] == ["user", "default"]), None)
        restricted = default is not None and (not {"~*", "+@all"} <= set(default) or any(w[0] == "-" for w in default))
        if restricted:
            raise ConfigError(
                "the store's server reloads its append-only file as user default, who is restricted, and would silently drop "
                "the journal at its next restart; upgrade it to 7.2 or Valkey, or: ACL SETUSER default ~* +@all >PASSWORD"
            )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
