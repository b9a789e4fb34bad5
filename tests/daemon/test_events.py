"""The ring: every event after the one named, once, in order, or `gone`."""

from __future__ import annotations

import asyncio

import pytest

from hetsched.daemon.events import EventRing
from hetsched.errors import Gone
from hetsched.scheduler.messages import Event


def event(seq: int, task: str | None = None) -> Event:
    return Event(seq=seq, t_ns=seq, event="queued", task=task)


def seqs(events: list[Event]) -> list[int]:
    return [one.seq for one in events]


def test_a_reader_gets_what_follows_in_pieces() -> None:
    ring = EventRing(100)
    ring.publish(event(seq) for seq in range(1, 8))
    assert seqs(ring.after(0, 3)) == [1, 2, 3]
    assert seqs(ring.after(3, 100)) == [4, 5, 6, 7]
    assert ring.after(7, 100) == []
    with pytest.raises(Gone, match="another journal"):
        ring.after(8, 100)


def test_what_is_no_longer_kept_is_gone() -> None:
    ring = EventRing(4)
    ring.publish(event(seq) for seq in range(1, 11))
    assert seqs(ring.after(6, 100)) == [7, 8, 9, 10]
    with pytest.raises(Gone):
        ring.after(5, 100)


def test_after_a_restart_earlier_events_are_gone_and_the_last_one_is_not() -> None:
    ring = EventRing(10, last_seq=41)
    assert ring.after(41, 10) == []
    with pytest.raises(Gone):
        ring.after(40, 10)
    ring.publish([event(42)])
    assert seqs(ring.after(41, 10)) == [42]


async def test_a_watcher_is_woken_and_a_keep_alive_is_due_otherwise() -> None:
    ring = EventRing(10)
    assert not await ring.grown(0, 0.01)
    waiting = asyncio.create_task(ring.grown(0, 5))
    await asyncio.sleep(0)
    ring.publish([event(1)])
    assert await asyncio.wait_for(waiting, 1)
    assert await ring.grown(0, 5)


async def test_a_task_watch_hears_of_its_tasks_only_and_is_forgotten_afterwards() -> None:
    ring = EventRing(10)
    with ring.watch(["a", "b"]) as watch:
        heard = asyncio.create_task(watch.changed())
        ring.publish([event(1, "c")])
        await asyncio.sleep(0.01)
        assert not heard.done()
        ring.publish([event(2, "b")])
        assert await asyncio.wait_for(heard, 1) == {"b"}
    assert not ring._watches
