"""Every preset with a formula chooses what a slow reader of the formula chooses: node and devices, task after task."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from hetsched import _core

from . import presets
from .presets import Ask, Choice, Fgd, Place, Priced
from .world import GIB, GPU, World

MIB = 1 << 20
ASKS = (
    Ask(1000, 2048, 0, 0),
    Ask(8000, 8192, 0, 0),
    Ask(4000, 1024, 1, 300),
    Ask(2000, 4096, 1, 500),
    Ask(9000, 30720, 1, 750),
    Ask(10000, 20480, 1, 1000),
    Ask(4000, 8192, 2, 1000),
    Ask(32000, 65536, 4, 1000),
    Ask(1000, 1024, 2, 250),
)
Chooser = Callable[[list[Place], Ask], Choice]


class Race:
    """The core and a slow reader beside it, on the same cluster."""

    def __init__(self, policy: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(policy=policy)
        self.places: list[Place] = []
        self.add_node(128, 8)  # the largest: what the published scores are parts of
        for _ in range(11):
            self.add_node(self.random.choice((16, 48, 96)), self.random.choice((1, 2, 4, 8)))
        self.shapes = {ask: self.shape(ask) for ask in ASKS}
        self.count = 0

    def add_node(self, cpu: int, gpus: int) -> None:
        model = self.random.randrange(3)
        self.world.do("add_node", cpu * 1000, cpu * 4 * GIB, [(GPU, model, -1, -1, -1)] * gpus)
        self.places.append(Place(cpu * 1000, cpu * 4096, [1000] * gpus, model))

    def shape(self, ask: Ask) -> int:
        whole = ask.count if ask.milli == 1000 else 0
        asks = [(GPU, whole, ask.count - whole, 0 if whole else ask.milli, 0, ())] if ask.count else []
        slot: int = self.world.do("add_shape", ask.cpu, ask.memory * MIB, asks, 0)
        return slot

    def run(self, choose: Chooser, tasks: int = 60) -> int:
        """Tasks until `tasks` have come; each is where the reader puts it. Returns how many were placed."""
        placed = 0
        for _ in range(tasks):
            ask = self.random.choice(ASKS)
            chosen = choose(self.places, ask)
            task = self.world.task(f"task-{self.count}", self.shapes[ask])
            self.count += 1
            self.world.place()
            if chosen is None:
                assert self.world.where(task) is None
                self.world.core.ended(task, _core.CANCELLED, 0)
                continue
            node, devices = chosen
            had = tuple(device for device, _ in self.world.devices(task))
            assert (self.world.where(task), sorted(had)) == (node, sorted(devices)), ask
            self.places[node] = self.places[node].after(ask, devices)
            placed += 1
        return placed


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("policy", "score"),
    [
        (_core.POLICY_BEST_FIT, presets.best_fit),
        (_core.POLICY_DOT_PRODUCT, presets.dot_product),
        (_core.POLICY_PACKING, presets.packing),
        (_core.POLICY_CLUSTERING, presets.clustering),
    ],
    ids=["best-fit", "dot-product", "packing", "clustering"],
)
def test_published_scores_choose_as_published(policy: int, score: presets.Score, seed: int) -> None:
    race = Race(policy, seed)
    assert race.run(lambda places, ask: presets.best(places, ask, score)) > 20


@pytest.mark.parametrize("seed", range(4))
def test_first_fit_takes_the_first_node_and_the_first_devices(seed: int) -> None:
    race = Race(_core.POLICY_FIRST_FIT, seed)
    first = lambda place, ask: tuple(presets.roomy(place, ask)[: ask.count])  # noqa: E731
    assert race.run(lambda places, ask: presets.best(places, ask, lambda *_: 0, first)) > 20


@pytest.mark.parametrize("seed", range(6))
def test_fgd_adds_least_to_the_fragment_of_the_mix_it_knows(seed: int) -> None:
    race = Race(_core.POLICY_FGD, seed)
    asked = {ask: race.random.randint(500, 5000) for ask in ASKS}  # so often that what comes changes no order
    for ask, times in asked.items():
        race.world.do("know", race.shapes[ask], times)
    race.world.do("set_policy", _core.POLICY_FGD)
    assert race.run(Fgd(asked).choose) > 20


@pytest.mark.parametrize("seed", range(12))
def test_price_loses_least_worth(seed: int) -> None:
    race = Race(_core.POLICY_PRICE, seed)
    values = sorted(race.random.choices(range(0, 1001, 50), k=1000))
    apart = tuple(sorted(race.random.choices(range(200), k=seed % 4 * 2), reverse=True))
    wide = tuple(sorted(race.random.choices(range(200), k=seed % 3 * 3)))
    priced = Priced([0, *values], {0: 0, 1: race.random.randint(0, 400)}, 95_000, 30_000, apart, wide)
    rates = priced.cpu_rate, priced.memory_rate
    race.world.do("set_prices", GPU, priced.values, list(priced.premiums.items()), *rates, priced.apart, priced.wide)
    assert race.run(priced.choose) > 20


def test_price_begins_without_knowledge() -> None:
    race = Race(_core.POLICY_PRICE, 1)
    start = Priced(list(range(1001)), {}, (1000 << 20) // 11_000, (1000 << 20) // (40 << 10))
    assert race.run(start.choose) > 20


def test_random_chooses_every_node_and_every_device_that_fits() -> None:
    world = World(policy=_core.POLICY_RANDOM)
    for gpus in (0, 2, 2, 2):
        world.node(gpus=gpus)
    shape = world.shape(parts=1, part=10)
    chosen = Counter[tuple[int | None, int]]()
    for at in range(600):
        task = world.task(f"task-{at}", shape)
        world.place()
        chosen[world.where(task), world.devices(task)[0][0]] += 1
        world.core.ended(task, _core.SUCCEEDED, 0)
    assert set(chosen) == {(node, device) for node in (1, 2, 3) for device in (0, 1)}
    assert min(chosen.values()) > 60 and max(chosen.values()) < 140  # 100 each, give or take four deviations


def test_other_kinds_have_prices_of_their_own() -> None:
    """A part of a TPU goes where TPUs are worth least; what GPUs cost does not matter."""
    world = World(policy=_core.POLICY_PRICE)
    tpu = 3
    for _ in range(2):
        world.do("add_node", 64_000, 256 * GIB, [(tpu, -1, 32 * GIB, -1, -1)] * 2 + [(GPU, -1, -1, -1, -1)])
    half = world.do("add_shape", 1000, 0, [(tpu, 0, 1, 500, 16 * GIB, ())], 0)
    first = world.task("first", half)
    world.place()
    world.do("set_prices", tpu, [0] * 500 + [500] * 500 + [1000], [], 1 << 30, 1 << 30)
    second = world.task("second", half)
    world.place()
    assert (
        (world.where(first), world.devices(first)) == (world.where(second), world.devices(second)) == (0, ((0, 500),))
    )


def test_models_liked_better_go_before_the_price() -> None:
    world = World(policy=_core.POLICY_PRICE)
    world.node(gpus=1, model=0)
    world.node(gpus=1, model=1)
    world.do("set_prices", GPU, list(range(1001)), [(1, 1000)], 1 << 30, 1 << 30)
    ordered = world.task("ordered", world.shape(gpus=1, models=(1, 0)))
    world.place()
    assert world.where(ordered) == 1
    world.core.ended(ordered, _core.SUCCEEDED, 0)
    either = world.task("either", world.core.add_shape(1000, 0, [(GPU, 1, 0, 0, 0, frozenset({1, 0}))], 0))
    world.place()
    assert world.where(either) == 0
