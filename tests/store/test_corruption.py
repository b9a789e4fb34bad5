"""Whatever a disk does to a journal, a start gets an exact prefix of it or a refusal that names the place: never silence, never a traceback.

The journal is a real one: frames and a snapshot of a small world. Every bit of every frame and chunk is flipped, every cut and every zeroing
is made; and the same is done to the file of a real server, of which a few offsets are tried by default and all under `faults`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hetsched.daemon.recover import recover_prefix
from hetsched.errors import ConfigError, StoreLost
from hetsched.scheduler import Scheduler
from hetsched.store import (
    FileDamaged,
    IdentityMismatch,
    JournalCorrupt,
    MemoryServer,
    Regressed,
    memory_store,
    open_store,
)
from hetsched.store.aof import FOLDER
from tests.scheduler.build import Story, node, task
from tests.store.helpers import config, memory, opened_store


class World(NamedTuple):
    """A server, and the digest of the state after each frame, by sequence."""

    server: MemoryServer
    digests: dict[int, int]


def story() -> Story:
    """Six frames in which something of every kind happens."""
    world = Story([node("a", gpus=1)])
    world.submit(task("first", resources={"gpu": 1}, queue="q"))
    world.submit(task("second", retries=1))
    world.wait(1)
    world.end("second", ok=False, reason="exit 1")
    return world


async def written(*, snapshot_after: tuple[int, ...] = ()) -> World:
    told = story()
    server = MemoryServer()
    store, _ = await memory(server)
    scheduler = Scheduler.restore(told.config, None)
    digests = {0: scheduler.digest()}
    for seq, facts in enumerate(told.frames, 1):
        await store.append(facts)
        scheduler.apply(facts)
        digests[seq] = scheduler.digest()
        if seq in snapshot_after:
            await store.save_snapshot(scheduler.snapshot())
    await store.close()
    return World(server, digests)


def damages(data: bytes) -> Iterator[bytes]:
    """Every flip of a bit, every cut, every zeroing of a byte and of the rest."""
    for at, byte in enumerate(data):
        for bit in range(8):
            yield data[:at] + bytes([byte ^ 1 << bit]) + data[at + 1 :]
        yield data[:at]
        yield data[:at] + bytes(len(data) - at)
        yield data[:at] + b"\0" + data[at + 1 :]


async def found(server: MemoryServer) -> tuple[int, JournalCorrupt | None]:
    """What a start makes of it: the digest of the state, and what is wrong."""
    store = memory_store(server, config())
    try:
        recovered = await recover_prefix(config(), store)
    finally:
        await store.close()
    return recovered.scheduler.digest(), recovered.damage


async def hold_frame(world: World, index: int, damaged: bytes) -> None:
    """That frame is named, and the state is that of the frames before it."""
    server = MemoryServer()
    server.head, server.chunks = world.server.head, world.server.chunks
    server.frames = list(world.server.frames)
    position, data = server.frames[index]
    server.frames[index] = position, damaged
    digest, damage = await found(server)
    if damaged == data:
        assert damage is None and digest == world.digests[max(world.digests)]
        return
    assert damage is not None, "silence"
    assert damage.where == position.id and damage.reason
    assert digest == world.digests[position.seq - 1]


async def hold_chunk(world: World, key: tuple[str, int], damaged: bytes) -> None:
    """A longer replay, and the same state."""
    server = MemoryServer()
    server.head, server.frames = world.server.head, list(world.server.frames)
    server.chunks = {**world.server.chunks, key: damaged}
    assert await found(server) == (world.digests[max(world.digests)], None)


SLICE, WHOLE = 41, 1
"""Every so many of the damages; 41 shares no divisor with the eleven kinds at an offset, so each kind comes at many places."""

exhaustive = pytest.mark.parametrize(
    "step", [SLICE, pytest.param(WHOLE, marks=[pytest.mark.faults, pytest.mark.timeout(1800)])]
)


@exhaustive
async def test_every_damage_to_every_frame_gives_the_exact_prefix_and_names_the_frame(step: int) -> None:
    world = await written()
    tried = 0
    for index, (_, data) in enumerate(world.server.frames):
        for damaged in itertools.islice(damages(data), index % step, None, step):
            await hold_frame(world, index, damaged)
            tried += 1
    assert tried > 11 * sum(len(data) for _, data in world.server.frames) // (step + 1)


@exhaustive
async def test_every_damage_to_a_snapshot_costs_a_longer_replay_and_nothing_else(step: int) -> None:
    world = await written(snapshot_after=(2, 4))
    assert world.server.head is not None
    newest, previous = world.server.head.snapshots
    for manifest in (newest, previous):
        key = (manifest.name, 0)
        for damaged in itertools.islice(damages(world.server.chunks[key]), 0, None, 5 * step):
            await hold_chunk(world, key, damaged)


async def test_two_damaged_snapshots_are_a_refusal_by_name() -> None:
    world = await written(snapshot_after=(2, 4))
    server = world.server
    for key, data in server.chunks.items():
        server.chunks[key] = data[:-1]
    with pytest.raises(JournalCorrupt, match=r"snapshot 1\.1@1-4, chunk 0, byte \d+: .*the snapshot before it is lost"):
        await found(server)


@pytest.mark.parametrize("missing", range(6))
async def test_a_missing_frame_is_a_gap_that_is_named(missing: int) -> None:
    world = await written()
    last = len(world.server.frames) - 1
    position, _ = world.server.frames.pop(min(missing, last))
    digest, damage = await found(world.server)
    assert damage is not None and digest == world.digests[position.seq - 1]
    assert ("frames in between are missing" in damage.reason) or ("the journal ends at" in damage.reason)


# ---------------------------------------------------------------------- the file of a real server

LINES = [b"frame %d" % number for number in range(8)]


async def left(data_dir: Path) -> None:
    """What a daemon left that was stopped: six frames, and snapshots of the first two and the first four."""
    async with opened_store("embedded:", data_dir) as (store, _):
        for number, line in enumerate(LINES[:6], 1):
            await store.append(line)
            if number in (2, 4):
                await store.save_snapshot(b"\n".join(LINES[:number]))


async def read_back(data_dir: Path) -> tuple[list[bytes], Exception | None]:
    """All lines that come before the end, or before a refusal, and the refusal."""
    lines: list[bytes] = []
    try:
        store = await open_store("embedded:", data_dir, config())
        try:
            opened = await store.open()
            lines = (opened.snapshot or b"").splitlines()
            async for line in opened.frames:
                lines.append(line)
        finally:
            await store.close()
    except (StoreLost, ConfigError) as refusal:
        return lines, refusal
    return lines, None


async def rewritten(data_dir: Path) -> None:
    """The server's files written anew, and one more frame behind that."""
    async with opened_store("embedded:", data_dir) as (store, opened):
        _ = [frame async for frame in opened.frames]
        await store.append(LINES[6])
        backend = store._backend  # type: ignore[attr-defined]
        await backend._do("BGREWRITEAOF")
        while (await backend._do("INFO", "persistence"))["aof_rewrite_in_progress"]:
            await asyncio.sleep(0.01)
        await store.append(LINES[7])


async def hold_file(left: Path, work: Path, name: str, damaged: bytes | None, what: str) -> None:
    """`damaged` None: the file is gone."""
    shutil.copytree(left, work, ignore=shutil.ignore_patterns("*.sock"))
    try:
        file = work / "valkey" / FOLDER / name
        file.unlink() if damaged is None else file.write_bytes(damaged)
        before = {path: path.read_bytes() for path in file.parent.iterdir()}
        lines, refusal = await read_back(work)
        assert lines == LINES[: len(lines)], f"{what}: no prefix"
        assert refusal is not None or lines == LINES, f"{what}: silence"
        if refusal is not None:
            assert isinstance(refusal, JournalCorrupt | Regressed | IdentityMismatch), (
                f"{what}: {refusal!r} is no finding"
            )
            kept = {path: path.read_bytes() for path in file.parent.iterdir()}
            if isinstance(refusal, FileDamaged) and "incr" not in name:
                assert kept == before, f"{what}: found before the server was started, and not left as it was"
    finally:
        shutil.rmtree(work)


async def hold_manifest(left: Path, work: Path, name: str, data: bytes, tries: int | None) -> None:
    """Every bit and every cut; by default one in sixty, and those that were once taken for a manifest (each starts a store)."""
    ways = [(f"bit {at % 8} of byte {at // 8} flipped", _flipped(data, at)) for at in range(8 * len(data))]
    ways += [(f"cut at byte {at}", data[:at]) for at in range(len(data))]
    ways += [("type i is type h", data.replace(b"type i", b"type h")), ("seq 0", re.sub(rb"seq \d+", b"seq 0", data))]
    for number, (kind, damaged) in enumerate(ways):
        if tries is None or number % 60 == 0 or number >= len(ways) - 2 or damaged.endswith(b"type b\n"):
            await hold_file(left, work, name, damaged, f"{name}: {kind}")


def _flipped(data: bytes, at: int) -> bytes:
    return data[: at // 8] + bytes([data[at // 8] ^ 1 << at % 8]) + data[at // 8 + 1 :]


@pytest.mark.parametrize("tries", [24, pytest.param(None, marks=[pytest.mark.faults, pytest.mark.timeout(3600)])])
async def test_whatever_happens_to_the_servers_files_is_a_prefix_or_a_refusal(
    data_dir: Path, tries: int | None
) -> None:
    await left(data_dir / "left")
    await rewritten(data_dir / "left")
    dice = random.Random(5)
    files = {path.name: path.read_bytes() for path in sorted((data_dir / "left" / "valkey" / FOLDER).iterdir())}
    assert {name.partition(".aof.")[2].lstrip("0123456789.") for name in files} == {"base.aof", "incr.aof", "manifest"}
    for name, data in files.items():
        await hold_file(data_dir / "left", data_dir / "work", name, None, f"{name} is gone")
        if name.endswith(".manifest"):
            await hold_manifest(data_dir / "left", data_dir / "work", name, data, tries)
            continue
        places = range(len(data)) if tries is None else sorted(dice.sample(range(len(data)), tries // 3))
        for number, at in enumerate(places):
            bit = dice.randrange(8)
            kind, damaged = [
                (f"bit {bit} of byte {at} flipped", data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]),
                (f"cut at byte {at}", data[:at]),
                (f"zeroes from byte {at}", data[:at] + bytes(len(data) - at)),
                (f"byte {at} zeroed", data[:at] + b"\0" + data[at + 1 :]),
            ][0 if number % 2 == 0 else dice.randrange(1, 4)]
            await hold_file(data_dir / "left", data_dir / "work", name, damaged, f"{name}: {kind}")
            await asyncio.sleep(0)
