"""Random worlds: whatever happens in whatever order, every invariant holds after every step, the journal tells the same story, and every
decision is one that a slow reader of the rules would accept."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hetsched import _core
from hetsched._core import Core

from . import rules
from .world import ALL, BACKGROUND, CRITICAL, World

SEEDS = range(33)
POLICIES = 11  # every POLICY_*


class Chaos:
    """One world and a source of happenings."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(policy=seed % POLICIES, blast_radius=self.random.choice((0, 2, 8)))
        self.core = self.world.core
        self.book = rules.Book()
        self.nodes: list[int] = []
        self.shapes: list[int] = []
        self.gangs: list[int] = []
        self.count = 0
        for parent in (_core.NONE, 1):
            self.book.queue(self.world.do("add_queue", parent, self.random.randint(1, 3)), parent)
        for _ in range(self.random.randint(1, 5)):
            self.add_node()
        for _ in range(self.random.randint(3, 8)):
            self.add_shape()
        for template in range(self.random.choice((0, 4))):
            self.book.expected_ns[template] = self.random.randint(0, 40) * 10**9
            self.world.do("set_template", template, said_ns=self.book.expected_ns[template])

    def add_node(self) -> None:
        gpus = self.random.choice((0, 2, 4, 8))
        groups = self.random.choice((0, 2, 4))
        devices = [
            (
                self.random.choice((0, 0, 1)),
                self.random.choice((-1, 0, 1)),
                self.random.choice((-1, 40, 80)),
                at // groups if groups else -1,
                self.random.choice((-1, 0, 1)),
                self.random.choice((-1, at // 2)),
            )
            for at in range(gpus)
        ]
        row = (self.random.choice((4, 16)) * 1000, self.random.choice((16, 64)), devices)
        slot = self.world.do("add_node", *row)
        self.nodes.append(slot)
        self.book.node(slot, *row)
        value = self.random.randint(0, 2)
        self.world.do("set_node_domain", slot, 0, value)
        self.book.nodes[slot].domain = value

    def add_shape(self) -> None:
        asks: list[tuple[Any, ...]] = []
        for kind in self.random.sample((0, 1), self.random.choice((0, 1, 1, 1, 2))):
            whole, parts = self.random.choice(((1, 0), (2, 0), (4, 0), (0, 1), (0, 2), (1, 1)))
            models = self.random.choice(((), (), (0,), (1, 0)))
            asks.append(
                (
                    kind,
                    whole,
                    parts,
                    self.random.choice((250, 500, 300)) if parts else 0,
                    self.random.choice((0, 0, 10, 60)),
                    models,
                )
            )
        row = (
            self.random.choice((0, 500, 1000, 4000)),
            self.random.choice((0, 1, 8)),
            asks,
            self.random.choice((0, 0, 0, 1, 2, 3)),
            self.random.random() < 0.5,
        )
        slot = self.world.do("add_shape", *row)
        self.shapes.append(slot)
        self.book.shape(slot, *row)
        for node in self.nodes:
            if self.random.random() < 0.15:
                self.level(slot, node)

    def level(self, shape: int, node: int) -> None:
        level = self.random.choice((0, 1, 2, 5))
        self.world.do("set_shape_node", shape, node, level)
        self.book.shapes[shape].levels[node] = level

    # ---------------------------------------------------------------- happenings

    def submit(self) -> None:
        named: dict[str, Any] = {
            "template": self.random.randint(0, 3),
            "qos": self.random.randint(CRITICAL, BACKGROUND),
            "queue": self.random.randint(0, 2),
            "flags": self.random.choice((0, 1, 1, 1, 2)),
            "priority": self.random.choice((0, 0, 5, -5)),
            "deadline_ns": self.random.choice((_core.NEVER_NS, 10**12, 10**11)),
            "checkpoint_ns": self.random.choice((0, 3 * 10**9)),
        }
        size = self.random.choice((1, 1, 2, 5))
        if self.random.random() < 0.3:
            minimum = self.random.randint(1, size)
            column = self.random.choice((-1, 0, 8))
            wish = self.random.choice((-1, 0, 8)) if column < 0 else -1
            named["gang"] = self.world.do("add_gang", size, minimum, column, wish)
            self.gangs.append(named["gang"])
            self.book.gangs[named["gang"]] = (minimum, column)
        self.world.tasks([f"task-{self.count + at}" for at in range(size)], self.random.choice(self.shapes), **named)
        self.count += size

    def some(self, *states: int) -> int | None:
        mask = sum(1 << state for state in states)
        slots = self.core.page(-1, 100, mask)
        return self.random.choice(slots) if slots else None

    def start(self) -> None:
        task = self.some(_core.PLACED)
        if task is not None:
            self.world.run(task)

    def end(self) -> None:
        task = self.some(*range(_core.QUEUED, _core.SUCCEEDED))
        if task is not None:
            self.core.ended(task, self.random.randint(_core.SUCCEEDED, _core.SKIPPED), 3)

    def finish_stopping(self) -> None:
        task = self.some(_core.STOPPING)
        if task is not None:
            self.book.evicted(self.core.task(task), self.world.now_ns)
            self.core.requeue(task, 1, preempted=True, hold=self.random.choice((0, 0, 2)))

    def fail(self) -> None:
        task = self.some(_core.PLACED, _core.RUNNING, _core.STOPPING)
        placement = None if task is None else self.core.placement(task)
        if task is not None and placement is not None:
            self.book.over(self.core.task(task), placement.started_ns > 0)
            self.random.choice((self.core.back_off, self.core.requeue))(task, 4)

    def stop(self) -> None:
        task = self.some(_core.PLACED, _core.RUNNING)
        if task is not None:
            self.core.stop(task, 5)

    def wake(self) -> None:
        task = self.some(_core.BACKOFF)
        if task is not None:
            self.core.ready(task)

    def hold(self) -> None:
        task = self.some(_core.QUEUED, _core.BACKOFF, _core.HELD)
        if task is not None:
            self.core.hold(task, self.random.choice((2, 4)))

    def release(self) -> None:
        task = self.some(_core.HELD)
        if task is not None:
            self.core.release(task, self.random.choice((2, 4, 6)))

    def prioritise(self) -> None:
        task = self.some(_core.QUEUED, _core.RUNNING)
        if task is not None:
            self.core.set_priority(task, self.random.randint(-9, 9))

    def unclaim(self) -> None:
        for task in self.core.page(-1, 100, 1 << _core.QUEUED):
            if self.core.task(task).flags & _core.CLAIMING:
                self.core.unclaim(task)
                return

    def forget(self) -> None:
        task = self.some(*range(_core.SUCCEEDED, _core.SKIPPED + 1))
        if task is not None:
            row = self.core.task(task)
            if row.state == _core.SUCCEEDED and row.gang != _core.NONE:
                self.book.left[row.gang] = self.book.left.get(row.gang, 0) + 1
            self.core.forget(task)

    def toggle_node(self) -> None:
        node = self.random.choice(self.nodes)
        is_open = self.random.random() < 0.6
        self.world.do("open_node", node, is_open)
        self.book.nodes[node].is_open = is_open

    def toggle_device(self) -> None:
        node = self.random.choice(self.nodes)
        if self.book.nodes[node].devices:
            device = self.random.randrange(len(self.book.nodes[node].devices))
            usable = self.random.random() < 0.6
            self.world.do("set_device_usable", node, device, usable)
            self.book.nodes[node].devices[device].usable = usable

    def replace_node(self) -> None:
        node = self.random.choice(self.nodes)
        if not self.core.tasks_on(node) and not any(
            (self.core.claim(task) or (None,))[0] == node for task in self.core.page(-1, 1000, 1 << _core.QUEUED)
        ):
            self.world.do("remove_node", node)
            self.nodes.remove(node)
            self.book.forget_node(node)
            self.add_node()

    def limit(self) -> None:
        queue = self.random.randint(0, 2)
        limit = self.random.choice(((), ((2, 3000),), ((0, 8000),)))
        guaranteed = self.random.choice(((), ((2, 4000),), ((2, 2000), (3, 1000))))
        self.world.do("set_queue", queue, self.random.randint(1, 3), guaranteed, limit)
        self.book.limits[queue] = dict(limit)
        self.book.guaranteed[queue] = dict(guaranteed)

    def price(self) -> None:
        values = sorted(self.random.choices(range(1001), k=1000))
        premiums = [(model, self.random.randint(0, 1000)) for model in (0, 1)]
        rates = self.random.randint(0, 1 << 30), self.random.randint(0, 1 << 20)
        apart = sorted(self.random.choices(range(4001), k=self.random.randint(0, 65)), reverse=True)
        self.world.do("set_prices", self.random.randint(0, 1), [0, *values], premiums, *rates, apart)

    def change_level(self) -> None:
        self.level(self.random.choice(self.shapes), self.random.choice(self.nodes))

    def decide(self) -> None:
        self.core.settle()
        before = rules.Snapshot(self.core, self.book, self.world.now_ns)
        self.world.facts()
        levels = self.random.choice((ALL, ALL, 1, 14))
        evicts = self.random.random() < 0.8
        self.core.decide(levels, evicts)
        rules.judge(before, self.world.facts(), levels, evicts and self.world.options["blast_radius"] == 0)

    def step(self) -> None:
        happenings = (
            [self.submit] * 9
            + [self.decide] * 6
            + [self.start] * 3
            + [self.end] * 3
            + [self.finish_stopping] * 4
            + [self.limit] * 3
            + [
                self.fail,
                self.stop,
                self.wake,
                self.hold,
                self.release,
                self.release,
                self.prioritise,
                self.unclaim,
                self.forget,
                self.toggle_node,
                self.toggle_device,
                self.replace_node,
                self.change_level,
                self.price,
            ]
        )
        self.random.choice(happenings)()
        if self.random.random() < 0.3:
            long = self.random.random() < 0.1
            self.world.tick(self.random.randint(1, 4000 if long else 5) * 10**9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_world_keeps_every_promise(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(160):
        chaos.step()
    chaos.core.check()
    replayed = chaos.world.replay()
    replayed.check()
    assert replayed.digest() == chaos.core.digest()
    loaded = Core.load(chaos.core.dump(), checked=True)
    assert loaded.digest() == chaos.core.digest()
    assert loaded.dump() == Core.load(loaded.dump()).dump()


@pytest.mark.parametrize("seed", range(100, 108))
def test_a_core_loaded_from_a_dump_goes_on_like_the_live_one(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(80):
        chaos.step()
    chaos.world.frames.clear()
    chaos.world.tick()
    chaos.world.frames.clear()
    dump = chaos.core.dump()
    loaded = Core.load(dump)
    for _ in range(80):
        chaos.step()
    chaos.world.tick()
    chaos.world.replay_into(loaded)
    assert loaded.digest() == chaos.core.digest()
