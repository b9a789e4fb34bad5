"""A gang takes back what its queue is guaranteed: for all whom it needs at once, or nobody is stopped; never in a way that comes back."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched import _core

from .test_gang_claims import end, victims
from .test_gangs import placed
from .test_reclaim import House
from .world import BACKGROUND, BEST_EFFORT, PRODUCTION


def gang(
    house: House, queue: str, size: int, least: int | None = None, shape: int | None = None, **named: Any
) -> list[int]:
    slot = house.world.do("add_gang", size, least or size, named.pop("column", -1))
    named = {"qos": BEST_EFFORT, "flags": _core.PREEMPTIBLE, **named}
    keys = [f"{queue}-gang-{slot}-{at}" for at in range(size)]
    return house.world.tasks(keys, shape or house.one, gang=slot, queue=house.queues[queue], **named)


def stopped(house: House) -> list[int]:
    house.world.place()
    return victims(house.world)


def test_a_gang_gets_back_what_its_queue_is_guaranteed_from_equals_and_starts_at_once() -> None:
    house = House(owner=3, guest=0)
    house.lend("guest", 4)
    members = gang(house, "owner", 3)
    gone = stopped(house)
    assert len(gone) == 3
    end(house.world, gone)
    assert placed(house.world, members) == 3


def test_free_devices_count_first() -> None:
    house = House(owner=4, guest=0)
    house.lend("guest", 3)
    gang(house, "owner", 3)
    assert len(stopped(house)) == 2


def test_not_more_than_the_guarantee_even_if_each_member_is_within_it() -> None:
    house = House(owner=2, guest=0)
    house.lend("guest", 4)
    gang(house, "owner", 3)
    assert stopped(house) == []


def test_what_the_queue_has_already_counts() -> None:
    house = House(gpus=6, owner=3, guest=0)
    house.lend("owner", 1)
    house.lend("guest", 5)
    gang(house, "owner", 3)
    assert stopped(house) == []
    gang(house, "owner", 2)
    assert len(stopped(house)) == 2


def test_min_size_is_what_is_taken_back() -> None:
    house = House(owner=2, guest=0)
    house.lend("guest", 4)
    members = gang(house, "owner", 4, 2)
    gone = stopped(house)
    assert len(gone) == 2
    end(house.world, gone)
    assert placed(house.world, members) == 2
    assert stopped(house) == []


def test_unlike_members_are_owed_what_they_ask_for_together() -> None:
    house = House(gpus=6, owner=4, guest=0)
    house.lend("guest", 6)
    slot = house.world.do("add_gang", 3, 3, -1)
    for at, shape in enumerate((house.two, house.one, house.one)):
        house.world.task(f"m{at}", shape, gang=slot, queue=house.queues["owner"], qos=BEST_EFFORT)
    assert len(stopped(house)) == 4


def test_nothing_from_within_a_guarantee_of_another() -> None:
    house = House(owner=3, guest=3)
    house.lend("guest", 4)
    gang(house, "owner", 2)
    assert stopped(house) == []
    gang(house, "owner", 1)
    assert len(stopped(house)) == 1


def test_victims_of_two_go_only_if_less_is_lacking_afterwards() -> None:
    house = House(gpus=6, owner=2, guest=5)
    house.lend("guest", 3, house.two)
    gang(house, "owner", 2)
    assert len(stopped(house)) == 1
    house = House(gpus=4, owner=1, guest=3)
    house.lend("guest", 2, house.two)
    gang(house, "owner", 1)
    assert stopped(house) == [], "it would make one lack another device"


def test_nobody_more_urgent_is_stopped_and_the_lowest_level_takes_back_too() -> None:
    house = House(owner=2, guest=0)
    house.lend("guest", 4, qos=PRODUCTION)
    gang(house, "owner", 2)
    assert stopped(house) == []
    house = House(owner=2, guest=0)
    house.lend("guest", 4, qos=BACKGROUND)
    gang(house, "owner", 2, qos=BACKGROUND)
    assert len(stopped(house)) == 2


def test_members_of_queues_with_unlike_guarantees_take_nothing_back() -> None:
    house = House(owner=2, other=2, guest=0)
    house.lend("guest", 4)
    slot = house.world.do("add_gang", 2, 2, -1)
    for name in ("owner", "other"):
        house.world.task(name, house.one, gang=slot, queue=house.queues[name], qos=BEST_EFFORT)
    assert stopped(house) == []


def test_a_required_domain_is_kept() -> None:
    house = House(gpus=2, owner=2, guest=0)
    house.world.node(gpus=2)
    house.lend("guest", 4)
    members = gang(house, "owner", 2, column=8)
    gone = stopped(house)
    assert len({house.world.where(victim) for victim in gone}) == 1
    end(house.world, gone)
    assert len({house.world.where(member) for member in members}) == 1


@pytest.mark.parametrize(("radius", "count"), [(1, 0), (2, 1)])
def test_the_blast_radius_caps_what_is_stopped(radius: int, count: int) -> None:
    house = House(gpus=4, radius=radius, owner=2, guest=0)
    house.lend("guest", 1, house.world.shape(gpus=4))
    gang(house, "owner", 2)
    assert len(stopped(house)) == count


def test_a_gang_of_borrowers_goes_as_a_whole_and_only_if_that_levels_out() -> None:
    house = House(gpus=4, owner=2, guest=0)
    herd = gang(house, "guest", 4)
    house.world.place()
    house.world.run(*herd)
    victims(house.world)
    gang(house, "owner", 2)
    assert sorted(stopped(house)) == herd
    house = House(gpus=4, owner=2, guest=3)
    herd = gang(house, "guest", 4)
    house.world.place()
    house.world.run(*herd)
    victims(house.world)
    gang(house, "owner", 2)
    assert stopped(house) == [], "the guest would lack three for the two"


def test_a_gang_that_borrows_does_not_go_before_one_that_is_owed() -> None:
    house = House(gpus=4, owner=2, other=4)
    borrows = gang(house, "owner", 3)
    owed = gang(house, "other", 3)
    house.world.place()
    assert (placed(house.world, borrows), placed(house.world, owed)) == (0, 3)


def test_gangs_of_two_owners_never_evict_each_other_in_turns() -> None:
    house = House(gpus=6, gold=4, tin=2)
    for _ in range(4):
        gang(house, "gold", 2)
        gang(house, "tin", 2)
    evictions = 0
    for turn in range(60):
        house.world.tick(20 * 10**9)
        gone = stopped(house)
        evictions += len(gone) if turn > 5 else 0
        end(house.world, gone)
        house.world.run(*house.core.page(-1, 99, 1 << _core.PLACED))
    assert evictions == 0
    used = [house.core.queue_used(house.queues[name])[_core.RESOURCE_KIND] for name in ("gold", "tin")]
    assert used == [4000, 2000]


def test_taking_back_is_in_the_journal() -> None:
    house = House(owner=3, guest=0)
    house.lend("guest", 4)
    gang(house, "owner", 3)
    assert len(stopped(house)) == 3
    house.world.tick()
    assert house.world.replay().digest() == house.core.digest()


@pytest.mark.parametrize(("run_s", "count"), [(60, 2), (600, 0)])
def test_on_reserved_nodes_only_a_gang_that_is_gone_in_time_takes_back(run_s: int, count: int) -> None:
    house = House(owner=2, guest=0)
    for template, seconds in enumerate((300, run_s)):
        house.world.do("set_template", template, said_ns=seconds * 10**9)
    house.lend("guest", 4)
    house.world.task("large", house.three, queue=house.queues["owner"], qos=BEST_EFFORT, template=9, priority=9)
    gang(house, "owner", 2, template=1)
    assert len(stopped(house)) == count


@pytest.mark.parametrize(("run_s", "count"), [(60, 2), (600, 0)])
def test_free_room_of_a_reservation_takes_a_gang_that_is_gone_in_time(run_s: int, count: int) -> None:
    house = House(owner=0)
    for template, seconds in enumerate((300, run_s)):
        house.world.do("set_template", template, said_ns=seconds * 10**9)
    house.lend("owner", 2)
    house.world.task("large", house.three, queue=house.queues["owner"], qos=BEST_EFFORT, template=9, priority=9)
    members = gang(house, "owner", 2, template=1)
    house.world.place()
    assert placed(house.world, members) == count
