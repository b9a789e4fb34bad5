"""The append lane: confirmed means kept, once and in order, whatever happens on the way."""

from __future__ import annotations

import asyncio

import pytest

from hetsched.errors import Deposed, StoreLost
from hetsched.store import JournalCorrupt, MemoryServer
from hetsched.store.appender import WINDOW
from hetsched.store.frame import Frame
from hetsched.store.memory import MemoryLink
from tests.store.helpers import eventually, memory, replay


async def test_what_is_appended_comes_back_in_order() -> None:
    server = MemoryServer()
    store, opened = await memory(server)
    assert (opened.epoch, opened.snapshot, await replay(opened)) == (1, None, [])
    for payload in (b"a", b"b", b"c"):
        await store.append(payload)
    await store.close()
    _, again = await memory(server)
    assert (again.epoch, await replay(again)) == (2, [b"a", b"b", b"c"])


async def test_futures_resolve_in_order_and_at_most_four_frames_are_unanswered() -> None:
    server, most = MemoryServer(), 0
    store, _ = await memory(server)
    server.faults.delay_s = 0.001
    order: list[int] = []
    for number in range(20):
        future = store.append(b"%d" % number)
        future.add_done_callback(lambda _, number=number: order.append(number))
    while len(order) < 20:
        most = max(most, len(server.frames) - len(order))
        await asyncio.sleep(0)
    assert order == list(range(20))
    assert most <= WINDOW
    await store.close()


async def test_a_lost_answer_is_asked_for_again_and_the_frame_is_kept_once() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    server.faults.lost_answers = 3
    await asyncio.gather(*(store.append(b"%d" % number) for number in range(8)))
    assert store.stats().resent_total >= 1
    await store.close()
    _, again = await memory(server)
    assert await replay(again) == [b"%d" % number for number in range(8)]


async def test_a_frame_lost_on_the_way_is_sent_again_before_those_behind_it() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    server.faults.lost_frames = 2
    await asyncio.gather(*(store.append(b"%d" % number) for number in range(8)))
    await store.close()
    _, again = await memory(server)
    assert await replay(again) == [b"%d" % number for number in range(8)]


async def test_a_full_server_stops_admission_and_the_frame_waits_until_there_is_room() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    server.faults.refusal = "OOM command not allowed"
    waiting = store.append(b"ended t1")
    await eventually(lambda: not store.stats().admit)
    assert "OOM" in store.stats().reason
    assert not waiting.done()
    server.faults.refusal = ""
    await waiting
    assert store.stats().admit
    await store.close()


async def test_a_silent_server_is_waited_for() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    server.faults.unreachable = True
    waiting = store.append(b"a")
    await asyncio.sleep(0.03)
    assert not waiting.done()
    assert not store.stats().connected
    server.faults.unreachable = False
    await waiting
    await store.close()


async def test_a_second_opener_deposes_the_first() -> None:
    server = MemoryServer()
    first, _ = await memory(server)
    await first.append(b"a")
    second, opened = await memory(server)
    assert (opened.epoch, await replay(opened)) == (2, [b"a"])
    with pytest.raises(Deposed):
        await first.append(b"b")
    assert isinstance(await first.failed, Deposed)
    with pytest.raises(Deposed):
        await first.append(b"c")
    await second.append(b"d")
    await first.close()
    await second.close()
    _, again = await memory(server)
    assert await replay(again) == [b"a", b"d"]


async def test_an_idle_leader_notices_that_it_was_deposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.store.journal.HEALTH_EVERY_S", 0.01)
    server = MemoryServer()
    first, _ = await memory(server)
    second, _ = await memory(server)
    assert isinstance(await asyncio.wait_for(first.failed, 5), Deposed)
    await first.close()
    await second.close()


async def test_a_frame_confirmed_to_the_server_before_the_deposition_counts_as_kept() -> None:
    server = MemoryServer()
    first, _ = await memory(server)
    server.faults.lost_answers = 1
    waiting = first.append(b"a")
    await eventually(lambda: len(server.frames) == 1)
    second, opened = await memory(server)
    await waiting
    assert await replay(opened) == [b"a"]
    await first.close()
    await second.close()


async def test_a_server_that_comes_back_empty_is_a_lost_store_and_not_a_new_one() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    await store.append(b"a")
    server.wipe()
    with pytest.raises(StoreLost, match="empty"):
        await store.append(b"b")
    assert isinstance(store.failed.result(), StoreLost)
    await store.close()


async def test_a_server_that_forgot_confirmed_frames_is_a_lost_store() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    await store.append(b"a")
    before = server.head
    await store.append(b"b")
    server.head = before
    server.frames.pop()
    with pytest.raises(StoreLost, match="lacks frames"):
        await store.append(b"c")
    await store.close()


async def test_closing_lets_what_is_in_flight_arrive() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    server.faults.delay_s = 0.01
    waiting = [store.append(b"%d" % number) for number in range(6)]
    await store.close()
    assert all(future.done() and future.exception() is None for future in waiting)
    with pytest.raises(StoreLost, match="closed"):
        await store.append(b"late")


async def test_a_caller_that_gave_up_waiting_harms_nobody() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    store.append(b"a").cancel()
    await store.append(b"b")
    await store.close()
    _, again = await memory(server)
    assert await replay(again) == [b"a", b"b"]


async def test_a_missing_frame_refuses_the_start_by_name() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    for payload in (b"a", b"b", b"c"):
        await store.append(payload)
    await store.close()
    del server.frames[1]
    _, again = await memory(server)
    with pytest.raises(JournalCorrupt, match="journal 1-3, byte 16: follows 1-1"):
        await replay(again)


async def test_a_missing_end_refuses_the_start_by_name() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    for payload in (b"a", b"b"):
        await store.append(payload)
    await store.close()
    server.frames.pop()
    _, again = await memory(server)
    with pytest.raises(JournalCorrupt, match="the journal ends at 1-1"):
        await replay(again)


async def test_every_frame_that_another_process_sends_under_our_number_is_told_apart() -> None:
    server = MemoryServer()
    store, _ = await memory(server)
    await store.append(b"a")
    link = MemoryLink(server)
    position, data = server.frames[0]
    await link.send(Frame(position, data))
    await link.send(Frame(position, data[:-1] + b"?"))
    assert [(await link.receive()).answer, (await link.receive()).answer] == ["DUPLICATE", "MISMATCH"]
    await store.close()
