"""A head that is lost or spoilt is written anew, from what is there: the same state comes back, and never less than was confirmed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hetsched.errors import Conflict, NotFound
from hetsched.store import open_archive, scripts
from hetsched.store.backend import Head
from hetsched.store.base import HeadDamaged
from hetsched.store.identity import Identity
from hetsched.store.rehead import mend_head, plan_head
from tests.store.helpers import Server, config, everything, opened_store

KEY = scripts.WHOLE.head
Spoil = Callable[[Server], Awaitable[object]]
WAYS: dict[str, Spoil] = {
    "lost": lambda server: server.client.delete(KEY),
    "no number": lambda server: server.client.hset(KEY, "seq", "many"),
    "no epoch": lambda server: server.client.hdel(KEY, "epoch"),
    "spoilt snapshots": lambda server: server.client.hset(KEY, "snapshots", "[{"),
    "no text": lambda server: server.client.hset(KEY, "cluster", b"\xff\xfe"),
}


async def journal(server: Server, data_dir: Path, snapshots: int) -> list[bytes]:
    """Three snapshots' worth of frames; what a daemon would know."""
    async with opened_store(server.url, data_dir, snapshot_every=3600) as (store, _):
        for number in range(9):
            await store.append(b"frame %d" % number)
            if number % 3 == 1 and number // 3 < snapshots:
                await store.save_snapshot(b"state %d" % number)
    async with opened_store(server.url, data_dir) as (_, opened):
        return await everything(opened)


async def mended(server: Server, data_dir: Path) -> Head:
    identity = Identity(data_dir / "identity.json", server.url)
    async with open_archive(server.url, data_dir, config()) as archive:
        head, _ = await plan_head(archive, identity)
        await mend_head(archive, head, identity)
    return head


async def gone(server: Server) -> None:
    """The last leader's lease is over."""
    await server.client.delete(scripts.WHOLE.leader)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("snapshots", [0, 1, 3])
async def test_whatever_became_of_the_head_the_same_state_comes_back(
    server: Server, data_dir: Path, way: str, snapshots: int
) -> None:
    before = await journal(server, data_dir, snapshots)
    epoch = int(await server.client.hget(KEY, "epoch"))
    await WAYS[way](server)
    await gone(server)
    with pytest.raises(HeadDamaged):
        async with opened_store(server.url, data_dir):
            pass
    await gone(server)
    head = await mended(server, data_dir)
    assert head.epoch > epoch and len(head.snapshots) == min(snapshots, 2)
    async with opened_store(server.url, data_dir) as (store, opened):
        assert await everything(opened) == before and opened.epoch > head.epoch
        await store.append(b"and on it goes")


async def test_less_than_was_confirmed_is_not_made_a_journal_of(server: Server, data_dir: Path) -> None:
    await journal(server, data_dir, 0)
    last = (await server.client.xrevrange(scripts.WHOLE.journal, count=1))[0][0]
    await server.client.xdel(scripts.WHOLE.journal, last)
    await server.client.delete(KEY)
    await gone(server)
    with pytest.raises(Conflict, match="was confirmed"):
        await mended(server, data_dir)
    assert not await server.client.exists(KEY)


async def test_a_journal_without_its_beginning_is_not_made_one_of(server: Server, data_dir: Path) -> None:
    await journal(server, data_dir, 3)
    for key in await server.client.keys("*snapshot*"):
        await server.client.set(key, b"nothing")
    await server.client.delete(KEY)
    await gone(server)
    with pytest.raises(Conflict, match="begins in its middle"):
        await mended(server, data_dir)


async def test_a_snapshot_that_is_spoilt_is_left_out(server: Server, data_dir: Path) -> None:
    before = await journal(server, data_dir, 3)
    keys = sorted(await server.client.keys("*snapshot*"))
    newest = max(keys, key=lambda key: int(key.decode().rpartition("-")[2].split(":")[0]))
    await server.client.set(newest, b"nothing")
    await server.client.delete(KEY)
    await gone(server)
    head = await mended(server, data_dir)
    assert len(head.snapshots) == 1
    async with opened_store(server.url, data_dir) as (_, opened):
        known = await everything(opened)
    assert known[-1] == before[-1] and len(known) > len(before), "from the older snapshot, and more frames after it"


async def test_what_is_whole_is_let_be_and_what_is_led_too(server: Server, data_dir: Path) -> None:
    await journal(server, data_dir, 1)
    with pytest.raises(Conflict, match="nothing has to be mended"):
        await mended(server, data_dir)
    await server.client.delete(KEY)
    with pytest.raises(Conflict, match="a daemon leads"):
        await mended(server, data_dir)
    await gone(server)
    (data_dir / "identity.json").unlink()
    with pytest.raises(Conflict, match="--data"):
        await mended(server, data_dir)
    await server.client.flushall()
    with pytest.raises((Conflict, NotFound)):
        await mended(server, data_dir)
