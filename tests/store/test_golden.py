"""Journals of older versions are read to the state that they were; of a newer version a frame is refused by name."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from hetsched.config import from_mapping
from hetsched.daemon.recover import recover, recover_prefix
from hetsched.scheduler import Scheduler, telling
from hetsched.store import MemoryServer, NewerVersion, memory_store
from hetsched.store.frame import decode
from tests.store.golden.make import Kept, busy, told

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.stem.removeprefix("journal-") for path in GOLDEN.glob("journal-*.z"))


CONFIG = from_mapping(
    {"limits": {"retention_tasks": 12}, "batch": {"size": 4}, "overcommit": {"cpu": 1.5}}, simulated=False
)
"""That of the world of the golden journals (golden/make.py)."""


def server_of(version: str) -> MemoryServer:
    data = zlib.decompress((GOLDEN / f"journal-{version}.z").read_bytes())
    kept = msgspec.msgpack.decode(data, type=Kept)
    server = MemoryServer()
    server.head = kept.head
    server.frames = [(decode(frame, where)[0], frame) for where, frame in kept.frames]
    server.chunks = {(name, index): chunk for name, index, chunk in kept.chunks}
    return server


async def read(server: MemoryServer) -> Scheduler:
    store = memory_store(server, CONFIG)
    try:
        return (await recover(CONFIG, store))[0]
    finally:
        await store.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_older_journal_is_read_to_the_state_that_it_was(version: str) -> None:
    then = msgspec.json.decode(zlib.decompress((GOLDEN / f"state-{version}.z").read_bytes()))
    with_snapshot = await read(server_of(version))
    server = server_of(version)
    assert server.head is not None
    server.head = server.head._replace(snapshots=())
    from_nothing = await read(server)
    for scheduler in (with_snapshot, from_nothing):
        scheduler.core.check()
        assert_says(msgspec.to_builtins(told(scheduler)), then, "state")
        assert Scheduler.restore(CONFIG, scheduler.snapshot()).digest() == scheduler.digest()
    assert told(with_snapshot) == told(from_nothing)


def assert_says(now: Any, then: Any, where: str) -> None:
    """All that was said then is said now; fields may have been added."""
    if isinstance(then, dict):
        for name, value in then.items():
            assert name in now, f"{where}.{name} is not said any more"
            assert_says(now[name], value, f"{where}.{name}")
    elif isinstance(then, list):
        assert len(now) == len(then), where
        for number, (a, b) in enumerate(zip(now, then, strict=True)):
            assert_says(a, b, f"{where}[{number}]")
    else:
        assert now == then, where


def test_the_first_golden_journal_says_every_kind_of_fact_that_there_was() -> None:
    kinds = {name for _, data in server_of("0.1.0").frames for name in telling.kinds(decode(data, "?")[2])}
    packed = "placed started stopping ended requeued backed_off ready held claimed unclaimed prioritised forgotten"
    words = (
        "submitted bundled node_known node_marked device_marked queue_known attempt_noted backoff_noted stop_renamed "
        "key_remembered audited counted profiles_imported measured graphed"
    )
    assert {*packed.split(), *words.split()} <= kinds


async def test_a_frame_of_a_newer_version_ends_the_prefix_by_name() -> None:
    server = server_of(VERSIONS[-1])
    position, data = server.frames[-1]
    later = data[:4] + b"\2\0" + data[6:-4]
    server.frames[-1] = position, later + crc32c(later).to_bytes(4, "little")
    store = memory_store(server, CONFIG)
    found = await recover_prefix(CONFIG, store)
    await store.close()
    assert isinstance(found.damage, NewerVersion)
    assert str(found.damage) == f"journal {position.id}, byte 4: version 2; this program reads 1"


async def test_words_that_only_a_newer_version_knows_are_refused_by_name() -> None:
    story = busy()
    server = MemoryServer()
    store = memory_store(server, CONFIG)
    await store.open()
    await store.append(story.frames[0])
    later = Scheduler(CONFIG)
    later.core.begin(2_000 * 10**9)
    later.core.words(1, msgspec.msgpack.encode([99, "something new"]))
    await store.append(later.core.take_facts())
    await store.close()
    store = memory_store(server, CONFIG)
    found = await recover_prefix(CONFIG, store)
    await store.close()
    assert isinstance(found.damage, NewerVersion) and found.damage.where == "1-2"
    assert "the hetsched that wrote it reads it" in found.damage.reason
