"""Guaranteed capacity: lent while idle, taken back up to the guarantee, never in a way that somebody would take back again."""

from __future__ import annotations

from hetsched import _core

from .world import BACKGROUND, BEST_EFFORT, PRODUCTION, World

GPU_RESOURCE = _core.RESOURCE_KIND


class House:
    """One node of GPUs and queues with guarantees; `lend` fills it with tasks of a queue that may be stopped."""

    def __init__(self, gpus: int = 4, radius: int = 8, **guaranteed: int) -> None:
        self.world = World(blast_radius=radius)
        self.core = self.world.core
        self.world.node(gpus=gpus)
        self.one, self.two, self.three = (self.world.shape(gpus=count) for count in (1, 2, 3))
        self.queues: dict[str, int] = {}
        for name, amount in guaranteed.items():
            self.queue(name, amount)
        self.count = 0

    def queue(self, name: str, amount: int, parent: int = _core.NONE) -> int:
        slot = self.queues[name] = self.world.do("add_queue", parent, 1)
        self.world.do("set_queue", slot, 1, ((GPU_RESOURCE, amount * 1000),) if amount else (), ())
        return slot

    def task(self, queue: str, shape: int, qos: int = BEST_EFFORT, flags: int = _core.PREEMPTIBLE) -> int:
        self.count += 1
        return self.world.task(f"{queue}-{self.count}", shape, queue=self.queues[queue], qos=qos, flags=flags)

    def lend(self, queue: str, count: int, shape: int | None = None, **named: int) -> list[int]:
        tasks = [self.task(queue, shape or self.one, **named) for _ in range(count)]
        self.world.place()
        self.world.run(*tasks)
        return tasks

    def stopped(self) -> int:
        self.world.place()
        return self.core.counts()[_core.STOPPING]


def test_the_owner_gets_back_what_it_is_guaranteed_from_equals() -> None:
    house = House(owner=3, guest=0)
    house.lend("guest", 4)
    house.task("owner", house.three)
    assert house.stopped() == 3


def test_not_more_than_the_guarantee() -> None:
    house = House(owner=2, guest=0)
    house.lend("guest", 4)
    house.task("owner", house.three)
    assert house.stopped() == 0
    house.task("owner", house.one), house.task("owner", house.one), house.task("owner", house.one)
    assert house.stopped() == 2


def test_nothing_from_within_a_guarantee_of_another() -> None:
    house = House(owner=3, guest=4)
    house.lend("guest", 4)
    house.task("owner", house.one)
    assert house.stopped() == 0


def test_only_as_far_as_the_other_is_above_its_own() -> None:
    house = House(owner=3, guest=2)
    house.lend("guest", 4)
    house.task("owner", house.three)
    assert house.stopped() == 0
    house.task("owner", house.two)
    assert house.stopped() == 2


def test_a_victim_of_two_goes_only_if_less_is_lacking_afterwards() -> None:
    house = House(owner=1, guest=3)
    house.lend("guest", 2, house.two)
    house.task("owner", house.one)
    assert house.stopped() == 0, "it would make one lack another device"
    house = House(owner=2, guest=3)
    house.lend("guest", 2, house.two)
    house.task("owner", house.two)
    assert house.stopped() == 1


def test_who_may_not_be_stopped_is_waited_for() -> None:
    house = House(owner=3, guest=0)
    house.lend("guest", 4, qos=PRODUCTION, flags=0)
    house.task("owner", house.one, qos=PRODUCTION)
    assert house.stopped() == 0


def test_nobody_more_urgent_is_stopped() -> None:
    house = House(owner=3, guest=0)
    house.lend("guest", 4, qos=PRODUCTION)
    house.task("owner", house.one, qos=BEST_EFFORT)
    assert house.stopped() == 0
    house.task("owner", house.one, qos=PRODUCTION)
    assert house.stopped() == 1


def test_the_lowest_level_takes_back_too() -> None:
    house = House(owner=1, guest=0)
    house.lend("guest", 4, qos=BACKGROUND)
    house.task("owner", house.one, qos=BACKGROUND)
    assert house.stopped() == 1


def test_a_guarantee_speaks_for_all_below_it() -> None:
    house = House(gpus=4, guest=0)
    research = house.queue("research", 3)
    house.queue("vision", 0, research), house.queue("language", 0, research)
    house.lend("vision", 1), house.lend("guest", 3)
    house.task("language", house.one), house.task("language", house.one)
    assert house.stopped() == 2
    assert {house.core.task(task).queue for task in house.core.page(-1, 99, 1 << _core.STOPPING)} == {
        house.queues["guest"]
    }


def test_two_owners_never_evict_each_other_in_turns() -> None:
    house = House(gpus=6, gold=4, tin=2)
    for name in ("gold", "tin"):
        for _ in range(12):
            house.task(name, house.one)
    evictions = 0
    for turn in range(60):
        house.world.tick(20 * 10**9)
        house.world.place()
        stopping = house.core.page(-1, 99, 1 << _core.STOPPING)
        evictions += len(stopping) if turn > 5 else 0
        for task in stopping:
            house.core.requeue(task, _core.REASON_PREEMPTED, preempted=True)
        house.world.run(*house.core.page(-1, 99, 1 << _core.PLACED))
    assert evictions == 0
    assert [house.core.queue_used(house.queues[name])[GPU_RESOURCE] for name in ("gold", "tin")] == [4000, 2000]


def test_work_within_a_guarantee_goes_before_work_that_borrows() -> None:
    house = House(gpus=4, owner=3, guest=0)
    house.world.do("set_queue", house.queues["guest"], 1000, (), ())
    owner = [house.task("owner", house.one, flags=0) for _ in range(4)]
    guest = [house.task("guest", house.one, flags=0) for _ in range(4)]
    house.world.place()
    assert [house.world.where(task) is not None for task in owner] == [True] * 3 + [False]
    assert [house.world.where(task) is not None for task in guest] == [True] + [False] * 3


def test_taking_back_is_in_the_journal() -> None:
    house = House(owner=3, guest=0)
    house.lend("guest", 4)
    house.task("owner", house.three)
    assert house.stopped() == 3
    house.world.tick()
    assert house.world.replay().digest() == house.core.digest()


def test_what_a_queue_gives_back_already_is_not_asked_of_it_twice() -> None:
    house = House(gpus=6, owner=4, guest=2)
    house.lend("guest", 3, house.two)
    house.task("owner", house.two)
    assert house.stopped() == 1
    house.task("owner", house.two)
    assert house.stopped() == 2
    house.task("owner", house.one)
    assert house.stopped() == 2, "the guest is at its guarantee once the two are gone"
