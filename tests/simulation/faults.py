"""What goes wrong, when, by seed: a plan is a list of faults, each with its own luck, so that any part of it can be left out.

To add a fault: a function here with its name in `FAULTS`. It strikes at `at_s` and undoes itself; everything is mended by `mend`
before the world is judged at rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.world import World


class Fault(NamedTuple):
    """`seed`: of its luck."""

    at_s: float
    name: str
    seed: str


def plan(seed: int, hours: float, mean_s: float = 90.0) -> list[Fault]:
    """Faults of that many hours; times are those of a Poisson process."""
    rng = random.Random(f"plan {seed}")
    faults, at_s, number = [], 20.0, 0
    while (at_s := at_s + rng.expovariate(1 / mean_s)) < hours * 3600 - 120:
        faults.append(Fault(at_s, rng.choice(sorted(FAULTS)), f"{seed}.{number}"))
        number += 1
    return faults


def strike(world: World, fault: Fault) -> None:
    """Let it happen."""
    FAULTS[fault.name](world, random.Random(fault.seed))


# ---------------------------------------------------------------------- processes


def kill_daemon(world: World, rng: random.Random) -> None:
    """At once, or in the middle of what it does next."""
    process = world.daemon_process
    if process is not None:
        if rng.random() < 0.3:
            process.kill()
        else:
            process.fuse = rng.randint(1, 400)


def freeze_daemon(world: World, rng: random.Random) -> None:
    process = world.daemon_process
    if process is not None and process.alive:
        process.freeze()
        world.loop.call_outside(process.thaw, after_s=rng.uniform(0.5, 40))


def kill_agent(world: World, rng: random.Random) -> None:
    process = world.agents[rng.choice(world.nodes).name]
    if rng.random() < 0.3:
        process.kill()
    else:
        process.fuse = rng.randint(1, 200)


def freeze_agent(world: World, rng: random.Random) -> None:
    process = world.agents[rng.choice(world.nodes).name]
    process.freeze()
    world.loop.call_outside(process.thaw, after_s=rng.choice((1, 8, 12, 40)) * rng.uniform(0.5, 1.5))


def kill_shim(world: World, rng: random.Random) -> None:
    shims = [shim for node in world.nodes for shim in node.shims.values()]
    if shims:
        process = rng.choice(shims).process
        if rng.random() < 0.5:
            process.kill()
        else:
            process.fuse = rng.randint(1, 10)


def freeze_machine(world: World, rng: random.Random) -> None:
    """A laptop's lid, a hypervisor's pause: its clocks go on, nothing else does."""
    node = rng.choice(world.nodes)
    frozen = list(node.processes)
    for process in frozen:
        process.freeze()
    node.woke_s = float("inf")

    def wake() -> None:
        node.woke_s = world.loop.true_s
        for process in frozen:
            process.thaw()

    world.loop.call_outside(wake, after_s=rng.uniform(1, 60))


def reboot(world: World, rng: random.Random) -> None:
    rng.choice(world.nodes).lose_power()


def power_cut(world: World, rng: random.Random) -> None:
    """A machine goes dark without a word and comes back with another boot id."""
    node = rng.choice(world.nodes)
    world.network.dark.add(node.name)
    for end in world.network.ends:
        if end.process.machine is node:
            end.closed = True  # and nobody says so
    node.lose_power()
    world.loop.call_outside(world.network.dark.discard, node.name, after_s=rng.uniform(1, 60))


# ---------------------------------------------------------------------- store


def kill_server(world: World, rng: random.Random) -> None:
    world.server.kill()
    world.loop.call_outside(world.server.start, after_s=rng.choice((0.1, 1, 6, 30)))


def power_cut_server(world: World, rng: random.Random) -> None:
    world.server.kill(power=True)
    head = world.server.disk.state.head
    world.audit.rewound(head.seq if head else 0)
    world.loop.call_outside(world.server.start, after_s=rng.choice((0.1, 1, 6, 30)))


def freeze_server(world: World, rng: random.Random) -> None:
    process = world.server.process
    if process is not None and process.alive:
        process.freeze()
        world.loop.call_outside(process.thaw, after_s=rng.choice((0.2, 3, 12)))


def slow_disk(world: World, rng: random.Random) -> None:
    server = world.server
    server.sync_s = rng.choice((0.02, 0.3, 3.0))
    world.loop.call_outside(lambda: setattr(server, "sync_s", 0.001), after_s=rng.uniform(1, 30))


def full_server(world: World, rng: random.Random) -> None:
    world.server.refusal = "OOM command not allowed when used memory > 'maxmemory'."
    world.loop.call_outside(lambda: setattr(world.server, "refusal", ""), after_s=rng.uniform(1, 30))


def second_leader(world: World, rng: random.Random) -> None:
    """Somebody starts another daemon on the same store; the first is deposed and does not know it yet."""
    world.start_daemon(
        1 if world.daemon_process is None or world.daemon_process.machine is world.daemon_machines[0] else 0
    )


# ---------------------------------------------------------------------- network


def _machines(world: World) -> list[str]:
    return [*(node.name for node in world.nodes), "d0", "d1", "store", "clients"]


def partition(world: World, rng: random.Random) -> None:
    """Between two machines, both ways."""
    one, other = rng.sample(_machines(world), 2)
    _block(world, [(one, other), (other, one)], rng)


def one_way(world: World, rng: random.Random) -> None:
    """What one says the other does not hear."""
    one, other = rng.sample(_machines(world), 2)
    _block(world, [(one, other)], rng)


def isolate(world: World, rng: random.Random) -> None:
    """One machine from all others."""
    one = rng.choice(_machines(world))
    pairs = [(one, other) for other in _machines(world) if other != one]
    _block(world, pairs + [(b, a) for a, b in pairs], rng)


def _block(world: World, pairs: list[tuple[str, str]], rng: random.Random) -> None:
    network = world.network
    network.blocked.update(pairs)

    def heal() -> None:
        network.blocked.difference_update(pairs)
        network.flow()

    world.loop.call_outside(heal, after_s=rng.choice((2, 9, 14, 40)) * rng.uniform(0.5, 1.5))


def cut_off_and_killed(world: World, rng: random.Random) -> None:
    """The daemon's machine loses the store, goes on with its clients and agents, and dies before it finds the store again."""
    process = world.daemon_process
    if process is None or not process.alive:
        return
    pairs = [(process.machine.name, "store")]
    world.network.blocked.update(pairs)

    def end() -> None:
        process.kill()
        for machine_end in world.network.ends:
            if machine_end.process is process and machine_end.peer.process.machine.name == "store":
                machine_end.cut()  # with it goes what its kernel had not sent
        world.network.blocked.difference_update(pairs)
        world.network.flow()

    world.loop.call_outside(end, after_s=rng.uniform(0.5, 8))


def cut(world: World, rng: random.Random) -> None:
    """Some connections at once; what was on its way is lost."""
    for end in world.network.ends:
        if not end.closed and rng.random() < 0.3:
            end.cut()


def slow_network(world: World, rng: random.Random) -> None:
    world.network.delay_s = rng.choice((0.1, 1.0, 4.0))
    world.loop.call_outside(lambda: setattr(world.network, "delay_s", 0.0), after_s=rng.uniform(2, 30))


# ---------------------------------------------------------------------- clocks and disks


def wall_clock(world: World, rng: random.Random) -> None:
    """Somebody or NTP sets a clock."""
    machine = rng.choice([*world.nodes, *world.daemon_machines])
    machine.wall_offset_s += rng.choice((-86_400, -3600, -2, 2, 3600, 86_400))


def slow_agent_disk(world: World, rng: random.Random) -> None:
    world.loop.disk_s = lambda: rng.uniform(0.0, 2.0)
    world.loop.call_outside(lambda: setattr(world.loop, "disk_s", lambda: 0.0002), after_s=rng.uniform(2, 20))


FAULTS: dict[str, Callable[[World, random.Random], None]] = {
    fault.__name__: fault
    for fault in (
        kill_daemon, freeze_daemon, kill_agent, freeze_agent, kill_shim, freeze_machine, reboot, power_cut,
        kill_server, power_cut_server, freeze_server, slow_disk, full_server, second_leader,
        partition, one_way, isolate, cut, cut_off_and_killed, slow_network, wall_clock, slow_agent_disk,
    )
}  # fmt: skip


def mend(world: World) -> None:
    """Everything that is broken, at once."""
    world.network.dark.clear()
    world.network.blocked.clear()
    world.network.delay_s = 0.0
    world.network.flow()
    world.server.sync_s, world.server.refusal = 0.001, ""
    world.loop.disk_s = lambda: 0.0002
    for node in world.nodes:
        node.woke_s = min(node.woke_s, world.loop.true_s)
    for process in world.loop.processes:
        process.fuse = None
        if process.alive and process.frozen:
            process.thaw()
