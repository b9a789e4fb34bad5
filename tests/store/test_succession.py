"""One leads, the others follow: who may open an epoch, how a standby reads, and what a leader knows of its own lease."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hetsched.errors import Deposed
from hetsched.store import Follower, IdentityMismatch, Leader, Led, Outrun, Store, open_store, scripts
from hetsched.store.succession import Vigil, now_ns
from tests.store.helpers import Server, config, eventually, opened_store, replay


async def store_at(server: Server, directory: Path, **settings: object) -> Store:
    return await open_store(
        server.url, directory, config(**settings), name=directory.name, address="http://" + directory.name
    )


async def news(follower: Follower) -> list[bytes]:
    return [payload for _, payload in await follower.more()]


async def test_while_a_leader_lives_nobody_else_opens_an_epoch(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "a", lease=1.0) as (first, _):
        second = await store_at(server, data_dir / "b")
        for _ in range(5):
            with pytest.raises(Led):
                await second.open()
            await asyncio.sleep(0.3)
        assert first.leads
        await first.append(b"still")
        await second.close()


async def test_a_standby_reads_what_is_appended_and_goes_on_from_there(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "a", lease=60) as (first, _):
        await first.append(b"1")
        await first.save_snapshot(b"state")
        await first.append(b"2")
        second = await store_at(server, data_dir / "b")
        follower = await second.follow()
        assert (await follower.begin(), await news(follower), await news(follower)) == (b"state", [b"2"], [])
        await first.append(b"3")
        assert await news(follower) == [b"3"]
        assert (await second.attend(follower.at)) is not None
        await first.append(b"4")
        await server.client.delete(scripts.WHOLE.leader)
        assert await second.attend(follower.at) is None
        opened = await second.open(follower)
        assert (opened.epoch, opened.snapshot, await replay(opened)) == (2, None, [b"4"])
        with pytest.raises(Deposed):
            await first.append(b"5")
        await second.append(b"6")
        await second.save_snapshot(b"state 2")
        await second.close()
    async with opened_store(server.url, data_dir / "b") as (_, opened):
        assert (opened.snapshot, await replay(opened)) == (b"state 2", [])


async def test_a_dead_leaders_own_successor_waits_for_nothing(server: Server, data_dir: Path) -> None:
    """Its data directory was locked, so whoever wrote the record is gone."""
    async with opened_store(server.url, data_dir / "a"):
        pass
    assert await server.client.exists(scripts.WHOLE.leader)
    async with opened_store(server.url, data_dir / "a") as (_, opened):
        assert opened.epoch == 2


async def test_the_place_is_passed_on_by_name(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "a") as (first, _):
        others = [await store_at(server, data_dir / name) for name in ("b", "c")]
        followers = [await other.follow() for other in others]
        for other, follower in zip(others, followers, strict=True):
            await follower.begin()
            await other.attend(follower.at)
        await eventually(lambda: len(first.standbys()) == 2)
        (chosen,) = (standby for standby in first.standbys() if standby.name == "c")
        await first.append(b"last")
        await first.hand_over(chosen)
        assert not first.leads
        with pytest.raises(Led):
            await others[0].open(followers[0])
        opened = await others[1].open(followers[1])
        assert await replay(opened) == [b"last"]
        await eventually(others[1].standbys)
        assert [standby.name for standby in others[1].standbys()] == ["b"], "not itself, who was one a moment ago"
        for other in others:
            await other.close()


async def test_a_standby_that_was_outrun_says_so(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "a") as (first, _):
        second = await store_at(server, data_dir / "b")
        follower = await second.follow()
        assert await follower.begin() is None
        for number in range(3):
            await first.append(b"%d" % number)
            await first.save_snapshot(b"state %d" % number)
        with pytest.raises(Outrun):
            await follower.more()
        assert await follower.begin() == b"state 2"
        await second.close()


async def test_a_store_that_lost_what_a_standby_has_read_is_not_led(server: Server, data_dir: Path) -> None:
    async with opened_store(server.url, data_dir / "a") as (first, _):
        second = await store_at(server, data_dir / "b")
        follower = await second.follow()
        await first.append(b"1")
        await first.append(b"2")
        assert await follower.begin() is None and await news(follower) == [b"1", b"2"]
    await server.client.delete(scripts.WHOLE.leader)
    await server.client.hset(scripts.WHOLE.head, mapping={"seq": 1})
    await server.client.xdel(scripts.WHOLE.journal, "1-2")
    with pytest.raises(IdentityMismatch, match="ends at"):
        await second.open(follower)


async def test_a_leader_that_cannot_renew_stops_by_its_own_clock_and_goes_on_if_nobody_came(
    server: Server, data_dir: Path
) -> None:
    async with opened_store(server.url, data_dir / "a", lease=0.4) as (store, _):
        await server.client.client_pause(900)
        await eventually(lambda: not store.leads)
        assert "another daemon may lead" in store.refusal()
        await eventually(lambda: store.leads)
        await store.append(b"on it goes")


async def test_a_server_whose_clock_goes_back_keeps_no_dead_leader_in_office(server: Server, data_dir: Path) -> None:
    """The record's time to live is then a day; that nobody renews it a standby sees by its own clock, and a leader that does is let be."""
    async with opened_store(server.url, data_dir / "a", lease=0.4) as (first, _):
        second = await store_at(server, data_dir / "b", lease=0.4)
        follower = await second.follow()
        await follower.begin()
        for _ in range(40):
            await server.client.pexpire(scripts.WHOLE.leader, 86_400_000)
            assert await second.attend(follower.at) is not None
            await asyncio.sleep(0.02)
        await first.append(b"still")
    await server.client.pexpire(scripts.WHOLE.leader, 86_400_000)

    async def is_free() -> bool:
        return await second.attend(follower.at) is None

    began_s = asyncio.get_running_loop().time()
    while not await is_free():
        await asyncio.sleep(0.02)
    assert 0.3 < asyncio.get_running_loop().time() - began_s < 5.0
    assert (await second.open(follower)).epoch == 2
    await second.append(b"goes on")
    await second.close()


def test_a_leader_is_dead_when_nothing_was_renewed_while_one_looked() -> None:
    vigil, leader = Vigil(4.0), Leader("a", "a", "http://a", 7)
    assert not any(vigil.is_dead(leader._replace(renewals=number), float(number)) for number in range(100))
    assert not vigil.is_dead(leader, 100.0)
    assert not vigil.is_dead(leader, 1000.0), "nobody could look meanwhile"
    assert [vigil.is_dead(leader, 1000.0 + second) for second in range(1, 6)] == [False, False, False, False, True]
    unknown = leader._replace(renewals=None)
    assert not any(vigil.is_dead(unknown, 2000.0 + second) for second in range(100)), "an older hetsched does not count"


async def test_a_leader_with_a_long_lease_does_not_take_itself_for_hung(
    server: Server, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by simulation (calm, seed 6003): it looked at its loop once in a quarter of the lease, which was more seldom than it forgave, and
    renewed nothing, for good."""
    hung_s = 2.0
    monkeypatch.setattr("hetsched.store.succession.HUNG_S", hung_s)
    async with opened_store(server.url, data_dir / "a", lease=16.0) as (first, _):
        tenure = first._tenure  # type: ignore[attr-defined]
        for _ in range(40):
            await asyncio.sleep(0.1)
            assert now_ns() - tenure._turned_ns < hung_s * 1e9
        assert first.leads
