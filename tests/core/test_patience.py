"""Bounded waiting: a task that would spoil the rest of a device waits for a better place, never longer than it has patience."""

from __future__ import annotations

import random

import pytest

from hetsched import _core
from hetsched._core import Core

from .world import BEST_EFFORT, CRITICAL, GPU, PRODUCTION, World

SECOND = 1_000_000_000
PATIENCE = 10 * SECOND
VALUES = [0] * 400 + [400] * 600 + [1000]  # tasks of 400 are asked for: less than that is of no use


class Scarce(World):
    """Node 0 has one GPU; node 1 is full but for 5 % of all, so little is free. A task of 700 on node 0 spoils 300."""

    def __init__(self, policy: int = _core.POLICY_PRICE, gpus: int = 20, patience_ns: int = PATIENCE) -> None:
        super().__init__(policy=policy)
        self.core.set_patience(patience_ns)
        self.core.set_prices(GPU, VALUES, {}, 0, 0)
        self.node(gpus=1)
        self.node(gpus=gpus - 1)
        self.filler = self.task("filler", self.shape(gpus=gpus - 1), qos=BEST_EFFORT, flags=_core.PREEMPTIBLE)
        assert self.place() == 1
        self.wide = self.shape(parts=1, part=700)

    def after(self, seconds: float) -> int:
        self.tick(round(seconds * SECOND))
        self.core.time_told()
        return self.place()


def test_who_would_spoil_a_device_waits_and_takes_it_when_patience_is_over() -> None:
    world = Scarce()
    task = world.task("wide", world.wide)
    until_ns = world.now_ns + PATIENCE
    assert world.place() == 0
    assert world.core.waits_until(task) == world.core.next_ns() == until_ns
    assert world.after(9.999) == 0
    assert world.after(0.001) == 1, "to the nanosecond"
    assert world.where(task) == 0
    assert world.core.waits_until(task) is None
    world.core.check()


def test_a_place_that_it_fills_ends_the_wait_at_once() -> None:
    world = Scarce()
    task = world.task("wide", world.wide)
    assert world.place() == 0
    world.task("small", world.shape(parts=1, part=250))
    assert world.after(1) == 2, "what is left then is too little to be missed"
    assert world.where(task) == 0


@pytest.mark.parametrize(
    "world",
    [Scarce(policy=_core.POLICY_PACK), Scarce(patience_ns=0), Scarce(gpus=10)],
    ids=["another preset", "no patience", "a tenth is free"],
)
def test_without_need_nobody_waits(world: Scarce) -> None:
    world.task("wide", world.wide)
    assert world.place() == 1


def test_who_fits_well_is_urgent_or_takes_whole_devices_does_not_wait() -> None:
    for shape, qos in (
        ({"parts": 1, "part": 600}, PRODUCTION),
        ({"parts": 1, "part": 700}, CRITICAL),
        ({"gpus": 1}, PRODUCTION),
    ):
        world = Scarce()
        world.task("one", world.shape(**shape), qos=qos)
        assert world.place() == 1


def test_patience_counts_from_submission_so_one_who_comes_again_does_not_wait_again() -> None:
    world = Scarce()
    world.tick(PATIENCE)
    world.task("again", world.wide, submitted_ns=world.now_ns - PATIENCE)
    assert world.place() == 1


def test_an_order_that_changes_with_time_is_no_reason_to_wait_longer() -> None:
    """The first of a lane would else wait anew each time another goes before it."""
    world = Scarce()
    world.task("early", world.wide)
    world.tick()
    world.task("late", world.wide, priorities=[5])
    assert world.place() == 1


def test_nobody_is_stopped_and_nobody_kept_back_for_who_waits_by_choice() -> None:
    world = Scarce()
    world.task("wide", world.wide)
    world.task("behind", world.shape(parts=1, part=400), qos=PRODUCTION)
    assert world.place() == 1
    assert not [fact for fact in world.facts() if fact[0] == _core.F_STOPPING]
    assert world.core.reservation() is None


def test_when_patience_is_over_it_takes_what_loses_least() -> None:
    """A device that is begun loses less than a whole one, though that one comes first."""
    world = Scarce(gpus=40)
    begun = world.node(cpu=128, gpus=1)
    world.task("first", world.shape(cpu=100, parts=1, part=150))
    assert world.place() == 1
    task = world.task("wide", world.wide)
    assert world.place() == 0
    assert world.after(10) == 1
    assert world.where(task) == begun
    world.core.check()


def test_what_was_decided_is_replayed() -> None:
    world = Scarce()
    world.task("wide", world.wide)
    world.place()
    world.after(10)
    assert world.replay().digest() == world.core.digest()


def test_a_negative_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Core().set_patience(-1)


@pytest.mark.parametrize("seed", range(6))
def test_nobody_who_fits_waits_longer_than_the_bound(seed: int) -> None:
    """A world that is nearly full, where tasks come and go; every decision is checked, leaf by leaf."""
    rng = random.Random(seed)
    world = World(policy=_core.POLICY_PRICE)
    world.core.set_patience(PATIENCE)
    for _ in range(4):
        world.node(gpus=rng.randint(1, 6))
    shapes = [world.shape(parts=1, part=part) for part in (100, 250, 400, 700, 850)] + [world.shape(gpus=1)]
    tasks: list[int] = []
    waited = 0
    for turn in range(150):
        if turn == 20:
            world.do("set_prices", GPU, VALUES, {}, 0, 0)
        tasks.append(world.task(f"t{turn}", rng.choice(shapes)))
        world.core.time_told()
        world.place()
        queued = [task for task in tasks if world.state(task) == _core.QUEUED]
        for task in queued:
            row = world.core.task(task)
            if world.core.verdict(row.shape)["fits"]:
                waited += 1
                assert (world.core.waits_until(task) or 0) > world.now_ns
                assert world.now_ns < row.submitted_ns + PATIENCE
        placed = [task for task in tasks if world.state(task) == _core.PLACED]
        if len(placed) > 5 and rng.random() < 0.5:
            gone = rng.choice(placed)
            world.run(gone)
            world.core.ended(gone, _core.SUCCEEDED, 0)
        world.tick(rng.randint(1, 4) * SECOND)
    assert waited > 0
    assert world.replay().digest() == world.core.digest()
