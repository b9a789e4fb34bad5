"""The fragment score against the formula, computed slowly (Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 4)."""

from __future__ import annotations

import random

import pytest

from hetsched import _core

from .world import GPU, World

Shape = tuple[int, int, int, int]  # cores, whole devices, parts, milli of a part
STEP_MILLI = 40


def unusable(cpu_free: int, shares: list[int], shape: Shape) -> int:
    """Free milli on a node that this shape cannot use."""
    cpu, whole, parts, part = shape
    usable = [share for share in shares if share == 1000 or (parts and share >= part)]
    free = shares.count(1000)
    fits = cpu_free >= cpu and free >= whole and len(usable) - whole >= parts
    return sum(shares) - (sum(usable) if fits else 0)


def added(node: tuple[int, list[int]], mix: dict[Shape, int], shape: Shape, pieces: list[tuple[int, int]]) -> int:
    """Milli that a placement makes unusable, weighted by how often each shape of the mix was asked."""
    cpu, shares = node
    after = list(shares)
    for device, share in pieces:
        after[device] -= share
    lost = sum(
        count * (unusable(cpu - shape[0], after, other) - unusable(cpu, shares, other)) for other, count in mix.items()
    )
    return lost // sum(mix.values())


@pytest.mark.parametrize("seed", range(30))
def test_a_placement_adds_least_to_the_fragment(seed: int) -> None:
    rng = random.Random(seed)
    world = World(policy=_core.POLICY_FRAGMENT)
    nodes = [(rng.choice((8, 16, 32)), [1000] * rng.choice((2, 4, 8))) for _ in range(8)]
    for cpu, shares in nodes:
        world.node(cpu=cpu, gpus=len(shares))
    shapes: list[Shape] = [(1, 1, 0, 0), (2, 2, 0, 0), (4, 4, 0, 0), (1, 0, 1, 300), (2, 0, 1, 500), (1, 0, 1, 750)]
    slots = {shape: world.shape(cpu=shape[0], gpus=shape[1], parts=shape[2], part=shape[3]) for shape in shapes}
    mix = {shape: rng.randint(1, 40) for shape in shapes}
    mix[shapes[0]] += 400 - sum(mix.values())
    asked = [shape for shape, count in mix.items() for _ in range(count)]
    for at, shape in enumerate(asked):  # the mix is taken every so often: the last time is what counts
        world.core.ended(world.task(f"past-{at}", slots[shape]), _core.CANCELLED, 0)
    taken = mix_taken(asked)
    state = [(cpu, list(shares)) for cpu, shares in nodes]
    for at in range(40):
        shape = rng.choice(shapes)
        task = world.task(f"now-{at}", slots[shape], flags=_core.PREEMPTIBLE)
        if not world.place():
            world.core.ended(task, _core.CANCELLED, 0)
            continue
        chosen, pieces = world.where(task), list(world.devices(task))
        assert chosen is not None
        offers = [(node, best_pieces(node, shape)) for node in state]
        assert score(added(state[chosen], taken, shape, pieces)) == min(
            score(added(node, taken, shape, offer)) for node, offer in offers if offer
        )
        cpu, shares = state[chosen]
        for device, share in pieces:
            shares[device] -= share
        state[chosen] = (cpu - shape[0], shares)


def score(milli: int) -> int:
    return (milli + 2560) // STEP_MILLI


def mix_taken(asked: list[Shape]) -> dict[Shape, int]:
    """The mix as the core took it last: after 64 arrivals, then whenever as many came as half of those counted."""
    counts: dict[Shape, int] = {}
    taken: dict[Shape, int] = {}
    since, every = 0, 64
    for shape in asked:
        counts[shape] = counts.get(shape, 0) + 1
        since += 1
        if since >= every:
            taken, since = dict(counts), 0
            every = max(64, sum(taken.values()) // 2)
    return taken


def best_pieces(node: tuple[int, list[int]], shape: Shape) -> list[tuple[int, int]]:
    """Devices by the rule: whole ones by index, parts on the tightest; empty if it does not fit."""
    cpu, shares = node
    _, whole, parts, part = shape
    free = [device for device, share in enumerate(shares) if share == 1000][:whole]
    if cpu < shape[0] or len(free) < whole:
        return []
    rest = sorted((share, device) for device, share in enumerate(shares) if device not in free and share >= part)
    if parts and len(rest) < parts:
        return []
    return [(device, 1000) for device in free] + [(device, part) for _, device in rest[:parts]]


def test_the_mix_is_of_the_kind_asked_for() -> None:
    world = World(policy=_core.POLICY_FRAGMENT)
    world.node(gpus=2)
    for at in range(64):
        world.core.ended(world.task(f"cpu-{at}", world.shape(cpu=1)), _core.CANCELLED, 0)
    assert world.core.fragmentation(GPU) == (0, 2000)
