"""Order of submission and no backfill: the plain rules, to compare with."""

from __future__ import annotations

from hetsched import _core

from .test_backfill import Room


def test_in_order_of_submission_neither_priority_nor_queue_counts() -> None:
    room = Room()
    room.world.do("set_order", _core.ORDER_FIFO)
    other = room.world.do("add_queue", _core.NONE, 9)
    busy = room.running(8, 100)
    first = room.task(8, 10)
    second = room.task(8, 10, priority=900)
    third = room.task(8, 10, queue=other)
    got = []
    for ended in (busy, first, second):
        room.core.ended(ended, _core.SUCCEEDED, 0)
        room.after(1)
        room.world.place()
        got.append(next(task for task in (first, second, third) if task not in got and has_room(room, task)))
    assert got == [first, second, third]


def test_without_backfill_nobody_passes_a_blocked_head_of_any_level() -> None:
    room = Room()
    room.world.do("set_backfill", False)
    room.running(4, 100)
    room.task(8, 10)
    assert not room.is_placed(room.task(1, 5))
    assert not room.is_placed(room.task(1, 5, qos=2))
    assert room.is_placed(room.task(1, 5, priority=5))


def test_without_backfill_who_can_never_fit_is_waited_for_by_nobody() -> None:
    room = Room()
    room.world.do("set_backfill", False)
    room.running(4, 0)
    never = room.world.task("never", room.world.shape(gpus=9))
    assert room.is_placed(room.task(1, 0))
    assert room.world.where(never) is None


def test_a_gang_too_is_waited_for() -> None:
    room = Room(nodes=2)
    room.world.do("set_backfill", False)
    room.running(4, 100)
    gang = room.world.do("add_gang", 2, 2, -1)
    room.task(8, 10, gang=gang), room.task(8, 10, gang=gang)
    assert not room.is_placed(room.task(1, 5))


def has_room(room: Room, task: int) -> bool:
    return room.world.where(task) is not None
