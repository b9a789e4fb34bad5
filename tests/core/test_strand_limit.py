"""Tasks without devices that would strand too many: with a limit they wait, and only as long as the devices do."""

from __future__ import annotations

import pytest

from hetsched import _core
from hetsched._core import Core

from .world import World


class Lean(World):
    """One node: 16 cores, 2 GPUs that go with 11 cores each. Every core taken strands 91 thousandths of a GPU, worth half."""

    def __init__(self, policy: int = _core.POLICY_PRICE) -> None:
        super().__init__(policy=policy)
        self.node(cpu=16, memory=256, gpus=2)

    def limit(self, milli: int) -> None:
        self.core.set_strand_limit(milli)


def test_with_a_limit_a_task_without_devices_waits_for_them_to_be_taken() -> None:
    world = Lean()
    world.limit(40)
    task = world.task("prepare", world.shape(cpu=4))
    assert world.place() == 0
    verdict = world.core.verdict(world.core.task(task).shape)
    assert (verdict["stranding"], verdict["fits"], verdict["ever"]) == (1, 0, 1)
    world.task("train", world.shape(cpu=8, gpus=2))
    assert world.place() == 2, "no device is left to strand"
    assert world.where(task) == 0
    world.core.check()


@pytest.mark.parametrize(
    ("policy", "milli"), [(_core.POLICY_PRICE, 0), (_core.POLICY_PRICE, 46), (_core.POLICY_PACK, 40)]
)
def test_without_one_or_below_it_or_with_another_preset_nobody_waits(policy: int, milli: int) -> None:
    world = Lean(policy)
    world.limit(milli)
    world.task("prepare", world.shape(cpu=4))
    assert world.place() == 1


def test_a_limit_that_is_lifted_lets_them_go() -> None:
    world = Lean()
    world.limit(40)
    world.task("prepare", world.shape(cpu=4))
    assert world.place() == 0
    world.limit(0)
    assert world.place() == 1


def test_nobody_is_stopped_for_a_task_that_only_the_limit_holds_back() -> None:
    world = Lean()
    world.limit(40)
    world.task("filler", world.shape(cpu=12, gpus=1), qos=2, flags=_core.PREEMPTIBLE)
    assert world.place() == 1
    world.task("urgent", world.shape(cpu=3), qos=0)
    assert world.place() == 0
    assert not [fact for fact in world.facts() if fact[0] == _core.F_STOPPING]


def test_a_limit_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="strand limit"):
        Core().set_strand_limit(-1)
