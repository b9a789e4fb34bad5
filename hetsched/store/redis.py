"""The journal in any Redis or Valkey server ≥ 6.2, by URL: redis://, rediss://, unix://.

The client retries nothing by itself (its default turned one append into two entries); what is repeated is repeated by the
lane, under the same id. Appends have a connection of their own; everything else shares a small pool. The server's words are
sorted here: no answer, loading and busy become Unreachable, full becomes a refusal, a primary that turned read-only StoreLost.

The user in the URL needs, on keys `{hetsched}:*`: EVAL, EVALSHA, SCRIPT LOAD, HGETALL, HMGET, HGET, HSET, HDEL, HINCRBY, EXISTS,
XADD, XRANGE, XTRIM, SET, GET, UNLINK, with `store.durability = "replicated"` WAIT; better also INFO and CONFIG GET.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hetsched.errors import ConfigError, Deposed, StoreLost
from hetsched.store import scripts
from hetsched.store.backend import Answer, Head, Health, Link, Manifest, Verdict
from hetsched.store.base import Durability, JournalCorrupt, Position, Unreachable
from hetsched.store.frame import Frame

SOCKET_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
CONNECT_PATIENCE_S = 30.0  # for a server that nobody answers for; one that loads is waited for without end
REPLICA_TIMEOUT_MS = 4000  # below the lane's own patience for an answer
OLDEST = (6, 2)
WAIT_WORDS = ("LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOSCRIPT", "UNBLOCKED")
FULL_WORDS = ("OOM", "MISCONF", "NOREPLICAS")
_CUT_WORDS: dict[type[Exception], str] = {
    redis_errors.OutOfMemoryError: "OOM",
    redis_errors.ReadOnlyError: "READONLY",
    redis_errors.NoScriptError: "NOSCRIPT",
    redis_errors.TryAgainError: "TRYAGAIN",
    redis_errors.ClusterDownError: "CLUSTERDOWN",
    redis_errors.MasterDownError: "MASTERDOWN",
}
_MANIFESTS = msgspec.json.Decoder(tuple[Manifest, ...])
_MANIFEST = msgspec.json.Decoder(Manifest)


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


@contextmanager
def server_words() -> Iterator[None]:
    """Turn what the client raises into the store's own errors."""
    try:
        yield
    except redis_errors.NoPermissionError as error:
        raise _forbidden(error) from None
    except redis_errors.ConnectionError as error:
        # Some versions of the client hide what the server said at the door behind a plain ConnectionError.
        if isinstance(error, redis_errors.AuthenticationError) or isinstance(
            error.__cause__, redis_errors.AuthenticationError
        ):
            raise _forbidden(error) from None
        raise Unreachable(str(error)) from None
    except (redis_errors.TimeoutError, OSError) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    except redis_errors.ResponseError as error:
        raise _sorted(error) from None


def _forbidden(error: Exception) -> ConfigError:
    return ConfigError(
        f"the store's server refuses us: {error}; check the user, its password and its rights (store.url)"
    )


def _word(error: Exception) -> str:
    """The error's first word, which the client cuts off for those it knows."""
    return _CUT_WORDS.get(type(error)) or str(error).split(" ", 1)[0]


def _sorted(error: redis_errors.ResponseError) -> Exception:
    word = _word(error)
    if word in WAIT_WORDS or word in FULL_WORDS:
        return Unreachable(f"{word} {error}")
    if word == "READONLY":
        return StoreLost("the store's server is a replica now (READONLY); a new epoch must be opened on the primary")
    return StoreLost(f"the store's server answers: {error}")


class RedisLink:
    """The connection for appends: commands go out packed, answers come back in order.

    `replicated`: behind each frame goes a WAIT, whose count of replicas is compared.

    Why not WAITAOF: a replica says what it has synced once a second, so an append took up to a second (valkey 9.1);
    WAIT takes a round trip and holds the same promise, that any one machine may be lost."""

    def __init__(self, connection: AbstractConnection, sha: bytes, replicated: bool) -> None:
        self._connection = connection
        self._sha = sha
        self._replicated = replicated

    async def send(self, frame: Frame) -> None:
        at = frame.position
        with server_words():
            await self._send(
                *("EVALSHA", self._sha, 2, scripts.HEAD, scripts.JOURNAL, at.epoch, at.seq, at.crc, frame.data)
            )
            if self._replicated:
                await self._send("WAIT", 1, REPLICA_TIMEOUT_MS)

    async def receive(self) -> Verdict:
        try:
            with server_words():
                verdict = await self._verdict()
                if self._replicated:
                    await self._wait(verdict)
                return verdict
        except StoreLost as error:
            return Verdict(Answer.BROKEN, str(error))

    async def _send(self, *command: Any) -> None:
        await self._connection.send_packed_command(self._connection.pack_command(*command), check_health=False)

    async def _verdict(self) -> Verdict:
        try:
            word, detail = await self._connection.read_response(disable_decoding=True)
        except redis_errors.ResponseError as error:
            if _word(error) in FULL_WORDS:
                return Verdict(Answer.REFUSED, f"{_word(error)} {error}")
            raise
        return Verdict(Answer(word.decode()), detail.decode())

    async def _wait(self, verdict: Verdict) -> None:
        """A frame that no replica has yet is not durable: resent, it is a duplicate, and waits again."""
        replicas = await self._connection.read_response(disable_decoding=True)
        if replicas < 1 and verdict.answer in (Answer.STORED, Answer.DUPLICATE):
            raise Unreachable(f"no replica has confirmed frame {verdict.detail} in {REPLICA_TIMEOUT_MS} ms")

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)


class RedisBackend:
    """`backend.Backend` over a pool. `embedded` builds on it."""

    kind = "redis"

    def __init__(self, pool: ConnectionPool, replicated: bool = False) -> None:
        """`replicated`: confirm a frame only when a replica has it too."""
        self._pool = pool
        self._replicated = replicated
        self._client: Redis = Redis(connection_pool=pool)
        self._version: tuple[int, ...] = ()  # () = it does not tell

    @property
    def restarts_total(self) -> int:
        return 0

    async def start(self) -> None:
        until_s = time.monotonic() + CONNECT_PATIENCE_S
        while True:
            try:
                await self._do("HGETALL", scripts.HEAD)  # INFO would be answered while it loads
                break
            except Unreachable as error:
                if "loading" in str(error).lower():
                    until_s = time.monotonic() + CONNECT_PATIENCE_S
                if time.monotonic() > until_s:
                    raise StoreLost(f"the store's server cannot be reached: {error}") from None
                await asyncio.sleep(0.05)
        self._check_version((await self._info("server")).get("redis_version"))
        await self._check_eviction()

    async def head(self) -> Head | None:
        fields = await self._do("HGETALL", scripts.HEAD)
        return _head({key.decode(): value for key, value in fields.items()}) if fields else None

    async def open_epoch(self, cluster: str, create: bool) -> Head:
        answer = await self._script(
            scripts.OPEN, [scripts.HEAD, scripts.JOURNAL], cluster, "1" if create else "", scripts.FORMAT
        )
        if len(answer) == 1:
            raise StoreLost(_OPEN_REFUSED[answer[0]])
        return _head({answer[i].decode(): answer[i + 1] for i in range(0, len(answer), 2)})

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
        return RedisLink(connection, sha, self._replicated)

    async def read(self, after: Position, count: int) -> list[tuple[str, bytes]]:
        entries = await self._do("XRANGE", scripts.JOURNAL, f"({after.id}", "+", "COUNT", count)
        return [(entry_id.decode(), _frame_of(entry_id.decode(), fields)) for entry_id, fields in entries]

    async def announce(self, manifest: Manifest) -> None:
        await self._do("HSET", scripts.HEAD, "unfinished", msgspec.json.encode(manifest))

    async def put_chunk(self, name: str, index: int, data: bytes) -> None:
        await self._do("SET", scripts.chunk_key(name, index), data)

    async def get_chunk(self, name: str, index: int) -> bytes | None:
        chunk: bytes | None = await self._do("GET", scripts.chunk_key(name, index))
        return chunk

    async def publish(self, epoch: int, snapshots: tuple[Manifest, ...], trim: Position | None) -> None:
        newest = snapshots[0]
        chunks = [scripts.chunk_key(newest.name, index) for index in range(newest.chunks)]
        answer = await self._script(
            scripts.PUBLISH,
            [scripts.HEAD, scripts.JOURNAL, *chunks],
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
            await self._do("UNLINK", *(scripts.chunk_key(manifest.name, index) for index in indexes))

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

    # ------------------------------------------------------------------ inside

    async def _do(self, *command: Any) -> Any:
        with server_words():
            return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]

    async def _script(self, script: str, keys: list[str], *arguments: Any) -> Any:
        """Rare scripts travel as text: no cache to miss."""
        return await self._do("EVAL", self._text(script), len(keys), *keys, *arguments)

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

    async def _check_eviction(self) -> None:
        memory = await self._info("memory")
        policy = _text(memory.get("maxmemory_policy", "noeviction"))
        if int(memory.get("maxmemory", 0)) and policy.startswith("allkeys"):
            raise ConfigError(
                f"the store's server has maxmemory-policy {policy} and would throw the journal away when memory runs "
                "short; set it to noeviction, or give the journal a server of its own"
            )


_OPEN_REFUSED = {
    b"EMPTY": "the store became empty while it was opened",
    b"CHANGED": "the store changed hands while it was opened",
    b"HEADLESS": f"the store has a journal ({scripts.JOURNAL}) without its head ({scripts.HEAD}); restore it from a backup",
}


def _head(fields: dict[str, bytes]) -> Head:
    """The head hash, checked: it is small and written by us alone, so what cannot be read is damage."""
    try:
        if int(fields["format"]) != scripts.FORMAT:
            raise ConfigError(f"the store has format {int(fields['format'])}; this program reads {scripts.FORMAT}")
        return Head(
            cluster=fields["cluster"].decode(),
            epoch=int(fields["epoch"]),
            seq=int(fields["seq"]),
            crc=int(fields["crc"]),
            snapshots=_MANIFESTS.decode(fields.get("snapshots", b"[]")),
            unfinished=_MANIFEST.decode(fields["unfinished"]) if "unfinished" in fields else None,
        )
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise JournalCorrupt(scripts.HEAD, 0, f"the head cannot be read: {error!r}") from None


def _frame_of(where: str, fields: dict[bytes, bytes] | None) -> bytes:
    if not fields or set(fields) != {scripts.FIELD}:
        raise JournalCorrupt(where, 0, f"has fields {sorted(fields or {})}, not the one field {scripts.FIELD!r}")
    return fields[scripts.FIELD]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
