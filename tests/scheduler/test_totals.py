"""What there is and what is taken of it are counted over the same nodes and devices, whatever closes some of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hetsched.scheduler import messages as m
from hetsched.scheduler import rehearse
from tests.scheduler.build import Story, node, task
from tests.scheduler.whatif import patient, small_world

MEMORY = {"memory": "1Gi"}
CLOSERS: dict[str, Callable[[Story], object]] = {
    "cordoned": lambda story: story.ask(m.OperateNode(verb="cordon", node="a")),
    "draining": lambda story: story.ask(m.OperateNode(verb="drain", node="a")),
    "silent": lambda story: story.step(m.NodeSilent(node="a")),
}


def filled() -> Story:
    """Two nodes of four devices, all held, and one task that asks for one more."""
    story = Story([node("a", gpus=4), node("b", gpus=4)])
    story.submit([task(f"t{at}", resources={"gpu": 4, **MEMORY}) for at in range(2)])
    story.wait(1)
    story.submit(task("w", resources={"gpu": 1}, models=["A100"]))
    story.wait(1)
    return story


def free_for_w(story: Story) -> dict[str, float]:
    told = rehearse.advise(rehearse.take(story.scheduler), "w", story.now_ns, patient)
    assert told is not None
    return told.free["gpu"]


@pytest.mark.parametrize("state", CLOSERS)
def test_what_is_held_on_a_closed_node_is_taken_from_no_open_one(state: str) -> None:
    story = filled()
    CLOSERS[state](story)
    told = story.scheduler.view.cluster()
    assert told["nodes"] == {"total": 2, "open": 1}
    assert (told["capacity"]["gpu"], told["used"]["gpu"], told["used_aside"]["gpu"]) == (4, 4, 4)
    assert (told["capacity"]["cpu"], told["used"]["cpu"], told["used_aside"]["cpu"]) == (8, 1, 1)
    assert told["used"]["memory"] == told["used_aside"]["memory"] == 1 << 30
    assert free_for_w(story) == {"asked": 1.0, "free": 0.0, "largest_on_one_node": 0}
    assert story.scheduler.view.explain("w")["detail"] == f"of 2 nodes: 1 {state}; 1 with too few free devices"


def test_free_devices_of_a_closed_node_are_not_free_to_take() -> None:
    story = filled()
    story.end("t0")
    story.wait(1)
    story.ask(m.OperateNode(verb="cordon", node=story.node_of("w") or ""))
    story.submit(task("x", resources={"gpu": 1}))
    story.wait(1)
    told = story.scheduler.view.cluster()
    assert (told["capacity"]["gpu"], told["used"]["gpu"], told["used_aside"]["gpu"]) == (4, 4, 1)
    assert story.state("x") == "queued"


def test_a_sick_device_that_is_still_held_counts_on_neither_side() -> None:
    story = filled()
    story.step(m.DeviceHealth(node="a", device="gpu-1", health="suspect", reason="hot"))
    told = story.scheduler.view.cluster()
    assert (told["capacity"]["gpu"], told["used"]["gpu"], told["used_aside"]["gpu"]) == (7, 7, 1)
    assert free_for_w(story)["free"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_in_any_world_use_is_within_capacity_and_nothing_held_is_forgotten(seed: int) -> None:
    story = small_world(seed)
    told = story.scheduler.view.cluster()
    held = [story.scheduler.view.node(one["name"]) for one in story.scheduler.view.nodes()]
    shares = sum(device["share_used"] for one in held for device in one["devices"]) / 1000
    for resource, capacity in told["capacity"].items():
        assert 0 <= told["used"][resource] <= capacity and told["used_aside"][resource] >= 0
    if "gpu" in told["used"]:
        assert told["used"]["gpu"] + told["used_aside"]["gpu"] == pytest.approx(shares)
