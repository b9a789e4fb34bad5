"""A fleet made from the last one is the fleet made from nothing."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np

from hetsched.model import DeviceAsk, DeviceSpec, NodeSpec, parse_node
from hetsched.policy.fleet import FIGURES, Fleet

from .worlds import node

ASKS = (DeviceAsk(kind="gpu", whole=1),)


def test_changes_reach_the_same_arrays_as_a_fresh_start() -> None:
    chance = random.Random(3)
    nodes: dict[int, NodeSpec] = {}
    fleet = Fleet()
    for step in range(60):
        slot = chance.randrange(12)
        spec: NodeSpec | None = None
        if chance.random() < 0.7:
            raw = node(f"n{step}", chance.choice((None, "T4", "H100", "unknown")), count=chance.randint(1, 3))
            (spec,) = parse_node({"cpu": step + 1, "memory": "1Gi", "volumes": [f"v{step % 3}"], "pue": 1.5, **raw})
        if spec is None:
            nodes.pop(slot, None)
        else:
            nodes[slot] = spec
        fleet = fleet.changed([(slot, spec)])
        fresh = Fleet(nodes.items())
        for name in ("present", "cpu_cores", "memory_bytes", "single_core", "pue", "delay_s"):
            assert np.array_equal(getattr(fleet, name)[: fresh.size], getattr(fresh, name), equal_nan=name != "present")
        for figure in ("tflops", "watts"):
            assert np.array_equal(
                fleet.devices(ASKS, figure)[: fresh.size], fresh.devices(ASKS, figure), equal_nan=True
            )
        assert np.array_equal(fleet.holds("v1")[: fresh.size], fresh.holds("v1"))
        assert not fleet.present[fresh.size :].any()


def test_of_a_mixed_board_the_figures_are_those_of_the_devices_that_a_task_would_get() -> None:
    """A board with one fast device is as good as it for who asks for one, and less so for who asks for more."""
    mixed = tuple(
        DeviceSpec(id=f"gpu-{at}", kind="gpu", model=model, tflops=tflops)
        for at, (model, tflops) in enumerate([("slow", 10.0), ("fast", 90.0), ("slow", 10.0), ("slow", 10.0)])
    )
    even = tuple(DeviceSpec(id=f"gpu-{at}", kind="gpu", model="mid", tflops=40.0) for at in range(4))
    nodes = [
        NodeSpec(name=name, cpu_milli=1000, memory_bytes=1, devices=board)
        for name, board in (("mixed", mixed), ("even", even))
    ]
    fleet = Fleet(enumerate(nodes))
    for count, figures in ((1, [90, 40]), (2, [50, 40]), (4, [30, 40])):
        assert fleet.devices((DeviceAsk(kind="gpu", whole=count),), "tflops").tolist() == figures
    assert fleet.devices((DeviceAsk(kind="gpu", whole=1, models=("slow",)),), "tflops")[0] == 10


def test_nobody_who_is_given_a_fleet_can_change_what_the_next_one_is_given() -> None:
    """Every array that it has or answers, first or later: what its methods make for the asker alone may be the asker's."""
    raw = {**node("n", "T4", count=2), "cpu": 4, "memory": "1Gi", "volumes": ["v"]}
    fleet = Fleet(enumerate(parse_node(raw))).changed([(2, parse_node({**raw, "name": "m"})[0])])
    figures = {name: value for name, value in vars(fleet).items() if isinstance(value, np.ndarray)}
    assert {"present", "cpu_cores", "memory_bytes", "single_core", "pue", "delay_s", "group"} <= figures.keys()

    def answers() -> list[Any]:
        asked = [fleet.holds("v"), *(fleet.devices(ASKS, figure) for figure in FIGURES)]
        return [*asked, fleet.each(lambda spec: 1.0), fleet.each_group(len)]

    before = [array.copy() for array in (*figures.values(), *answers())]
    for array in (*figures.values(), *answers()):
        if array.flags.writeable:
            array[:] = 0
        with contextlib.suppress(ValueError):
            array[:] = 0
    assert all(not array.flags.writeable for array in figures.values())
    for array, was in zip((*figures.values(), *answers()), before, strict=True):
        assert np.array_equal(array, was, equal_nan=array.dtype == np.float64)
    assert isinstance(fleet.specs, tuple)
