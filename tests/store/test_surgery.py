"""Cutting: what is kept is an exact prefix, the head follows, older daemons are fenced off, and it can be run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.errors import Conflict, Deposed, NotFound, StoreLost
from hetsched.store import Durability, JournalCorrupt, MemoryServer, Position
from hetsched.store.archive import Archive
from hetsched.store.backend import Head
from hetsched.store.identity import Identity
from hetsched.store.memory import MemoryBackend
from hetsched.store.redis import RedisBackend, connection_pool
from hetsched.store.surgery import make_cut, plan_cut
from tests.store.helpers import Server, everything, memory, opened_store, replay


async def written(*lines: bytes, snapshot_after: int = 0) -> MemoryServer:
    server = MemoryServer()
    store, _ = await memory(server)
    for number, line in enumerate(lines, 1):
        await store.append(line)
        if number == snapshot_after:
            await store.save_snapshot(b"\n".join(lines[:number]))
    await store.close()
    return server


def spoil(server: MemoryServer, seq: int) -> None:
    """Another byte in that frame."""
    at = next(n for n, (position, _) in enumerate(server.frames) if position.seq == seq)
    position, data = server.frames[at]
    server.frames[at] = position, data[:-5] + b"?" + data[-4:]


async def cut(server: MemoryServer, at: str, tmp_path: Path, identity: Identity | None = None) -> Head:
    archive = Archive(MemoryBackend(server))
    return await make_cut(archive, await plan_cut(archive, at), tmp_path / "cut", identity)


async def test_what_follows_the_last_good_frame_goes_and_the_rest_is_read(tmp_path: Path) -> None:
    server = await written(b"a", b"b", b"c", b"d")
    spoil(server, 3)
    head = await cut(server, "1-3", tmp_path)
    assert (head.epoch, head.seq) == (2, 2)
    store, opened = await memory(server)
    assert (opened.epoch, await everything(opened)) == (3, [b"a", b"b"])
    await store.append(b"e")
    await store.close()
    _, again = await memory(server)
    assert await replay(again) == [b"a", b"b", b"e"]


async def test_a_leader_of_before_the_cut_appends_no_more(tmp_path: Path) -> None:
    server = MemoryServer()
    leader, _ = await memory(server)
    for line in (b"a", b"b"):
        await leader.append(line)
    await cut(server, "1-2", tmp_path)
    with pytest.raises(Deposed):
        await leader.append(b"late")
    await leader.close()


async def test_a_snapshot_that_is_damaged_goes_with_the_frames_behind_it(tmp_path: Path) -> None:
    server = await written(b"a", b"b", b"c", b"d", snapshot_after=3)
    server.chunks.clear()
    spoil(server, 2)
    await cut(server, "1-2", tmp_path)
    assert server.head is not None and server.head.snapshots == ()
    _, opened = await memory(server)
    assert await everything(opened) == [b"a"]


async def test_frames_that_a_whole_snapshot_holds_need_no_cut(tmp_path: Path) -> None:
    server = await written(b"a", b"b", b"c", snapshot_after=2)
    spoil(server, 1)
    with pytest.raises(Conflict, match="no start reads it"):
        await cut(server, "1-1", tmp_path)
    _, opened = await memory(server)
    assert await everything(opened) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("seq", [2, 4])
async def test_a_head_that_names_another_last_frame_is_put_right_and_no_good_frame_goes(
    tmp_path: Path, seq: int
) -> None:
    server = await written(b"a", b"b", b"c")
    assert server.head is not None
    crc = server.frames[min(seq, 3) - 1][0].crc
    server.head = server.head._replace(seq=seq, crc=crc)
    _, opened = await memory(server)
    with pytest.raises(JournalCorrupt) as damage:
        await replay(opened)
    await cut(server, damage.value.cut, tmp_path)
    _, opened = await memory(server)
    assert await replay(opened) == [b"a", b"b", b"c"]


async def test_what_was_interrupted_is_done_again(tmp_path: Path) -> None:
    server = await written(b"a", b"b", b"c", b"d")
    spoil(server, 2)
    archive = Archive(MemoryBackend(server))
    plan = await plan_cut(archive, "1-2")
    await archive.backend.open_epoch(plan.head.cluster, False)
    await archive.backend.cut(2, [entry.id for entry in plan.cut[1:]])  # here the power failed
    await cut(server, "1-2", tmp_path)
    _, opened = await memory(server)
    assert await replay(opened) == [b"a"]


async def test_a_cut_that_breaks_off_leaves_an_identity_that_takes_what_is_there(tmp_path: Path) -> None:
    server = await written(b"a", b"b", b"c")
    identity = Identity(tmp_path / "identity.json", "memory:")
    identity.save("memory", Position(1, 3))
    backend = MemoryBackend(server)
    archive = Archive(backend)

    async def broken(epoch: int, ids: object) -> None:
        raise StoreLost("the power failed")

    backend.cut = broken  # type: ignore[method-assign]
    with pytest.raises(StoreLost):
        await make_cut(archive, await plan_cut(archive, "1-2"), tmp_path / "first", identity)
    for head in (server.head, await cut(server, "1-2", tmp_path)):
        Identity(tmp_path / "identity.json", "memory:").check(head)


async def test_the_backup_is_never_written_over(tmp_path: Path) -> None:
    server = await written(b"a", b"b")
    (tmp_path / "cut").write_text("of another time")
    with pytest.raises(Conflict, match="File exists; nothing was cut"):
        await cut(server, "1-2", tmp_path)
    assert len(server.frames) == 2


async def test_only_a_frame_that_is_there_can_be_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="the journal ends with 1-2, as it should"):
        await cut(await written(b"a", b"b"), "1-3", tmp_path)


async def test_on_a_real_server_the_stream_goes_on_with_the_next_number(data_dir: Path) -> None:
    server = await Server(data_dir).start()
    try:
        async with opened_store(server.url, data_dir / "d") as (store, _):
            for line in (b"a", b"b", b"c"):
                await store.append(line)
        identity = Identity(data_dir / "d" / "identity.json", "")
        async with Archive(RedisBackend(connection_pool(server.url))) as archive:
            await make_cut(archive, await plan_cut(archive, "1-2"), data_dir / "cut", identity)
        assert identity.confirmed == Position(2, 1)
        async with opened_store(server.url, data_dir / "d") as (store, opened):
            assert (opened.epoch, await replay(opened)) == (3, [b"a"])
            await store.append(b"B")
            assert store.stats().durability is Durability.FSYNC
        async with opened_store(server.url, data_dir / "d") as (_, opened):
            assert await replay(opened) == [b"a", b"B"]
    finally:
        await server.kill()
