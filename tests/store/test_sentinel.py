"""A primary that sentinels replace: an epoch ends with it, the next begins on its successor, and one that lacks something is refused."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetsched.errors import ConfigError
from hetsched.store import open_store
from tests.store.failing_over import failovers, regress
from tests.store.helpers import config
from tests.store.sentinels import Watched

RUNS = int(os.environ.get("HETSCHED_RUNS", "30"))


@pytest.fixture
def watched(data_dir: Path) -> Iterator[Watched]:
    found = Watched(data_dir)
    try:
        found.start()
        yield found
    finally:
        found.close()


async def test_what_a_replica_had_is_on_the_next_primary(watched: Watched, data_dir: Path) -> None:
    await failovers(watched, data_dir, runs=1)


@pytest.mark.faults
@pytest.mark.timeout(3600)
async def test_thirty_primaries_die_and_nothing_confirmed_is_lost(
    watched: Watched, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = await failovers(watched, data_dir, RUNS)
    with capsys.disabled():
        print(f"\nprimary killed, replicated: {RUNS} failovers, {kept} frames confirmed, 0 lost")


async def test_a_replica_that_lacks_what_was_confirmed_is_refused_by_name(watched: Watched, data_dir: Path) -> None:
    await regress(watched, data_dir)


async def test_an_epoch_that_no_replica_knows_of_is_not_led(watched: Watched, data_dir: Path) -> None:
    """Found by killing primaries: one that was promoted without it let a second daemon open the same epoch."""
    for replica in watched.replicas:
        replica.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
    watched.primary.client.client_kill_filter(_type="replica")
    store = await open_store(watched.url, data_dir / "d", config(durability="replicated"))
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(1.0)
    assert not opening.done()
    for replica in watched.replicas:
        replica.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
    await opening
    await store.close()


@pytest.mark.faults
@pytest.mark.timeout(3600)
async def test_thirty_primaries_take_something_with_them_and_each_time_it_is_noticed(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in range(RUNS):
        (data_dir / str(run)).mkdir()
        watched = Watched(data_dir / str(run))
        try:
            watched.start()
            await regress(watched, data_dir / str(run))
        finally:
            watched.close()
    with capsys.disabled():
        print(f"\nprimary killed ahead of its replicas, fsync: {RUNS} failovers, {RUNS} refused by name")


@pytest.mark.parametrize("url", ["redis+sentinel://", "redis+sentinel://h:1", "redis+sentinel://h:1/a?colour=red"])
async def test_a_url_that_cannot_be_read_says_how_it_should_look(url: str, data_dir: Path) -> None:
    with pytest.raises(ConfigError, match="SERVICE"):
        await open_store(url, data_dir, config())
