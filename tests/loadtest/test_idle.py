"""Why devices are idle: each free device counts once, for the first reason that holds."""

from __future__ import annotations

import pytest

from hetsched.model import DeviceAsk, DeviceSpec, NodeSpec, Resources, Task
from hetsched.scheduler.messages import Event
from loadtest.replay.idle import HOUR_NS, KINDS, Idle

GIB = 1 << 30


def node(name: str, gpus: int, cores: int = 64) -> NodeSpec:
    devices = tuple(DeviceSpec(id=f"gpu-{at}", kind="gpu") for at in range(gpus))
    return NodeSpec(name=name, cpu_milli=cores * 1000, memory_bytes=256 * GIB, devices=devices)


class Day:
    """Twenty-four hours of a pair, an eight and another eight; nothing is kept unless told."""

    def __init__(self, *more: NodeSpec) -> None:
        self.kept: list[str] = []
        self.idle = Idle([node("pair", 2), node("eight", 8), *more], 24 * HOUR_NS, lambda: self.kept)
        self.seq = 0

    def submit(self, name: str, gpus: int, *, hour: float, cores: int = 1) -> None:
        resources = Resources(cpu_milli=cores * 1000, memory_bytes=GIB, devices=(DeviceAsk(kind="gpu", whole=gpus),))
        self.idle.submitted(Task(id=name, name=name, resources=resources), round(hour * HOUR_NS))

    def say(self, event: str, name: str | None, *, hour: float, on: str = "") -> None:
        self.seq += 1
        self.idle.happened(
            Event(seq=self.seq, t_ns=round(hour * HOUR_NS), event=event, task=name, data={"node": on} if on else {})
        )

    def hours(self) -> dict[str, float]:
        told = self.idle.hours
        assert list(told) == list(KINDS)
        return {kind: round(hours, 6) for kind, hours in told.items() if hours}


def test_where_nobody_waits_all_that_is_free_lacks_work() -> None:
    day = Day()
    day.submit("one", 1, hour=0)
    day.say("placed", "one", hour=0, on="pair")
    day.say("succeeded", "one", hour=2)
    day.say("tick", None, hour=3)
    assert day.hours() == {"used": 2, "nobody_waits": 28}


def test_a_pair_is_narrow_and_an_eight_broken_to_who_waits_for_eight() -> None:
    day = Day()
    day.submit("one", 1, hour=0)
    day.say("placed", "one", hour=0, on="eight")
    day.submit("all", 8, hour=0)
    day.say("succeeded", "one", hour=1)
    day.say("placed", "all", hour=1, on="eight")
    assert day.hours() == {"used": 1, "narrow": 2, "broken": 7}


def test_what_is_kept_for_somebody_is_reserved_and_nothing_else() -> None:
    day = Day()
    day.submit("one", 1, hour=0)
    day.say("placed", "one", hour=0, on="eight")
    day.kept = ["eight"]
    day.submit("all", 8, hour=0)
    day.say("tick", None, hour=1)  # the first look at what is kept is after the first moment that passed
    day.kept = []
    day.say("tick", None, hour=3)
    assert day.hours() == {"used": 3, "narrow": 6, "broken": 7, "reserved": 14}


def test_devices_beside_too_few_cores_are_told_from_broken_ones() -> None:
    day = Day()
    day.submit("cores", 4, hour=0, cores=64)
    day.say("placed", "cores", hour=0, on="eight")
    day.submit("more", 4, hour=0)
    day.say("tick", None, hour=1)
    assert day.hours() == {"used": 4, "narrow": 2, "no_cores": 4}


def test_who_is_evicted_waits_again_and_who_never_ran_leaves() -> None:
    day = Day()
    for name in ("one", "other"):
        day.submit(name, 2, hour=0)
    day.say("placed", "one", hour=0, on="pair")
    day.say("cancelled", "other", hour=1)
    day.say("requeued", "one", hour=2)
    day.say("tick", None, hour=3)
    assert day.hours() == {"used": 4, "fits": 8 + 10, "nobody_waits": 8}


def test_what_is_after_the_end_does_not_count() -> None:
    day = Day()
    day.say("tick", None, hour=30)
    assert day.hours() == {"nobody_waits": pytest.approx(240)}
