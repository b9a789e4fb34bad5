"""The daemon's disk remembers the store: an empty, older or foreign one is refused with the way out, never begun anew."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from hetsched.store import DirectoryBusy, IdentityMismatch, Position, open_store
from hetsched.store.backend import Head
from hetsched.store.identity import DirectoryLock, Identity
from tests.store.helpers import Server, config, opened_store

HEAD = Head("c1", 4, 100, 7)


def known(path: Path, epoch: int = 4, seq: int = 100) -> Identity:
    Identity(path / "identity.json", "unix:///s").save("c1", Position(epoch, seq))
    return Identity(path / "identity.json", "unix:///s")


def test_a_new_directory_takes_any_store(tmp_path: Path) -> None:
    fresh = Identity(tmp_path / "identity.json", "embedded:")
    fresh.check(None)
    fresh.check(HEAD)


def test_a_start_cut_short_goes_on_with_the_same_id(tmp_path: Path) -> None:
    begun = known(tmp_path, 0, 0)
    begun.check(None)
    assert begun.cluster == "c1"


@pytest.mark.parametrize(
    ("head", "story"),
    [
        (None, "is empty"),
        (HEAD._replace(cluster="c2"), "belongs to cluster c2"),
        (HEAD._replace(seq=99), "ends at 4-99"),
        (HEAD._replace(epoch=3), "ends at 3-100"),
    ],
)
def test_a_store_that_lost_what_we_know_of_is_refused_with_the_way_out(
    tmp_path: Path, head: Head | None, story: str
) -> None:
    with pytest.raises(IdentityMismatch, match=story) as caught:
        known(tmp_path).check(head)
    assert "confirmed 4-100 of cluster c1" in str(caught.value)
    assert "restore its data from a backup" in str(caught.value)
    assert f"move {tmp_path / 'identity.json'} away" in str(caught.value)


def test_a_store_that_is_ahead_is_ours(tmp_path: Path) -> None:
    known(tmp_path).check(HEAD._replace(epoch=9, seq=1000))


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text('{"cluster": ')
    with pytest.raises(IdentityMismatch, match=r"identity\.json cannot be read"):
        Identity(tmp_path / "identity.json", "embedded:")


async def test_a_server_emptied_between_two_starts_is_refused_and_left_empty(data_dir: Path) -> None:
    server = await Server(data_dir).start()
    try:
        async with opened_store(server.url, data_dir / "d") as (store, _):
            await store.append(b"a")
        noted = json.loads((data_dir / "d" / "identity.json").read_text())
        assert (noted["epoch"], noted["seq"], noted["store"]) == (1, 1, f"unix://{server.socket}")
        await server.client.flushall()
        store = await open_store(server.url, data_dir / "d", config())
        with pytest.raises(IdentityMismatch, match="is empty"):
            await store.open()
        assert await server.client.dbsize() == 0
    finally:
        await server.kill()


async def test_the_urls_password_is_not_written_down(data_dir: Path) -> None:
    store = await open_store("redis://me:secret@localhost:1/0?x=y", data_dir, config())
    await store.close()
    identity = Identity(data_dir / "identity.json", "")
    identity.save("c", Position(0, 0))
    assert "secret" not in "".join(path.read_text() for path in data_dir.iterdir())


async def test_a_second_store_on_the_same_directory_is_refused(data_dir: Path) -> None:
    first = await open_store("embedded:", data_dir, config())
    with pytest.raises(DirectoryBusy, match="in use by another daemon"):
        await open_store("embedded:", data_dir, config())
    await first.close()
    await (await open_store("embedded:", data_dir, config())).close()


async def test_a_note_under_way_when_the_store_is_closed_is_finished_before_the_last_one(
    data_dir: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by hand-overs at a busy hour: upkeep was cancelled while its thread wrote, and the two took the new file from each other."""
    fsync = os.fsync
    slow = threading.Event()
    monkeypatch.setattr("hetsched.store.identity.os.fsync", lambda handle: (slow.set(), time.sleep(0.1), fsync(handle)))
    async with opened_store(server.url, data_dir / "d") as (store, _):
        slow.clear()
        await store.append(b"a")
        upkeep = asyncio.create_task(store._note_identity())  # type: ignore[attr-defined]
        await asyncio.to_thread(slow.wait)
        await store.append(b"b")
        upkeep.cancel()
    assert json.loads((data_dir / "d" / "identity.json").read_text())["seq"] == 2
    assert sorted(path.name for path in (data_dir / "d").iterdir()) == ["identity.json", "store.lock"]


def test_the_lock_names_its_holder(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(DirectoryBusy, match=f"process {os.getpid()}"):
        DirectoryLock(tmp_path)
    lock.release()
    assert stat.S_IMODE((tmp_path / "store.lock").stat().st_mode) == 0o600
