"""No scheduler passes the bound of a replay; that by width knows that a task for eight devices needs a node with eight."""

from __future__ import annotations

import random

import pytest

from hetsched.model import DeviceAsk, DeviceSpec, NodeSpec, Resources, Task
from hetsched.sim.read_trace import Pod
from loadtest.replay.measure import bound, rooms
from loadtest.replay.world import Drawn, Job

HOUR_S = 3600.0


def node(gpus: int) -> NodeSpec:
    devices = tuple(DeviceSpec(id=f"gpu-{at}", kind="gpu") for at in range(gpus))
    return NodeSpec(name=f"of-{gpus}", cpu_milli=1000, memory_bytes=1 << 30, devices=devices)


def job(gpus: int, *, hour: float, hours: float, members: int = 1) -> Drawn:
    task = Task(
        name="job", resources=Resources(cpu_milli=1, memory_bytes=1, devices=(DeviceAsk(kind="gpu", whole=gpus),))
    )
    recorded = Job(hour * HOUR_S, hours * HOUR_S, gpus * members, "team")
    return Drawn(recorded, Pod(task, 0, None, 0), 1000 * gpus * members)


def hours(drawn: list[Drawn], *nodes: NodeSpec) -> tuple[float, float]:
    """Device hours at most: of the cluster as one pool of devices, and by width."""
    devices = sum(len(one.devices) for one in nodes)
    return bound(drawn, {1: devices}) / HOUR_S, bound(drawn, rooms(nodes)) / HOUR_S


def test_devices_count_for_tasks_that_their_node_is_wide_enough_for() -> None:
    assert rooms([node(2), node(2), node(8), node(0)]) == {1: 12, 2: 12, 8: 8}


def test_wide_work_has_no_use_of_a_pair() -> None:
    """Sixteen hours of eights come at once, the last submission is after ten."""
    drawn = [job(8, hour=0, hours=8), job(8, hour=0, hours=8), job(1, hour=10, hours=1)]
    assert hours(drawn, node(2), node(8)) == (100, 80)


def test_small_work_fills_the_pair_beside_it() -> None:
    drawn = [job(8, hour=0, hours=20), job(1, hour=0, hours=6), job(2, hour=4, hours=3), job(1, hour=10, hours=1)]
    assert hours(drawn, node(2), node(8)) == (92, 92)
    drawn.append(job(8, hour=0, hours=20))
    assert hours(drawn, node(2), node(8)) == (100, 92)


def test_members_of_a_gang_need_no_more_than_a_member_asks_for() -> None:
    drawn = [job(4, hour=0, hours=10, members=4), job(1, hour=5, hours=1)]
    assert hours(drawn, node(4), node(4)) == (40, 40)


def test_work_that_comes_late_or_runs_on_is_not_counted() -> None:
    assert hours([job(1, hour=0, hours=9), job(1, hour=2, hours=9), job(1, hour=4, hours=1)], node(8)) == (6, 6)


def test_sweeping_finds_the_hours_in_which_wide_work_waits() -> None:
    """An hour of work at once, and from the second hour on there is always work for the eight, until the sixth: five hours in all."""
    drawn = [job(8, hour=0, hours=1), job(8, hour=2, hours=3), job(8, hour=3, hours=4), job(1, hour=6, hours=1)]
    nodes = [node(2), node(8)]
    assert hours(drawn, *nodes) == (46, 46)
    assert bound(drawn, rooms(nodes), sweeps=True) / HOUR_S == 40


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_of_whole_hours_is_within_both(seed: int) -> None:
    """Whoever is there longest gets a node first; jobs are moved from hour to hour, as no scheduler does."""
    rng = random.Random(seed)
    nodes = [node(rng.choice((1, 2, 4, 8))) for _ in range(4)] + [node(8)]
    drawn = [job(rng.choice((1, 2, 4, 8)), hour=rng.randrange(20), hours=rng.randrange(1, 9)) for _ in range(40)]
    left = {at: one.job.duration_s / HOUR_S for at, one in enumerate(drawn)}
    end, done = int(max(one.job.submit_s for one in drawn) / HOUR_S), 0
    for hour in range(end):
        free = [len(one.devices) for one in nodes]
        for at in sorted(left, key=lambda at: drawn[at].job.submit_s):
            there = [number for number, one in enumerate(free) if one >= drawn[at].job.gpus]
            if drawn[at].job.submit_s <= hour * HOUR_S and left[at] > 0 and there:
                free[min(there, key=lambda number: free[number])] -= drawn[at].job.gpus
                left[at] -= 1
                done += drawn[at].job.gpus
    pool, by_width = hours(drawn, *nodes)
    tight = bound(drawn, rooms(nodes), sweeps=True) / HOUR_S
    assert done <= tight <= by_width <= pool
