"""Eviction damped: evicted twice within ten minutes, let be for ten minutes after the next start."""

from __future__ import annotations

from hetsched import _core
from hetsched._core import Core

from .world import BACKGROUND, CRITICAL, World

MINUTE_NS = 60 * 10**9


class Host:
    """One core, one long background task on it, and urgent ones that come."""

    def __init__(self) -> None:
        self.world = World()
        self.world.node(cpu=1)
        self.shape = self.world.shape(cpu=1)
        self.long = self.world.task("long", self.shape, qos=BACKGROUND, flags=_core.PREEMPTIBLE)
        self.count = 0
        self.start()

    def start(self) -> None:
        self.world.place()
        self.world.run(self.long)

    def is_evicted(self) -> bool:
        """An urgent task comes; if it gets in, it ends at once and the long one goes on."""
        self.count += 1
        urgent = self.world.task(f"urgent-{self.count}", self.shape, qos=CRITICAL)
        self.world.place()
        if self.world.state(self.long) != _core.STOPPING:
            self.world.core.ended(urgent, _core.CANCELLED, 0)
            return False
        self.world.core.requeue(self.long, _core.REASON_PREEMPTED, preempted=True)
        self.world.core.ended(urgent, _core.SUCCEEDED, 0)
        self.start()
        return True

    def after(self, minutes: float) -> bool:
        self.world.tick(round(minutes * MINUTE_NS))
        return self.is_evicted()


def test_twice_in_ten_minutes_protects_for_ten_minutes_after_the_next_start() -> None:
    host = Host()
    assert [host.after(1), host.after(10)] == [True, True]
    assert host.world.core.task(host.long).flags & _core.SHAKEN
    assert host.world.core.oscillations() == 1
    assert [host.after(1), host.after(8.9), host.after(0.2)] == [False, False, True]
    assert host.world.core.oscillations() == 1


def test_twice_in_more_than_ten_minutes_protects_nobody() -> None:
    host = Host()
    assert [host.after(1), host.after(10.1), host.after(10.1)] == [True, True, True]
    assert host.world.core.oscillations() == 0


def test_the_protection_waits_for_the_start() -> None:
    host = Host()
    host.after(1)
    host.world.tick(MINUTE_NS)
    urgent = host.world.task("urgent", host.shape, qos=CRITICAL)
    host.world.place()
    host.world.core.requeue(host.long, _core.REASON_PREEMPTED, preempted=True)
    host.world.tick(60 * MINUTE_NS)
    host.world.core.ended(urgent, _core.SUCCEEDED, 0)
    host.world.place()
    assert [host.after(60), host.after(60)] == [False, False]  # placed, its agent has not said a word
    host.world.run(host.long)
    assert [host.after(9), host.after(1)] == [False, True]


def test_an_eviction_counts_from_the_order_however_long_the_task_takes_to_stop() -> None:
    host = Host()
    assert host.after(1)
    host.world.tick(9 * MINUTE_NS)
    urgent = host.world.task("urgent", host.shape, qos=CRITICAL)
    host.world.place()
    host.world.tick(60 * MINUTE_NS)
    host.world.core.requeue(host.long, _core.REASON_PREEMPTED, preempted=True)
    host.world.core.ended(urgent, _core.SUCCEEDED, 0)
    host.start()
    assert [host.after(9.9), host.after(0.2)] == [False, True]


def test_an_end_of_another_kind_ends_the_protection() -> None:
    host = Host()
    assert [host.after(1), host.after(1)] == [True, True]
    host.world.tick(MINUTE_NS)
    host.world.core.requeue(host.long, 2)
    host.start()
    assert host.after(1)


def test_a_blocked_head_looks_again_when_the_protection_ends() -> None:
    host = Host()
    host.after(1), host.after(1)
    host.world.tick()
    host.world.task("patient", host.shape, qos=CRITICAL)
    host.world.place()
    assert host.world.state(host.long) == _core.RUNNING
    loaded = Core.load(host.world.core.dump(), checked=True)
    host.world.tick(10 * MINUTE_NS)
    host.world.place()
    loaded.begin(host.world.now_ns)
    loaded.decide(15)
    assert host.world.state(host.long) == loaded.task(host.long).state == _core.STOPPING


def test_damping_is_in_the_journal_and_in_the_dump() -> None:
    host = Host()
    host.after(1), host.after(1), host.after(3)
    host.world.tick()
    assert host.world.replay().digest() == host.world.core.digest()
    loaded = Core.load(host.world.core.dump())
    assert loaded.digest() == host.world.core.digest()
    assert loaded.oscillations() == 1
