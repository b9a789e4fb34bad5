"""Who goes where, and in what order."""

from __future__ import annotations

import pytest

from hetsched import _core

from .world import BACKGROUND, BEST_EFFORT, CRITICAL, GPU, PRODUCTION, TPU, World


def test_a_task_goes_where_it_fits() -> None:
    world = World()
    world.node(cpu=2)
    big = world.node(cpu=8)
    task = world.task("t", world.shape(cpu=4))
    assert world.place() == 1
    assert world.where(task) == big
    assert world.facts() == [(_core.F_PLACED, task, 1, big, _core.LANE_BATCH, ())]


def test_what_does_not_fit_waits_and_is_placed_when_room_comes() -> None:
    world = World()
    world.node(cpu=4)
    first, second = world.tasks(["a", "b"], world.shape(cpu=3))
    assert world.place() == 1
    assert world.core.waiting(15) == 1
    world.core.ended(first, _core.SUCCEEDED, 0)
    assert world.place() == 1
    assert world.state(second) == _core.PLACED


def test_order_is_priority_then_deadline_then_submission() -> None:
    world = World()
    world.node(cpu=1)
    shape = world.shape(cpu=1)
    tasks = world.tasks(
        ["late", "soon", "first", "none", "second"],
        shape,
        deadlines_ns=[900, 500, _core.NEVER_NS, _core.NEVER_NS, 900],
        priorities=[0, 0, 5, 0, 0],
    )
    order = []
    while world.place():
        (placed,) = [fact[1] for fact in world.facts() if fact[0] == _core.F_PLACED]
        order.append(placed)
        world.core.ended(placed, _core.SUCCEEDED, 0)
    assert [tasks.index(task) for task in order] == [2, 1, 0, 4, 3]


def test_qos_levels_go_before_everything_else() -> None:
    world = World()
    world.node(cpu=1)
    shape = world.shape(cpu=1)
    slots = {
        qos: world.task(f"q{qos}", shape, qos=qos, priority=qos)
        for qos in (BACKGROUND, BEST_EFFORT, PRODUCTION, CRITICAL)
    }
    world.place()
    assert world.state(slots[CRITICAL]) == _core.PLACED
    assert world.core.placement(slots[CRITICAL]).lane == _core.LANE_IMMEDIATE  # type: ignore[union-attr]
    assert [world.core.ahead(slots[qos]) for qos in (PRODUCTION, BEST_EFFORT, BACKGROUND)] == [0, 1, 2]


def test_a_requeued_task_takes_its_old_place() -> None:
    world = World()
    world.node(cpu=1)
    first, second = world.tasks(["a", "b"], world.shape(cpu=1))
    world.place()
    world.core.requeue(first, 2)
    world.place()
    assert world.state(first) == _core.PLACED
    assert world.state(second) == _core.QUEUED
    assert world.core.task(first).attempt == 2


def test_queues_share_by_dominant_share_over_weight() -> None:
    world = World()
    world.node(cpu=30)
    heavy = world.do("add_queue", _core.NONE, 2)
    shape = world.shape(cpu=1)
    world.tasks([f"light-{at}" for at in range(40)], shape)
    world.tasks([f"heavy-{at}" for at in range(40)], shape, queue=heavy)
    assert world.place() == 30
    assert world.core.queue_used(0)[0] == 10000
    assert world.core.queue_used(heavy)[0] == 20000


def test_children_compete_among_themselves() -> None:
    world = World()
    world.node(cpu=16)
    team = world.do("add_queue", _core.NONE, 1)
    one, other = (world.do("add_queue", team, 1) for _ in range(2))
    shape = world.shape(cpu=1)
    for queue in (0, one, other):
        world.tasks([f"{queue}-{at}" for at in range(20)], shape, queue=queue)
    world.place()
    assert [world.core.queue_used(queue)[0] // 1000 for queue in (0, team, one, other)] == [8, 8, 4, 4]


def test_a_limit_holds_for_the_queue_and_all_below_it() -> None:
    world = World()
    world.node(cpu=16, gpus=8)
    team = world.do("add_queue", _core.NONE, 1)
    child = world.do("add_queue", team, 1)
    world.do("set_queue", team, 1, [], [(_core.RESOURCE_KIND + GPU, 1500)])
    world.tasks(["a", "b"], world.shape(gpus=1), queue=child)
    half = world.task("half", world.shape(parts=1, part=500), queue=child)
    assert world.place() == 2
    assert world.state(half) == _core.PLACED
    world.do("set_queue", team, 1, [], [])
    assert world.place() == 1


# ---------------------------------------------------------------- devices


def test_part_devices_are_packed_and_whole_ones_stay_whole() -> None:
    world = World()
    world.node(gpus=4)
    parts = world.tasks(["a", "b", "c"], world.shape(parts=1, part=300))
    world.place()
    assert [world.devices(task) for task in parts] == [((0, 300),)] * 3
    (whole,) = world.tasks(["w"], world.shape(gpus=3))
    world.place()
    assert world.devices(whole) == ((1, 1000), (2, 1000), (3, 1000))


def test_a_part_goes_to_the_device_with_the_smallest_sufficient_rest() -> None:
    world = World()
    world.node(gpus=2)
    for name, part in (("a", 300), ("b", 800)):
        world.task(name, world.shape(parts=1, part=part))
        world.place()
    tight = world.task("c", world.shape(parts=1, part=200))
    world.place()
    assert world.devices(tight) == ((1, 200),)


def test_parts_of_one_ask_lie_on_different_devices() -> None:
    world = World()
    world.node(gpus=2)
    task = world.task("t", world.shape(parts=2, part=400))
    world.place()
    assert sorted(world.devices(task)) == [(0, 400), (1, 400)]
    world.task("no", world.shape(parts=3, part=100))
    assert world.place() == 0


def test_two_and_a_half_devices() -> None:
    world = World()
    world.node(gpus=3)
    task = world.task("t", world.shape(gpus=2, parts=1, part=500))
    world.place()
    assert sorted(share for _, share in world.devices(task)) == [500, 1000, 1000]


def test_device_memory_limits_parts_and_unknown_memory_never_does() -> None:
    world = World()
    world.node(gpus=1, gpu_memory=40)
    shape = world.shape(parts=1, part=100, gpu_memory=15)
    world.tasks(["a", "b", "c"], shape)
    assert world.place() == 2
    world.do("add_node", 64000, 0, [(GPU, -1, -1, -1, -1)])
    assert world.place() == 1


def test_a_device_with_too_little_memory_is_no_device() -> None:
    world = World()
    world.node(gpus=1, gpu_memory=40)
    world.task("t", world.shape(gpus=1, gpu_memory=80))
    assert world.place() == 0
    assert world.core.verdict(0)["device_memory"] == 1


def test_the_best_model_is_taken_first() -> None:
    world = World()
    old, new = world.node(gpus=1, model=0), world.node(gpus=1, model=1)
    tasks = world.tasks(["a", "b", "c"], world.shape(gpus=1, models=(1, 0)))
    world.place()
    assert [world.where(task) for task in tasks] == [new, old, None]
    other = world.shape(gpus=1, models=(5,))
    assert world.core.verdict(other)["model"] == 2


def test_same_numa_is_required_and_groups_without_number_never_count() -> None:
    world = World()
    world.node(gpus=4)
    grouped = world.node(gpus=4, numa=2)
    tasks = world.tasks(["a", "b"], world.shape(gpus=2, same=1))
    three = world.task("three", world.shape(gpus=3, same=1))
    world.place()
    assert [world.where(task) for task in tasks] == [grouped, grouped]
    assert [{index // 2 for index, _ in world.devices(task)} for task in tasks] == [{0}, {1}]
    assert world.where(three) is None
    assert world.core.verdict(world.core.task(three).shape)["topology"] == 1


def test_islands_are_not_broken_up_without_need() -> None:
    world = World()
    world.node(gpus=8, nvlink=4)
    for name, gpus, expected in (("one", 1, {0}), ("four", 4, {4, 5, 6, 7}), ("two", 2, {1, 2})):
        task = world.task(name, world.shape(gpus=gpus))
        world.place()
        assert {index for index, _ in world.devices(task)} == expected


def test_two_kinds_on_one_node() -> None:
    world = World()
    world.node(gpus=2)
    both = world.do("add_node", 8000, 0, [(GPU, -1, -1, -1, -1), (TPU, -1, -1, -1, -1)])
    shape = world.do("add_shape", 0, 0, [(GPU, 1, 0, 0, 0, ()), (TPU, 0, 1, 500, 0, ())], 0)
    task = world.task("t", shape)
    world.place()
    assert world.where(task) == both
    assert world.devices(task) == ((0, 1000), (1, 500))


def test_a_closed_node_and_an_unusable_device_get_nothing_new() -> None:
    world = World()
    node = world.node(gpus=2)
    world.do("set_device_usable", node, 0, False)
    tasks = world.tasks(["a", "b"], world.shape(gpus=1))
    assert world.place() == 1
    assert world.devices(tasks[0]) == ((1, 1000),)
    world.do("set_device_usable", node, 0, True)
    world.do("open_node", node, False)
    assert world.place() == 0
    assert world.core.totals()[2] == (0, 1000)
    world.do("open_node", node, True)
    assert world.place() == 1


# ---------------------------------------------------------------- preferences


def test_levels_rule_out_and_are_liked_in_order() -> None:
    world = World()
    nodes = [world.node(cpu=1) for _ in range(4)]
    shape = world.shape(cpu=1)
    world.do("set_shape_nodes", shape, bytes([2, 0, 7, 1]))
    tasks = world.tasks(["a", "b", "c", "d"], shape)
    world.place()
    assert [world.where(task) for task in tasks] == [nodes[2], nodes[0], nodes[3], None]
    world.do("set_shape_node", shape, nodes[1], 1)
    world.place()
    assert world.where(tasks[3]) == nodes[1]


@pytest.mark.parametrize("policy", range(4))
def test_a_task_without_devices_prefers_nodes_without(policy: int) -> None:
    world = World(policy=policy)
    world.node(cpu=2, gpus=1)
    bare = world.node(cpu=2)
    tasks = world.tasks(["a", "b", "c"], world.shape(cpu=1))
    world.place()
    assert [world.where(task) for task in tasks] == [bare, bare, 0]


def test_pack_fills_and_spread_levels() -> None:
    for policy, expected in ((_core.POLICY_PACK, [0, 0, 0, 0]), (_core.POLICY_SPREAD, [0, 1, 2, 0])):
        world = World(policy=policy)
        for _ in range(3):
            world.node(cpu=8)
        tasks = world.tasks(["a", "b", "c", "d"], world.shape(cpu=2))
        world.place()
        assert [world.where(task) for task in tasks] == expected


def test_fragment_keeps_whole_devices_for_those_who_ask_for_them() -> None:
    """Most ask for two devices: a single one goes where two are left, though another node comes first."""
    world = World(policy=_core.POLICY_FRAGMENT)
    nodes = [world.node(cpu=64, gpus=gpus) for gpus in (2, 3)]
    pair, single = world.shape(gpus=2), world.shape(gpus=1)
    for task in world.tasks([f"pair-{at}" for at in range(80)], pair):
        world.core.ended(task, _core.CANCELLED, 0)
    task = world.task("single", single)
    world.place()
    assert world.where(task) == nodes[1]


def test_fragmentation_counts_what_the_mix_cannot_use() -> None:
    world = World(policy=_core.POLICY_FRAGMENT)
    world.node(cpu=64, gpus=3)
    for task in world.tasks([f"pair-{at}" for at in range(80)], world.shape(gpus=2)):
        world.core.ended(task, _core.CANCELLED, 0)
    assert world.core.fragmentation(GPU) == (0, 3000)
    world.tasks(["a", "b"], world.shape(gpus=1))
    world.place()
    assert world.core.fragmentation(GPU) == (1000, 1000)
    assert world.core.fragmentation(TPU) == (0, 0)


def test_verdicts_name_the_first_reason_per_node() -> None:
    world = World()
    closed = world.node(cpu=64, gpus=1)
    world.do("open_node", closed, False)
    world.node(cpu=1, gpus=1)
    world.node(cpu=64)
    world.node(cpu=64, memory=0, gpus=1)
    ruled_out = world.node(cpu=64, gpus=1)
    world.node(cpu=64, gpus=1)
    shape = world.shape(cpu=2, memory=1, gpus=1)
    world.do("set_shape_node", shape, ruled_out, 0)
    verdict = world.core.verdict(shape)
    assert {reason: count for reason, count in verdict.items() if count} == {
        "closed": 1,
        "cpu": 1,
        "devices": 1,
        "memory": 1,
        "words": 1,
        "fits": 1,
        "ever": 2,
    }
