"""EASY backfill: the first blocked head has a reservation, and who goes after it may not delay it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hetsched import _core
from hetsched._core import Core

from .world import BACKGROUND, CRITICAL, PRODUCTION, World

SECOND_NS = 10**9


class Room:
    """Nodes of 8 GPUs; tasks are told how long they take, in seconds, 0 = nobody knows."""

    def __init__(self, nodes: int = 1) -> None:
        self.world = World()
        self.core = self.world.core
        for _ in range(nodes):
            self.world.node(gpus=8)
        self.shapes = {gpus: self.world.shape(gpus=gpus) for gpus in (1, 2, 4, 8)}
        self.templates: dict[int, int] = {}
        self.count = 0

    def task(self, gpus: int, run_s: int, **named: int) -> int:
        template = self.templates.get(run_s)
        if template is None:
            template = self.templates[run_s] = len(self.templates)
            self.world.do("set_template", template, said_ns=run_s * SECOND_NS)
        self.count += 1
        return self.world.task(f"task-{self.count}", self.shapes[gpus], template=template, **named)

    def running(self, gpus: int, run_s: int, **named: int) -> int:
        task = self.task(gpus, run_s, **named)
        self.world.place()
        assert self.is_placed(task)
        self.world.run(task)
        return task

    def after(self, seconds: float) -> None:
        self.world.tick(round(seconds * SECOND_NS))

    def is_placed(self, *tasks: int) -> bool:
        self.world.place()
        return all(self.world.where(task) is not None for task in tasks)

    def start_s(self) -> float | None:
        found = self.core.reservation()
        return None if found is None else (found[1] - self.world.now_ns) / SECOND_NS


def test_a_short_task_passes_the_big_one_and_a_long_one_does_not() -> None:
    room = Room()
    room.running(4, 100)
    whale = room.task(8, 10)
    long, short = room.task(4, 101), room.task(4, 100)
    assert room.is_placed(short)
    assert not room.is_placed(whale) and not room.is_placed(long)
    assert room.start_s() == 100
    assert room.core.reservation() == (whale, room.world.now_ns + 100 * SECOND_NS, ((whale, 0),))


def test_a_short_task_is_found_behind_a_long_one_of_its_shape() -> None:
    room = Room()
    room.running(4, 100)
    room.task(8, 10)
    room.after(50)
    long, short = room.task(1, 60), room.task(1, 40)
    assert room.is_placed(short)
    assert not room.is_placed(long)


def test_a_long_task_may_stay_beside_the_big_one_if_there_is_room() -> None:
    room = Room()
    room.running(4, 1000)
    room.running(4, 100)
    four = room.task(4, 10)
    room.after(1)
    assert not room.is_placed(four) and room.core.reservation() is None  # nobody behind it
    room = Room(nodes=2)
    room.running(8, 50)
    room.running(4, 100), room.running(2, 1000)
    blocked = room.task(4, 10)
    beside = room.task(2, 5000)
    assert room.is_placed(beside)  # the other node is empty at 50
    assert room.start_s() == 50 and not room.is_placed(blocked)


def test_other_nodes_are_free_to_all() -> None:
    room = Room(nodes=2)
    room.running(1, 100), room.running(8, 1000)
    room.task(8, 10)
    assert not room.is_placed(room.task(1, 500))
    room.world.node(gpus=4)
    assert room.is_placed(room.task(1, 500), room.task(1, 0))


def test_who_goes_before_the_head_is_not_held_back() -> None:
    room = Room()
    room.running(4, 100)
    room.task(8, 10)
    room.task(1, 200)
    room.world.place()
    assert room.is_placed(room.task(1, 200, priority=5), room.task(1, 200, qos=CRITICAL))


def test_a_lower_level_is_held_back_too() -> None:
    room = Room()
    room.running(4, 100)
    room.task(8, 10)
    assert not room.is_placed(room.task(1, 200, qos=BACKGROUND))
    assert room.is_placed(room.task(1, 90, qos=BACKGROUND))


LOWER = 14
"""What the batch lane decides: all levels but the most urgent."""


@pytest.mark.parametrize("is_loaded", [False, True], ids=["live", "after a load"])
@pytest.mark.parametrize("size", [1, 2], ids=["a task", "a gang"])
def test_lower_levels_that_are_decided_alone_take_nothing_that_is_kept_for_a_critical_one(
    size: int, is_loaded: bool
) -> None:
    """Whom only the reservation of the first one keeps out, a gang here, does not make it another's."""
    room = Room()
    room.running(4, 100), room.running(2, 200)
    gang = room.world.do("add_gang", size, size, -1) if size > 1 else _core.NONE
    named = {"gang": gang, "qos": CRITICAL, "template": room.templates[200]}
    head = room.world.tasks([f"head-{at}" for at in range(size)], room.shapes[8 // size], **named)
    room.after(1)
    named = {"gang": room.world.do("add_gang", 2, 2, -1), "qos": CRITICAL, "template": room.templates[200]}
    kept_out = room.world.tasks(["pair-0", "pair-1"], room.shapes[1], **named)
    room.core.decide(1)
    long, short = room.task(2, 250), room.task(1, 150)
    core = Core.load(room.core.dump()) if is_loaded else room.core
    core.begin(room.world.now_ns)
    core.decide(LOWER)
    found = core.reservation()
    assert found is not None and found[0] in head and found[1] == room.world.now_ns + 199 * SECOND_NS
    assert core.placement(short) is not None
    assert [core.placement(task) for task in (*head, *kept_out, long)] == [None] * (size + 3)


def test_who_was_set_aside_while_lower_levels_were_decided_starts_when_there_is_room() -> None:
    room = Room()
    first, second = room.running(4, 100), room.running(2, 200)
    gang = room.world.do("add_gang", 2, 2, -1)
    members = room.world.tasks(["a", "b"], room.shapes[4], gang=gang, qos=CRITICAL, template=room.templates[200])
    kept_out = room.task(2, 250, qos=CRITICAL)
    for _ in range(3):
        room.core.decide(1)
        room.core.decide(LOWER)
    room.core.ended(first, _core.SUCCEEDED, 0)
    room.core.ended(second, _core.SUCCEEDED, 0)
    room.core.decide(LOWER)
    room.core.decide(1)
    assert all(room.world.where(task) is not None for task in members)
    room.core.ended(members[0], _core.SUCCEEDED, 0)
    room.core.decide(LOWER)
    room.core.decide(1)
    assert room.world.where(kept_out) is not None


def test_unknown_run_times_never_end_and_reserve_nothing() -> None:
    room = Room()
    room.running(4, 0)
    room.task(8, 10)
    assert room.is_placed(room.task(4, 0))
    assert room.core.reservation() is None


def test_the_next_head_is_served_where_the_first_has_no_start() -> None:
    room = Room(nodes=2)
    room.running(8, 0)
    room.running(4, 0), room.running(2, 100)
    room.task(8, 10, priority=3)
    second = room.task(4, 10)
    long, short = room.task(2, 1000), room.task(2, 50)
    assert room.is_placed(short) and not room.is_placed(long)
    found = room.core.reservation()
    assert found is not None and found[0] == second and room.start_s() == 100


def test_a_task_that_takes_longer_is_expected_to_take_twice_as_long() -> None:
    room = Room()
    room.running(4, 100)
    room.task(8, 10)
    room.task(4, 500)
    room.after(150)
    room.world.place()
    assert room.start_s() == 50
    room.after(60)
    room.world.place()
    assert room.start_s() == 190


def test_a_gang_has_seats_on_several_nodes_and_keeps_them() -> None:
    room = Room(nodes=2)
    room.running(4, 100), room.running(8, 200)
    gang = room.world.do("add_gang", 3, 3, -1)
    shape = room.shapes[4]
    template = room.templates[100]
    members = room.world.tasks(["a", "b", "c"], shape, gang=gang, template=template)
    long, short = room.task(1, 250), room.task(1, 90)
    assert room.is_placed(short) and not room.is_placed(long)
    found = room.core.reservation()
    assert found is not None and found[0] in members
    assert sorted(node for _, node in found[2]) in ([0, 0, 1], [0, 1, 1])
    assert room.start_s() == 200


def test_a_head_that_can_stop_others_claims_and_reserves_nothing() -> None:
    room = Room()
    room.running(4, 100, qos=BACKGROUND, flags=_core.PREEMPTIBLE)
    whale = room.task(8, 10)
    small = room.task(1, 500)
    room.world.place()
    assert room.core.claim(whale) is not None
    assert room.core.reservation() is None and not room.is_placed(small)


def test_a_reserved_node_that_closes_gives_the_reservation_up() -> None:
    room = Room(nodes=2)
    room.running(4, 100), room.running(8, 300)
    room.task(8, 10)
    room.task(4, 500), room.task(1, 500, qos=BACKGROUND)
    room.world.place()
    assert room.start_s() == 100
    room.world.do("open_node", 0, False)
    room.world.place()
    assert room.start_s() == 300


@pytest.mark.parametrize(
    "let_go",
    (
        lambda core, whale: core.ended(whale, _core.CANCELLED, 0),
        lambda core, whale: core.hold(whale, _core.HELD_OPERATOR),
        lambda core, whale: core.set_priority(whale, -1),
    ),
    ids=("cancelled", "held", "behind the gang now"),
)
def test_a_gang_that_was_kept_out_starts_when_nothing_is_kept_any_more(let_go: Callable[[Core, int], None]) -> None:
    room = Room()
    room.running(4, 100)
    whale = room.task(8, 10)
    gang = room.world.do("add_gang", 2, 2, -1)
    members = [room.task(1, 0, gang=gang) for _ in range(2)]
    assert not room.is_placed(*members)
    assert room.start_s() == 100
    let_go(room.core, whale)
    assert room.is_placed(*members)


def test_the_reservation_is_found_again_after_a_load() -> None:
    room = Room()
    room.running(4, 100)
    room.task(8, 10)
    long = room.task(4, 500)
    assert not room.is_placed(long)
    room.world.tick()
    loaded = Core.load(room.core.dump(), checked=True)
    assert loaded.digest() == room.core.digest() == room.world.replay().digest()
    assert loaded.reservation() is None
    loaded.begin(room.world.now_ns)
    assert loaded.decide(15) == 0
    assert loaded.reservation() == room.core.reservation()
    assert loaded.task(long).qos == PRODUCTION
