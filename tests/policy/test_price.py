"""What capacity is worth under what is asked: values, premiums, rates; and when it is priced."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from hetsched import _core
from hetsched._core import Core
from hetsched.policy import Pricer
from hetsched.policy.price import APART, BEGUN, MOST_RATE, RATE_ONE, Season, price
from tests.sim.worlds import Run

GPU, TPU = 0, 1
MIB, GIB = 1 << 20, 1 << 30


def whole(kind: int = GPU, models: int = 0, count: int = 1) -> tuple[int, int, int, int, int]:
    return kind, count, 0, 0, models


def part(milli: int, kind: int = GPU) -> tuple[int, int, int, int, int]:
    return kind, 0, 1, milli, 0


def test_a_rest_that_nothing_fits_in_is_worth_nothing() -> None:
    values = price([(10, 1000, 0, (part(500),)), (10, 1000, 0, (whole(),))], {(GPU, -1): 8000})[GPU].values
    assert (values[0], values[499], values[500], values[999], values[1000]) == (0, 0, 470, 470, 1000)


def test_sizes_between_two_cells_take_the_larger() -> None:
    values = price([(10, 1000, 0, (part(333),))], {})[GPU].values
    assert (values[339], values[340]) == (0, 470)


def test_cpu_and_memory_go_with_devices_as_they_are_asked() -> None:
    prices = price([(3, 8000, 32 * GIB, (whole(),)), (1, 16000, 0, (whole(count=2),)), (5, 99000, GIB, ())], {})[GPU]
    assert prices.cpu_rate == 5000 * RATE_ONE // 40_000
    assert prices.memory_rate == 5000 * RATE_ONE // (96 * 1024)
    assert price([(1, 0, 0, (whole(),))], {})[GPU].cpu_rate == MOST_RATE


def test_a_model_that_is_named_has_a_premium() -> None:
    supply = {(GPU, 0): 10_000, (GPU, 1): 30_000, (GPU, -1): 0, (TPU, 0): 5000}
    demand = [(1, 1, 1, (whole(models=0b01),)), (19, 1, 1, (whole(),))]
    # a twentieth of what is asked names it: 2 of 40 devices, a fifth of its 10
    assert price(demand, supply)[GPU].premiums == {0: 200, 1: 0}
    demand = [(1, 1, 1, (whole(models=0b11),)), (1, 1, 1, (whole(),))]
    assert price(demand, supply)[GPU].premiums == {0: 500, 1: 500}
    demand = [(1, 1, 1, (whole(models=0b01),))]
    assert price(demand, supply)[GPU].premiums == {0: 1000, 1: 0}
    assert price([(1, 1, 1, (whole(models=0b100),))], supply)[GPU].premiums == {0: 0, 1: 0}  # nobody has it


def test_every_kind_has_its_own() -> None:
    prices = price([(2, 4000, 0, (whole(TPU), part(250)))], {(TPU, -1): 1000})
    assert sorted(prices) == [GPU, TPU]
    assert (prices[GPU].values[250], prices[TPU].values[250]) == (235, 0)


def test_room_that_few_fit_in_is_worth_less_to_who_comes_next() -> None:
    prices = price([(3, 1000, 0, (part(500),)), (1, 1000, 0, (whole(),))], {})[GPU]
    # a half is of use to three of four: 470 less a quarter of 500; what is left of it is of use to nobody
    assert (prices.loose[499], prices.loose[500], prices.loose[1000]) == (0, 345, 1000)
    assert list(prices.loose) == sorted(prices.loose)


def test_what_stands_apart_is_worth_less_to_who_asks_for_several() -> None:
    demand = [(6, 1, 1, (whole(),)), (3, 1, 1, (whole(count=2),)), (1, 1, 1, (whole(count=4),))]
    assert price(demand, {})[GPU].apart == tuple(APART * 1000 * sixteenths // 16 for sixteenths in (10, 10, 4, 4))
    assert price(demand[:1], {})[GPU].apart == (0,)


def test_a_node_is_worth_more_that_has_as_many_devices_as_tasks_ask_for_together() -> None:
    demand = [(6, 1, 1, (whole(),)), (3, 1, 1, (whole(count=2),)), (1, 1, 1, (whole(count=4),))]
    assert price(demand, {})[GPU].wide == tuple(APART * 1000 * sixteenths // 16 for sixteenths in (0, 0, 6, 6, 10))
    assert price(demand[:1], {})[GPU].wide == ()
    assert price([(1, 1, 1, (part(500),))], {})[GPU].wide == ()


class Watched(Core):
    """Counts how often it is told a price, and remembers the last one."""

    told = 0
    last: tuple[object, ...] = ()

    def set_prices(self, *arguments: object, **named: object) -> None:
        self.told += 1
        self.last = arguments
        super().set_prices(*arguments, **named)  # type: ignore[arg-type]


def test_capacity_is_priced_often_at_first_and_then_after_50_100_200_tasks() -> None:
    core = Watched(policy=_core.POLICY_PRICE)
    core.add_node(64_000, 256 * GIB, [(GPU, -1, -1, -1, -1)] * 8)
    queue, shape = core.add_queue(_core.NONE, 1), core.add_shape(1000, 0, [(GPU, 1, 0, 0, 0, ())], 0)
    pricer, when = Pricer(core), []
    for number in range(1, 500):
        core.accept([b"%d" % number], template=0, shape=shape, queue=queue, qos=1, flags=0, submitted_ns=0)
        if pricer.turn():
            when.append(number)
    assert when == [*range(1, 8), 8, 10, 12, 15, 18, 22, 27, 33, 41, 50, 100, 200, 400]
    assert core.told == len(when)


class Town:
    """One node of 8, one shape, and tasks that come and go."""

    def __init__(self) -> None:
        self.core = Watched(policy=_core.POLICY_PRICE)
        self.core.add_node(64_000, 256 * GIB, [(GPU, -1, -1, -1, -1)] * 8)
        self.queue, self.shape = (
            self.core.add_queue(_core.NONE, 1),
            self.core.add_shape(1000, 0, [(GPU, 2, 0, 0, 0, ())], 0),
        )
        self.pricer = Pricer(self.core)
        self.asked = 0

    def come(self, count: int) -> list[int]:
        keys = [b"%d" % (self.asked + at) for at in range(count)]
        self.asked += count
        slots = self.core.accept(keys, template=0, shape=self.shape, queue=self.queue, qos=1, flags=0, submitted_ns=0)
        self.pricer.turn()
        self.core.decide(0b1111, False)
        return list(slots)

    def come_and_go(self, count: int) -> None:
        for _ in range(count):
            for slot in self.come(1):
                self.core.ended(slot, _core.SUCCEEDED, 0)

    def told(self) -> Season:
        known = self.pricer.known()
        of = known.prices[GPU]
        values = of.loose if known.season is Season.LOOSE else of.values
        assert (self.core.last[1], bool(self.core.last[5])) == (values, known.season is not Season.FILLING)
        assert self.core.last[6] == (of.wide if known.season is Season.WAITING else ())
        return known.season


def test_where_nothing_leaves_duals_alone_count() -> None:
    town = Town()
    town.come(60)
    assert (town.told(), town.core.left) == (Season.FILLING, 0)


def test_where_tasks_leave_and_nobody_waits_the_next_one_counts() -> None:
    town = Town()
    town.come_and_go(60)
    assert (town.told(), town.core.left) == (Season.LOOSE, 60)


def test_where_many_wait_one_of_them_fits() -> None:
    town = Town()
    town.come_and_go(20)
    town.come(20)
    town.come(60)
    assert town.told() is Season.WAITING


def test_the_season_is_looked_at_again_between_two_pricings() -> None:
    town = Town()
    town.come_and_go(1700)
    told = town.core.told
    assert town.told() is Season.LOOSE
    town.come(250)
    town.come(250)
    assert (town.told(), town.core.told) == (Season.WAITING, told + 1)


def test_a_copy_goes_on_in_the_same_season() -> None:
    town, copy = Town(), Town()
    town.come_and_go(60)
    copy.pricer.adopt(town.pricer.known())
    assert (copy.told(), copy.core.last) == (Season.LOOSE, town.core.last)


def test_after_a_load_who_is_gone_has_left() -> None:
    town = Town()
    town.come_and_go(10)
    town.come(6)
    assert Core.load(town.core.dump()).left == 10


def test_after_a_restart_the_first_turn_prices() -> None:
    core = Core(policy=_core.POLICY_PRICE)
    core.know(core.add_shape(1000, 0, [(GPU, 1, 0, 0, 0, ())], 0), 70)
    loaded = Core.load(core.dump())
    pricer = Pricer(loaded)
    assert pricer.turn() and not pricer.turn()


@pytest.mark.traces
def test_openb_is_worth_what_was_published_here(shared: Path) -> None:
    """In twelfths of a device, whole trace. Sizes up to 160 fill what others leave and are worth nothing by themselves."""
    pods = shared / "traces/openb_pods_default.csv"
    if not pods.is_file():
        pytest.skip("no openb trace in the shared directory")
    asked = Counter(
        (int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"]))
        for row in csv.DictReader(pods.open())
        if int(row["num_gpu"])
    )
    demand = [
        (times, cpu, memory * MIB, (whole(count=count) if milli == 1000 else part(milli),))
        for (cpu, memory, count, milli), times in asked.items()
    ]
    values = price(demand, {})[GPU].values
    worth = {
        milli: round(12 * values[milli] / (1000 - BEGUN))
        for milli in (160, 220, 230, 290, 320, 440, 460, 550, 650, 810)
    }
    assert worth == {160: 0, 220: 1, 230: 3, 290: 3, 320: 4, 440: 4, 460: 6, 550: 8, 650: 8, 810: 12}


@pytest.mark.parametrize("cores", [1, 2, 8])
@pytest.mark.parametrize("gap_s", [0, 10])
@pytest.mark.parametrize("burst", [0, 60, 300])
def test_wide_nodes_are_kept_whole_though_nobody_has_asked_for_one_yet(
    tmp_path: Path, cores: int, gap_s: int, burst: int
) -> None:
    """On a cold cluster and after a burst of single devices that has ended; whether they come together or one by one."""
    nodes = [
        {"name": "wide-", "count": 4, "cpu": 64, "memory": "512Gi", "devices": [{"kind": "gpu", "count": 8}]},
        {"name": "narrow-", "count": 16, "cpu": 64, "memory": "512Gi", "devices": [{"kind": "gpu", "count": 2}]},
    ]
    one = {"resources": {"gpu": 1, "cpu": cores}}
    events = [{"at": 0, "submit": {"template": {**one, "id": "burst", "duration": 50}, "count": burst}}] * (burst > 0)
    events += [{"at": 400 + gap_s * at, "submit": {**one, "id": f"one-{at}", "duration": 900}} for at in range(16)]
    eights = {"template": {"id": "eight", "resources": {"gpu": 8, "cpu": 16}, "duration": 60}, "count": 4}
    run = Run(tmp_path, {"nodes": nodes, "events": [*events, {"at": 700, "submit": eights}], "until": 1000})
    assert {event["t"] for event in run.of("placed") if event["task"].startswith("eight")} == {700.05}
