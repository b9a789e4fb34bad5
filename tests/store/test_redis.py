"""Any server by URL: the same promises over a server that others run, restart, fill up, demote and empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hetsched.errors import ConfigError, Deposed, StoreLost
from hetsched.store import Durability, HeadDamaged, JournalCorrupt, open_store, scripts
from hetsched.store.redis import connection_pool
from tests.store.helpers import Proxy, Server, config, eventually, opened_store, replay


@pytest.fixture
async def proxy(server: Server, data_dir: Path) -> AsyncIterator[Proxy]:
    proxy = await Proxy(data_dir / "p", server.socket).start()
    yield proxy
    await proxy.stop()


async def test_the_stream_is_readable_by_anybody_with_a_client(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        await store.append(b"a")
        await store.append(b"b")
        entries = await server.client.xrange(scripts.WHOLE.journal)
        assert [entry_id for entry_id, _ in entries] == [b"1-1", b"1-2"]
        head = await server.client.hgetall(scripts.WHOLE.head)
        assert (head[b"epoch"], head[b"seq"]) == (b"1", b"2")
        assert {key.split(b"}")[0] for key in await server.client.keys("*")} == {b"{hetsched"}


async def test_a_second_opener_deposes_the_first(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "a", lease=60) as (first, opened_first):
        await first.append(b"a")
        await server.client.delete(scripts.WHOLE.leader)  # what a clock that jumps does to its lease
        async with opened_store(server.url, data_dir / "b") as (second, opened):
            assert (opened.epoch, await replay(opened)) == (2, [b"a"])
            assert opened.cluster_id == opened_first.cluster_id
            with pytest.raises(Deposed):
                await first.append(b"b")
            assert isinstance(await first.failed, Deposed)
            await second.append(b"c")
    async with opened_store(server.url, data_dir / "b") as (_, opened):
        assert await replay(opened) == [b"a", b"c"]


@pytest.mark.parametrize("what", ["cut_requests", "cut_answers"])
async def test_cuts_lose_nothing_and_double_nothing(server: Server, proxy: Proxy, data_dir: Path, what: str) -> None:
    payloads = [b"%d" % number * 50 for number in range(120)]
    async with opened_store(f"unix://{proxy.path}", data_dir / "d") as (store, _):
        for first in range(0, len(payloads), 8):
            setattr(proxy, what, 1)
            await asyncio.gather(*(store.append(payload) for payload in payloads[first : first + 8]))
        assert proxy.cuts_total >= 10
        assert store.stats().resent_total >= 10
        assert store.stats().reconnects_total >= 10
    async with opened_store(server.url, data_dir / "d") as (_, opened):
        assert await replay(opened) == payloads


async def test_a_server_that_restarts_is_a_pause(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        await store.append(b"a")
        await server.kill()
        waiting = store.append(b"b")
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await server.start()
        await asyncio.wait_for(waiting, 10)
    async with opened_store(server.url, data_dir / "d") as (_, opened):
        assert await replay(opened) == [b"a", b"b"]


async def test_no_answer_in_time_is_asked_again(
    server: Server, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.store.appender.ANSWER_TIMEOUT_S", 0.1)
    async with opened_store(server.url, data_dir / "d") as (store, _):
        await store.append(b"a")
        await server.client.execute_command("CLIENT", "PAUSE", 300, "ALL")
        await asyncio.wait_for(store.append(b"b"), 10)
        assert store.stats().reconnects_total >= 1
    async with opened_store(server.url, data_dir / "d") as (_, opened):
        assert await replay(opened) == [b"a", b"b"]


async def test_a_full_server_refuses_new_work_and_what_waits_goes_through_once_there_is_room(
    server: Server, data_dir: Path
) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        await store.append(b"a")
        await server.client.config_set("maxmemory", 1)
        waiting = store.append(b"b")
        await eventually(lambda: not store.stats().admit)
        assert "OOM" in store.stats().reason
        await server.client.config_set("maxmemory", 0)
        await asyncio.wait_for(waiting, 10)


async def test_a_primary_that_became_a_replica_is_a_lost_store(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        await store.append(b"a")
        await server.client.execute_command("REPLICAOF", "127.0.0.1", 1)
        with pytest.raises(StoreLost, match="READONLY"):
            await store.append(b"b")
        assert store.failed.done()


async def test_an_emptied_server_is_a_lost_store(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        await store.append(b"a")
        await server.client.flushall()
        with pytest.raises(StoreLost, match="empty"):
            await store.append(b"b")


async def test_forgotten_scripts_are_taught_again(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        await store.append(b"a")
        await server.client.script_flush()
        await store.append(b"b")


async def test_a_damaged_frame_refuses_the_start_by_name(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        await store.append(b"a")
    frame = (await server.client.xrange(scripts.WHOLE.journal))[0][1][b"frame"]
    await server.client.delete(scripts.WHOLE.journal)
    await server.client.xadd(scripts.WHOLE.journal, {b"frame": frame[:-1] + b"!"}, id="1-1")
    async with opened_store(server.url, data_dir / "d") as (_, opened):
        with pytest.raises(JournalCorrupt, match="journal 1-1, byte 33: checksum"):
            await replay(opened)


@pytest.mark.parametrize(("field", "value"), [("epoch", "many"), ("snapshots", "[{}]"), ("unfinished", "x")])
async def test_a_damaged_head_refuses_the_start(server: Server, data_dir: Path, field: str, value: str) -> None:
    async with opened_store(server.url, data_dir / "d"):
        pass
    await server.client.hset(scripts.WHOLE.head, field, value)
    store = await open_store(server.url, data_dir / "d", config())
    with pytest.raises(JournalCorrupt, match="head, byte 0: cannot be read"):
        await store.open()


async def test_a_journal_without_a_head_is_not_begun_anew(server: Server, data_dir: Path) -> None:
    await server.client.xadd(scripts.WHOLE.journal, {b"frame": b"?"}, id="1-1")
    store = await open_store(server.url, data_dir / "d", config())
    with pytest.raises(HeadDamaged, match="head, byte 0: is missing, but there is a journal"):
        await store.open()


async def test_snapshots_trim_the_stream_and_their_chunks_go_with_them(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        for number in range(4):
            await store.append(b"%d" % number)
            await store.save_snapshot(b"%d" % number)
        assert [entry_id for entry_id, _ in await server.client.xrange(scripts.WHOLE.journal)] == [b"1-3", b"1-4"]
        assert len(await server.client.keys("*snapshot*")) == 2
        newest = (await server.client.keys("*1.3@*"))[0]
    await server.client.delete(newest)
    async with opened_store(server.url, data_dir / "d") as (_, opened):
        assert (opened.snapshot, await replay(opened)) == (b"2", [b"3"])


async def test_what_the_server_keeps_is_said_as_it_is(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "d") as (store, _):
        assert store.stats().durability is Durability.FSYNC
    await server.client.config_set("appendfsync", "everysec")
    async with opened_store(server.url, data_dir / "d") as (store, _):
        assert store.stats().durability is Durability.RELAXED


async def test_a_user_with_nothing_but_the_journals_commands_is_enough(server: Server, data_dir: Path) -> None:
    commands = "eval evalsha script|load hgetall hmget hget hset hdel hincrby exists xadd xrange xtrim set get unlink del pexpire"
    rules = ["on", ">pw", "~{hetsched}:*", *(f"+{command}" for command in commands.split())]
    await server.client.execute_command("ACL", "SETUSER", "sched", *rules)
    url = f"unix://sched:pw@{server.socket}"
    async with opened_store(url, data_dir / "d") as (store, _):
        await store.append(b"a")
        await store.save_snapshot(b"a")
        assert store.stats().durability is Durability.UNKNOWN


async def test_a_wrong_password_is_a_fault_of_the_configuration(server: Server, data_dir: Path) -> None:
    await server.client.execute_command("ACL", "SETUSER", "sched", "on", ">pw")
    store = await open_store(f"unix://sched:wrong@{server.socket}", data_dir / "d", config())
    with pytest.raises(ConfigError, match=r"store\.url"):
        await store.open()


async def test_a_server_that_would_evict_the_journal_is_refused(server: Server, data_dir: Path) -> None:
    await server.client.config_set("maxmemory-policy", "allkeys-lru")
    await server.client.config_set("maxmemory", "100mb")
    store = await open_store(server.url, data_dir / "d", config())
    with pytest.raises(ConfigError, match="noeviction"):
        await store.open()


async def test_an_old_server_that_would_not_reload_the_journal_is_refused(
    server: Server, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.store.redis.RELOADS_AS_NOBODY", (99, 0))
    await server.client.execute_command("ACL", "SETUSER", "sched", "on", ">pw", "~{hetsched}:*", "+@all")
    async with opened_store(f"unix://sched:pw@{server.socket}", data_dir / "d"):
        pass
    await server.client.execute_command("ACL", "SETUSER", "default", "-@dangerous")
    store = await open_store(f"unix://sched:pw@{server.socket}", data_dir / "d", config())
    with pytest.raises(ConfigError, match="silently drop the journal"):
        await store.open()


async def test_a_server_that_loads_is_waited_for_and_one_that_is_not_there_is_lost(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.store.redis.CONNECT_PATIENCE_S", 0.2)
    asked = 0

    async def load(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while await reader.read(4096):
            asked += 1
            writer.write(b"-LOADING Redis is loading the dataset in memory\r\n")
        writer.close()

    loading = await asyncio.start_unix_server(load, str(data_dir / "l"))
    store = await open_store(f"unix://{data_dir / 'l'}", data_dir / "d", config())
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0.6)
    assert not opening.done()
    assert asked > 3
    loading.close()
    (data_dir / "l").unlink(missing_ok=True)
    with pytest.raises(StoreLost, match="cannot be reached"):
        await asyncio.wait_for(opening, 5)


async def test_a_replica_has_it_before_it_is_confirmed(
    server: Server, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("redis_link", "redis"):
        monkeypatch.setattr(f"hetsched.store.{module}.REPLICA_TIMEOUT_MS", 200)
    await server.client.config_set("repl-diskless-sync-delay", 0)
    (data_dir / "r").mkdir()
    replica = await Server(data_dir / "r").start("--port", "0")
    listener = await _tcp_to(server.socket)
    port = listener.sockets[0].getsockname()[1]
    try:
        store = await open_store(server.url, data_dir / "d", config(durability="replicated"))
        opening = asyncio.create_task(store.open())
        await asyncio.sleep(0.5)
        assert not opening.done(), "there is no replica yet to know of the epoch"
        await replica.client.execute_command("REPLICAOF", "127.0.0.1", port)
        await asyncio.wait_for(opening, 15)
        assert store.stats().durability is Durability.REPLICATED
        for number in range(20):
            await store.append(b"%d" % number)
            assert await replica.client.xlen(scripts.WHOLE.journal) == number + 1
        await replica.client.execute_command("REPLICAOF", "NO", "ONE")
        waiting = store.append(b"alone")
        await asyncio.sleep(0.5)
        assert not waiting.done(), "there is none any more"
        await replica.client.execute_command("REPLICAOF", "127.0.0.1", port)
        await asyncio.wait_for(waiting, 15)
        await store.close()
    finally:
        await replica.kill()
        listener.close()


async def _tcp_to(socket: Path) -> asyncio.Server:
    """Replicas only dial TCP."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(str(socket))
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer), return_exceptions=True)

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+cluster://h:1/3", "HOST:PORT"),
        ("redis+cluster://", "HOST:PORT"),
        ("redis+cluster://h?colour=red", "HOST:PORT"),
        ("mysql://h", "none of embedded:"),
        ("", "none of embedded:"),
        ("redis://h:port", "store.url"),
        ("redis://h?socket_timeout=soon", "store.url"),
    ],
)
async def test_a_url_that_cannot_be_used_says_why(data_dir: Path, url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        await open_store(url, data_dir, config())


def test_urls_reach_every_kind_of_server_and_the_client_never_retries_by_itself() -> None:
    kinds = {
        "redis://h:1/2": "Connection",
        "rediss://u:p@h": "SSLConnection",
        "unix:///s": "UnixDomainSocketConnection",
    }
    for url, kind in kinds.items():
        pool = connection_pool(url)
        assert pool.connection_class.__name__ == kind
        assert pool.connection_kwargs["retry"]._retries == 0
