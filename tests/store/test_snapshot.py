"""Snapshots: a start reads the newest whole one and the frames after it; a bad one costs a longer replay, never a state."""

from __future__ import annotations

import asyncio
import random

import pytest

from hetsched.config import Store as StoreConfig
from hetsched.errors import Deposed
from hetsched.store import JournalCorrupt, MemoryServer, Store
from hetsched.store.snapshot import CHUNK_BYTES, RAW, ZLIB, decode_chunk, encode_chunk
from tests.store.helpers import eventually, everything, memory, replay


async def append_lines(store: Store, *lines: bytes) -> None:
    await asyncio.gather(*(store.append(line) for line in lines))


def chunk_keys(server: MemoryServer) -> list[str]:
    return sorted({name for name, _ in server.chunks})


async def two_generations() -> MemoryServer:
    """a b | snapshot | c d | snapshot | e"""
    server = MemoryServer()
    store, _ = await memory(server)
    await append_lines(store, b"a", b"b")
    await store.save_snapshot(b"a\nb")
    await append_lines(store, b"c", b"d")
    await store.save_snapshot(b"a\nb\nc\nd")
    await append_lines(store, b"e")
    await store.close()
    return server


async def test_a_start_reads_the_snapshot_and_what_came_after() -> None:
    _, opened = await memory(await two_generations())
    assert opened.snapshot == b"a\nb\nc\nd"
    assert await replay(opened) == [b"e"]


async def test_the_journal_is_trimmed_to_the_generation_before() -> None:
    server = await two_generations()
    assert [position.seq for position, _ in server.frames] == [2, 3, 4, 5]
    store, opened = await memory(server)
    await replay(opened)
    await store.save_snapshot(b"a\nb\nc\nd\ne")
    assert [position.seq for position, _ in server.frames] == [4, 5]
    assert len(chunk_keys(server)) == 2
    await store.close()


@pytest.mark.parametrize("damage", ["missing", "flipped", "another's"])
async def test_a_bad_newest_snapshot_falls_back_to_the_one_before(damage: str) -> None:
    server = await two_generations()
    assert server.head is not None
    newest, previous = server.head.snapshots
    match damage:
        case "missing":
            del server.chunks[newest.name, 0]
        case "flipped":
            server.chunks[newest.name, 0] = (
                server.chunks[newest.name, 0][:-9] + b"?" + server.chunks[newest.name, 0][-8:]
            )
        case _:
            server.chunks[newest.name, 0] = server.chunks[previous.name, 0]
    store, opened = await memory(server)
    assert opened.snapshot == b"a\nb"
    assert await replay(opened) == [b"c", b"d", b"e"]
    await store.save_snapshot(b"a\nb\nc\nd\ne")
    await store.close()
    _, again = await memory(server)
    assert await everything(again) == [b"a", b"b", b"c", b"d", b"e"]


async def test_a_bad_first_snapshot_falls_back_to_the_whole_journal() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    await append_lines(store, b"a", b"b")
    await store.save_snapshot(b"a\nb")
    await append_lines(store, b"c")
    await store.close()
    server.chunks.clear()
    _, opened = await memory(server)
    assert opened.snapshot is None
    assert await replay(opened) == [b"a", b"b", b"c"]


async def test_two_bad_snapshots_refuse_the_start_by_name() -> None:
    server = await two_generations()
    server.chunks.clear()
    with pytest.raises(JournalCorrupt, match=r"snapshot 1\.1@1-4, chunk 0, byte 0: is missing"):
        await memory(server)


async def test_appends_go_on_while_a_snapshot_is_written_and_are_replayed_after_it() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    await append_lines(store, b"a")
    at = store.position
    saving = asyncio.create_task(store.save_snapshot(b"a", at))
    await append_lines(store, b"b", b"c")
    await saving
    await store.close()
    _, opened = await memory(server)
    assert (opened.snapshot, await replay(opened)) == (b"a", [b"b", b"c"])


async def test_a_snapshot_is_not_named_before_the_frames_in_it_are_kept() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    server.faults.refusal = "OOM"
    waiting = store.append(b"a")
    saving = asyncio.create_task(store.save_snapshot(b"a"))
    await eventually(lambda: server.chunks)
    await asyncio.sleep(0.02)
    assert server.head is not None and server.head.snapshots == ()
    server.faults.refusal = ""
    await asyncio.gather(waiting, saving)
    assert len(server.head.snapshots) == 1
    await store.close()


async def test_what_a_snapshot_cut_short_left_behind_is_cleared_at_the_next_start() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    await append_lines(store, b"a")
    saving = asyncio.create_task(store.save_snapshot(random.Random(5).randbytes(3 * CHUNK_BYTES)))
    await eventually(lambda: server.chunks)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    await store.close()
    assert server.chunks
    _, opened = await memory(server)
    assert not server.chunks
    assert await everything(opened) == [b"a"]


async def test_a_deposed_leaders_snapshot_is_not_named() -> None:
    server = MemoryServer()
    first, _ = await memory(server)
    await append_lines(first, b"a")
    second, _ = await memory(server)
    with pytest.raises(Deposed):
        await first.save_snapshot(b"wrong")
    assert first.failed.done()
    assert server.head is not None and server.head.snapshots == ()
    await first.close()
    await second.close()


async def test_a_snapshot_is_due_by_bytes_or_by_time_but_not_without_news() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    assert not store.snapshot_due
    await append_lines(store, b"a")
    assert not store.snapshot_due
    keeper = store._keeper  # type: ignore[attr-defined]
    keeper._config = StoreConfig(snapshot_bytes=1)
    assert store.snapshot_due
    await store.save_snapshot(b"a")
    assert not store.snapshot_due
    keeper._config = StoreConfig(snapshot_every=0.0)
    assert not store.snapshot_due
    await append_lines(store, b"b")
    assert store.snapshot_due
    await store.close()


async def test_frames_read_at_the_start_count_towards_the_next_snapshot() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    await append_lines(store, b"a" * 1000)
    await store.close()
    store, opened = await memory(server)
    await replay(opened)
    assert store.stats().since_snapshot_bytes >= 1000
    await store.close()


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES])
async def test_a_state_of_any_size_comes_back(size: int) -> None:
    state = random.Random(size).randbytes(size)
    server = MemoryServer()
    store, _ = await memory(server)
    await append_lines(store, b"a")
    await store.save_snapshot(state)
    await store.close()
    assert max(len(chunk) for chunk in server.chunks.values()) <= 1024 * 1024
    _, opened = await memory(server)
    assert opened.snapshot == state


def test_a_chunk_shrinks_where_it_can() -> None:
    noise, plain = random.Random(1).randbytes(1000), bytes(1000)
    assert (encode_chunk(noise, 0, 1)[5], encode_chunk(plain, 0, 1)[5]) == (RAW, ZLIB)
    assert decode_chunk(encode_chunk(plain, 0, 1), 0, 1, "s") == plain


def test_every_flipped_byte_and_every_cut_of_a_chunk_is_noticed() -> None:
    data = encode_chunk(b"state " * 20, 0, 1)
    for index in range(len(data)):
        with pytest.raises(JournalCorrupt):
            decode_chunk(data[:index] + bytes([data[index] ^ 0x10]) + data[index + 1 :], 0, 1, "s")
        with pytest.raises(JournalCorrupt):
            decode_chunk(data[:index], 0, 1, "s")


def test_a_chunk_in_anothers_place_is_noticed() -> None:
    with pytest.raises(JournalCorrupt, match="is chunk 1 of 2, not 0 of 2"):
        decode_chunk(encode_chunk(bytes(2 * CHUNK_BYTES), 1, 2), 0, 2, "s")
