"""The batch lane's window is as long as the latency that is wanted allows: on quick and on slow disks, in streams and one by one, and it does
not swing when the load takes a step."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from hetsched.daemon.tuner import Tuner


class Pretended:
    """Tasks that come as a Poisson stream, turns that cost `turn_s` + `task_s` a task, a disk that takes `disk_s`."""

    def __init__(self, tuner: Tuner, seed: int = 1) -> None:
        self.tuner = tuner
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.waits_s: list[float] = []
        self.windows_s: list[float] = []

    def run(
        self, until_s: float, rate_per_s: float, disk_s: float, *, turn_s: float = 0.0003, task_s: float = 5e-6
    ) -> None:
        self.waits_s, self.windows_s = [], []
        arrival_s = self.now_s + self.random.expovariate(rate_per_s)
        while self.now_s < until_s:
            opened_s = max(arrival_s, self.now_s)
            flush_s = opened_s + self.tuner.wait_s
            came = []
            while arrival_s <= flush_s:
                came.append(arrival_s)
                arrival_s += self.random.expovariate(rate_per_s)
            decided_s = flush_s + turn_s + task_s * len(came)
            self.tuner.flushed(mean(flush_s - max(at, opened_s) for at in came) / (flush_s - opened_s), decided_s)
            durable_s = decided_s + disk_s * self.random.uniform(0.7, 1.5)
            self.waits_s += [durable_s - at for at in came]
            self.now_s = decided_s
            self.tuner.released(durable_s - flush_s, durable_s)
            self.windows_s.append(self.tuner.wait_s)


@pytest.mark.parametrize("disk_s", [0.0005, 0.003, 0.012])
@pytest.mark.parametrize("rate_per_s", [5, 300, 20_000])
def test_the_mean_latency_is_what_was_asked_for(rate_per_s: float, disk_s: float) -> None:
    world = Pretended(Tuner(0.02, 0.002, 0.05))
    world.run(20, rate_per_s, disk_s)
    world.run(40, rate_per_s, disk_s)
    assert mean(world.waits_s) == pytest.approx(0.02, rel=0.15)


def test_a_disk_too_slow_for_the_target_gets_the_shortest_window_and_a_fast_one_no_more_than_the_longest() -> None:
    world = Pretended(Tuner(0.02, 0.002, 0.05))
    world.run(10, 500, 0.1)
    assert world.tuner.wait_s == 0.002
    world.tuner.latency_s = 10
    world.run(20, 500, 0.001)
    assert world.tuner.wait_s == 0.05


def test_a_step_of_load_moves_the_window_once_and_it_stays() -> None:
    world = Pretended(Tuner(0.02, 0.002, 0.05))
    for rate_per_s in (50, 30_000, 50, 30_000):
        end_s = world.now_s + 10
        world.run(end_s, rate_per_s, 0.003)
        late = world.windows_s[len(world.windows_s) // 2 :]
        assert max(late) < 1.5 * min(late), rate_per_s
        assert mean(world.waits_s[len(world.waits_s) // 2 :]) == pytest.approx(0.02, rel=0.2)


def test_without_a_target_it_is_fixed() -> None:
    world = Pretended(Tuner(0.0, 0.002, 0.05))
    world.run(5, 100, 0.003)
    assert set(world.windows_s) == {0.05}
