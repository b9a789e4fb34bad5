"""A real cluster of six servers: an epoch ends with the primary of its slot and the next begins where the slot is served then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.errors import ConfigError
from hetsched.store import Moved, open_store
from hetsched.store.scripts import Keys
from tests.store.clustered import Cluster, Member
from tests.store.failing_over import appended_until_lost, failovers, regress
from tests.store.helpers import config, eventually, replay

RUNS = int(os.environ.get("HETSCHED_RUNS", "30"))


@pytest.fixture
def cluster(data_dir: Path) -> Iterator[Cluster]:
    found = Cluster(data_dir)
    try:
        found.start()
        yield found
    finally:
        found.close()


async def test_what_a_replica_had_is_where_the_slot_is_served_next(cluster: Cluster, data_dir: Path) -> None:
    await failovers(cluster, data_dir, runs=1)


async def test_a_replica_that_lacks_what_was_confirmed_is_refused_by_name(cluster: Cluster, data_dir: Path) -> None:
    await regress(cluster, data_dir)


async def test_a_slot_that_moves_under_appends_takes_everything_with_it(cluster: Cluster, data_dir: Path) -> None:
    """Half of its keys here and half there, nobody can append (TRYAGAIN, ASK); then it is served elsewhere (MOVED)."""
    settings = config(durability="replicated", cell="b")
    store = await open_store(cluster.url, data_dir / "d", settings)
    await store.open()
    kept: list[bytes] = []
    losing = asyncio.create_task(appended_until_lost(store, kept, 0))
    await eventually(lambda: len(kept) > 100)
    source = cluster.primary_of("b")
    other = next(member for member in cluster.members if member.is_primary and member is not source)
    await asyncio.to_thread(cluster.move, "b", other)
    await eventually(lambda: store.stats().in_flight > 0)
    before = len(kept)
    await asyncio.sleep(0.5)
    assert len(kept) <= before + 4, "what could be half here and half there is not confirmed"
    await asyncio.to_thread(cluster.moved, "b", source, other)
    assert isinstance(await losing, Moved)
    await store.close()
    again = await open_store(cluster.url, data_dir / "d", settings)
    opened = await again.open()
    there = await replay(opened)
    assert [frame for frame in there if frame in set(kept)] == kept
    assert opened.epoch == 2
    await again.append(b"goes on")
    await again.close()


async def test_each_cell_has_a_journal_of_its_own_and_one_that_dies_is_nothing_to_another(
    cluster: Cluster, data_dir: Path
) -> None:
    names = cells_apart(cluster)
    assert len({cluster.primary_of(name) for name in names}) == 3
    stores = [
        await open_store(cluster.url, data_dir / name, config(durability="replicated", cell=name)) for name in names
    ]
    for store, name in zip(stores, names, strict=True):
        await store.open()
        await store.append(name.encode())
    dead = cluster.primary_of(names[0])
    dead.kill()
    for number in range(200):
        async with asyncio.timeout(1.0):
            await stores[1].append(b"%d" % number)
            await stores[2].append(b"%d" % number)
        await asyncio.sleep(0.01)
    await asyncio.to_thread(cluster.until_replaced, dead, names[0])
    with pytest.raises(Moved):
        await stores[0].append(b"one more")
    for store in stores:
        await store.close()


async def test_any_node_that_lives_shows_the_way(cluster: Cluster, data_dir: Path) -> None:
    """The URL names one that is no primary of ours; it learns of the others, and does without it then."""
    named = next(member for member in cluster.members if not member.is_primary)
    store = await open_store(f"redis+cluster://127.0.0.1:{named.port}", data_dir / "d", config())
    await store.open()
    named.kill()
    cluster.primary.client.client_kill_filter(_type="normal", skipme=True)
    await store.append(b"without it")
    await store.close()


async def test_one_server_of_a_cluster_is_not_taken_for_all_of_it(cluster: Cluster, data_dir: Path) -> None:
    other = next(member for member in cluster.members if member is not cluster.primary)
    store = await open_store(f"redis://127.0.0.1:{other.port}", data_dir / "d", config())
    with pytest.raises(Moved, match=r"redis\+cluster://"):
        await store.open()


async def test_a_cell_needs_a_store_that_cells_share(data_dir: Path) -> None:
    with pytest.raises(ConfigError, match="embedded server is one daemon's alone"):
        await open_store("embedded:", data_dir / "d", config(cell="a"))


@pytest.mark.faults
@pytest.mark.timeout(3600)
async def test_thirty_primaries_of_a_cluster_die_and_nothing_confirmed_is_lost(
    cluster: Cluster, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = await failovers(cluster, data_dir, RUNS)
    with capsys.disabled():
        print(f"\nprimary of a cluster killed, replicated: {RUNS} failovers, {kept} frames confirmed, 0 lost")


@pytest.mark.faults
@pytest.mark.timeout(3600)
async def test_thirty_primaries_of_a_cluster_take_something_with_them_and_each_time_it_is_noticed(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in range(RUNS):
        (data_dir / str(run)).mkdir()
        cluster = Cluster(data_dir / str(run))
        try:
            cluster.start()
            await regress(cluster, data_dir / str(run))
        finally:
            cluster.close()
    with capsys.disabled():
        print(f"\nprimary of a cluster killed ahead of its replica, fsync: {RUNS} failovers, {RUNS} refused by name")


def cells_apart(cluster: Cluster) -> list[str]:
    """Names of three cells that three primaries serve."""
    found: dict[Member, str] = {}
    for number in range(1000):
        found.setdefault(cluster.primary_of(f"cell{number}"), f"cell{number}")
        if len(found) == 3:
            return list(found.values())
    raise AssertionError("three primaries, and no names for them")


def test_all_keys_of_a_cell_lie_in_one_slot() -> None:
    from redis.crc import key_slot

    keys = Keys("a")
    found = {
        key_slot(key.encode()) for key in (keys.head, keys.journal, keys.leader, keys.standbys, keys.chunk("1", 2))
    }
    assert len(found) == 1
