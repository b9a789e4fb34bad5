"""What goes wrong, when, by seed: a plan is a list of faults, each with its own luck, so that any part of it can be left out.

To add a fault: a function here with its name in `FAULTS`. It strikes at `at_s` and undoes itself; everything is mended by `mend`
before the world is judged at rest.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.agents import DAEMONS, GPUS
from tests.simulation.kernel import BIRTH_S, Node
from tests.simulation.world import World


class Fault(NamedTuple):
    """`seed`: of its luck. `when`: it waits (not for ever) until some task is in that state, "" = it does not."""

    at_s: float
    name: str
    seed: str
    when: str


MOMENTS = (
    "",
    "",
    "",
    "placed",
    "placed",
    "running",
    "stopping",
    "stopping",
    "backoff",
    "backoff",
    "held",
    "claiming",
    "snapshot",
)
"""States of a task that faults wait for, and the publishing of a snapshot; most are so short that no fault would meet them by chance."""


def plan(seed: int, hours: float, mean_s: float) -> list[Fault]:
    """Faults of that many hours; times are those of a Poisson process. Most worlds know only a few kinds, which therefore meet each other again
    and again: what needs two or three of them at once is found sooner than where everything happens."""
    rng = random.Random(f"plan {seed}")
    faults, at_s, number = [], 20.0, 0
    names = sorted(FAULTS)
    if rng.random() < 0.6:
        names = rng.sample(names, rng.randint(3, 8))
    while (at_s := at_s + rng.expovariate(1 / mean_s)) < hours * 3600 - 120:
        faults.append(Fault(at_s, rng.choice(names), f"{seed}.{number}", rng.choice(MOMENTS)))
        number += 1
    return faults


def strike(world: World, fault: Fault) -> None:
    """Let it happen. `kill_daemon@17`: at the daemon's 17th step from now."""
    name, _, step = fault.name.partition("@")
    if step:
        process = world.daemon_process if name == "kill_daemon" else world.agents[world.nodes[0].name]
        if process is not None:
            process.fuse = int(step)
    else:
        FAULTS[name](world, random.Random(fault.seed))


def _node(world: World, rng: random.Random) -> Node:
    """Any; more often one of those at which the moment has come."""
    here = [node for node in world.nodes if node.name in world.where]
    return rng.choice(here if here and rng.random() < 0.7 else world.nodes)


# ---------------------------------------------------------------------- processes


def kill_daemon(world: World, rng: random.Random) -> None:
    """At once, or in the middle of what it does next."""
    process = rng.choice([world.daemon_process, world.daemon_process, *world.daemons.values()])
    if process is not None:
        if rng.random() < 0.3:
            process.kill()
        else:
            process.fuse = rng.randint(1, 400)


def freeze_daemon(world: World, rng: random.Random) -> None:
    process = world.daemon_process
    if process is not None and process.alive:
        process.freeze()
        world.loop.call_outside(process.thaw, after_s=world.pace.scale * rng.uniform(0.5, 40))


def kill_agent(world: World, rng: random.Random) -> None:
    process = world.agents[_node(world, rng).name]
    if rng.random() < 0.3:
        process.kill()
    else:
        process.fuse = rng.randint(1, 200)


def freeze_agent(world: World, rng: random.Random) -> None:
    process = world.agents[_node(world, rng).name]
    process.freeze()
    world.loop.call_outside(process.thaw, after_s=world.pace.scale * rng.choice((1, 8, 12, 40)) * rng.uniform(0.5, 1.5))


def kill_shim(world: World, rng: random.Random) -> None:
    """Now and then its spawner with it."""
    shims = [shim for node in world.nodes for shim in node.shims.values()]
    if shims:
        shim = rng.choice(shims)
        at_once, steps = rng.random() < 0.5, rng.randint(1, 10)
        shim.is_alone = rng.random() < 0.5
        if at_once:
            shim.process.kill()
        else:
            shim.process.fuse = steps


def freeze_machine(world: World, rng: random.Random) -> None:
    """A laptop's lid, a hypervisor's pause: its clocks go on, nothing else does."""
    node = _node(world, rng)
    for_s = world.pace.scale * rng.uniform(1, 60)
    node.stand_still(world.loop.true_s + for_s)
    world.loop.call_outside(lambda: node.wake(world.loop.true_s), after_s=for_s)


def reboot(world: World, rng: random.Random) -> None:
    _node(world, rng).lose_power()


def power_cut(world: World, rng: random.Random) -> None:
    """A machine goes dark without a word and comes back with another boot id."""
    _go_dark(world, _node(world, rng), rng.uniform(1, 60))


def machine_gone(world: World, rng: random.Random) -> None:
    """The same for minutes; and as often as not the daemon dies with it, so that the next one has never heard of it."""
    _go_dark(world, _node(world, rng), rng.uniform(240, 400))
    if rng.random() < 0.5:
        kill_daemon(world, rng)


def _go_dark(world: World, node: Node, for_s: float) -> None:
    since_s = node.dark_since_s = world.loop.true_s
    world.network.dark.add(node.name)
    for end in world.network.ends:
        if end.process.machine is node:
            end.closed = True  # and nobody says so
    node.lose_power()

    def come_back() -> None:
        if node.dark_since_s == since_s:
            world.network.dark.discard(node.name)
            world.network.flow()

    world.loop.call_outside(come_back, after_s=world.pace.scale * for_s)


# ---------------------------------------------------------------------- store


def kill_server(world: World, rng: random.Random) -> None:
    world.server.kill()
    world.loop.call_outside(world.server.start, after_s=world.pace.scale * rng.choice((0.1, 1, 6, 30)))


def power_cut_server(world: World, rng: random.Random) -> None:
    world.server.kill(power=not world.regressed)
    if not world.regressed:
        head = world.server.disk.state.head
        world.audit.rewound(head.seq if head else 0)
    world.loop.call_outside(world.server.start, after_s=world.pace.scale * rng.choice((0.1, 1, 6, 30)))


def freeze_server(world: World, rng: random.Random) -> None:
    process = world.server.process
    if process is not None and process.alive:
        process.freeze()
        world.loop.call_outside(process.thaw, after_s=world.pace.scale * rng.choice((0.2, 3, 12)))


def slow_disk(world: World, rng: random.Random) -> None:
    server = world.server
    server.sync_s = rng.choice((0.02, 0.3, 3.0))
    world.loop.call_outside(lambda: setattr(server, "sync_s", 0.001), after_s=world.pace.scale * rng.uniform(1, 30))


def full_server(world: World, rng: random.Random) -> None:
    world.server.refusal = "OOM command not allowed when used memory > 'maxmemory'."
    world.loop.call_outside(lambda: setattr(world.server, "refusal", ""), after_s=world.pace.scale * rng.uniform(1, 30))


def replica_server(world: World, rng: random.Random) -> None:
    """A failover has made it a replica: it takes nothing until it is a primary again."""
    world.server.is_replica = True
    world.loop.call_outside(setattr, world.server, "is_replica", False, after_s=world.pace.scale * rng.uniform(1, 30))


def lost_answers(world: World, rng: random.Random) -> None:
    """Of the next appends any prefix is applied and nobody says so."""
    world.server.answers_to_lose = rng.randint(1, 4)


def regressed_store(world: World, rng: random.Random) -> None:
    """The server comes back without frames that it had confirmed, until an operator restores them. What the daemon's own disk remembers must
    be enough to notice, so it is less than that."""
    process = world.daemon_process
    if process is None or not process.alive or process.machine is not world.daemon_machines[0] or world.regressed:
        return
    if 1 in world.daemons and world.daemons[1].alive:  # a standby's own disk may remember less
        return
    if world.server.regress(world.remembered_seq()):
        world.regressed = True

        def restore() -> None:
            world.server.restore()
            world.regressed = False

        world.loop.call_outside(restore, after_s=world.pace.scale * rng.uniform(10, 40))


def second_leader(world: World, rng: random.Random) -> None:
    """Another daemon is started on the same store: it stands by, and leads as soon as it may."""
    if not world.regressed:  # its own disk may remember less
        world.start_daemon(_other_machine(world))


def frozen_leader(world: World, rng: random.Random) -> None:
    """The leader stands still, another one takes over, and the first wakes up in the middle of its sentence."""
    process = world.daemon_process
    if process is None or not process.alive or world.regressed:
        return
    process.freeze()
    world.loop.call_outside(second_leader, world, rng, after_s=rng.uniform(0.1, 5))
    world.loop.call_outside(process.thaw, after_s=world.pace.scale * rng.choice((6, 20, 60)))


def cut_off_leader(world: World, rng: random.Random) -> None:
    """The leader loses the store but not all of its agents and clients, and another one takes over."""
    process = world.daemon_process
    if process is not None and process.alive and not world.regressed:
        name = process.machine.name
        _block(world, [(name, "store"), ("store", name)], rng)
        world.start_daemon(_other_machine(world))
        lost = [end for end in world.network.ends if end.process is process and end.is_answering and rng.random() < 0.5]
        world.loop.call_outside(lambda: [end.cut() for end in lost], after_s=world.pace.scale * rng.uniform(3, 10))


def _other_machine(world: World) -> int:
    return 1 if world.daemon_process is None or world.daemon_process.machine is world.daemon_machines[0] else 0


# ---------------------------------------------------------------------- network


def _machines(world: World) -> list[str]:
    return [*(node.name for node in world.nodes), *DAEMONS, "store", "clients"]


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


def _block(world: World, pairs: list[tuple[str, str]], rng: random.Random, for_s: float | None = None) -> None:
    network = world.network
    if for_s is None:
        for_s = world.pace.scale * rng.choice((2, 9, 14, 40)) * rng.uniform(0.5, 1.5)
    network.blocked.update(pairs)

    def heal() -> None:
        network.blocked.difference_update(pairs)
        network.flow()

    world.loop.call_outside(heal, after_s=for_s)


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

    world.loop.call_outside(end, after_s=world.pace.scale * rng.uniform(0.5, 8))


def answered_and_powerless(world: World, rng: random.Random) -> None:
    """Slow disks below the store, and then its power and the daemon's go while frames are applied and not yet synced."""
    server, process = world.server, world.daemon_process
    if process is None or not process.alive or server.process is None or not server.process.alive:
        return
    server.sync_s = 2.0

    def end() -> None:
        server.sync_s = 0.001
        power_cut_server(world, rng)
        process.kill()

    world.loop.call_outside(end, after_s=rng.uniform(1, 12))


def hasty_successor(world: World, rng: random.Random) -> None:
    """The store's clock jumps ahead while its leader is cut off from it: another daemon leads, and the first one does not know until its own
    lease is over. One node hears only the first, from the beginning or after it has heard the second, which it could perhaps not note: its disk
    was full."""
    process = world.daemon_process
    if process is None or not process.alive or world.regressed:
        return
    other = _other_machine(world)
    one, two = process.machine.name, world.daemon_machines[other].name
    node, scale, clock = _node(world, rng).name, world.pace.scale, world.server.machine
    world.start_daemon(other)
    _block(world, [(one, "store"), ("store", one)], rng, scale * rng.choice((9, 40)) * rng.uniform(0.7, 1.5))
    only_the_first = functools.partial(
        _block, world, [(node, two), (two, node)], rng, scale * rng.choice((10, 40, 70)) * rng.uniform(0.7, 1.3)
    )
    if rng.random() < 0.5:
        only_the_first()
    else:  # it goes over to the second one and comes back
        over_s = scale * rng.uniform(1, 5)
        back_s = over_s + scale * rng.uniform(1, 4)
        chance = random.Random(f"{over_s}")  # of its own, so that the other worlds stay what they are
        if chance.random() < 0.5:
            back_s += scale * chance.uniform(2, 4)  # long enough to have obeyed
        if chance.random() < 0.5:
            there = next(one for one in world.nodes if one.name == node)
            world.loop.call_outside(setattr, there, "disk_is_full", True, after_s=over_s)
            world.loop.call_outside(setattr, there, "disk_is_full", False, after_s=back_s)
        world.loop.call_outside(_cut_lines_of, world, node, after_s=over_s)
        world.loop.call_outside(only_the_first, after_s=back_s)
        world.loop.call_outside(_cut_lines_of, world, node, after_s=back_s)
    world.loop.call_outside(
        lambda: setattr(clock, "wall_offset_s", clock.wall_offset_s + 3600), after_s=scale * rng.uniform(0.1, 1)
    )


def _cut_lines_of(world: World, machine: str) -> None:
    for end in world.network.ends:
        if not end.closed and end.process.machine.name == machine:
            end.cut()


def late_acknowledgements(world: World, rng: random.Random) -> None:
    """For some seconds a node hears nothing; then it is not heard either; then it hears what was said to it before."""
    scale, node = world.pace.scale, _node(world, rng).name
    after_s = scale * rng.uniform(3, 5)
    _block(world, [(daemon, node) for daemon in DAEMONS], rng, after_s + scale * rng.uniform(2, 8))
    world.loop.call_outside(
        _block, world, [(node, daemon) for daemon in DAEMONS], rng, scale * rng.uniform(20, 60), after_s=after_s
    )


def jumbled(world: World, rng: random.Random) -> None:
    """Messages between daemon, agents and clients come twice, out of order, or seconds late."""
    world.network.jumble = rng.choice((0.1, 0.5))
    world.loop.call_outside(setattr, world.network, "jumble", 0.0, after_s=world.pace.scale * rng.uniform(5, 30))


def cut(world: World, rng: random.Random) -> None:
    """Some connections at once; what was on its way is lost."""
    for end in world.network.ends:
        if not end.closed and rng.random() < 0.3:
            end.cut()


def slow_network(world: World, rng: random.Random) -> None:
    world.network.delay_s = rng.choice((0.1, 1.0, 4.0))
    world.loop.call_outside(
        lambda: setattr(world.network, "delay_s", 0.0), after_s=world.pace.scale * rng.uniform(2, 30)
    )


# ---------------------------------------------------------------------- clocks and disks


def wall_clock(world: World, rng: random.Random) -> None:
    """Somebody or NTP sets a clock."""
    machine = rng.choice([*world.nodes, *world.daemon_machines, world.server.machine])
    machine.wall_offset_s += rng.choice((-86_400, -3600, -2, 2, 3600, 86_400))


def slow_agent_disk(world: World, rng: random.Random) -> None:
    world.loop.disk_s = lambda: rng.uniform(0.0, 2.0)
    world.loop.call_outside(
        lambda: setattr(world.loop, "disk_s", lambda: 0.0002), after_s=world.pace.scale * rng.uniform(2, 20)
    )


def clock_rate(world: World, rng: random.Random) -> None:
    """A quartz gets warm: that machine's seconds are up to two hundredths longer or shorter."""
    machine = rng.choice([*world.nodes, *world.daemon_machines])
    machine.run_at(1 + rng.uniform(-0.02, 0.02), world.loop.true_s)


def full_agent_disk(world: World, rng: random.Random) -> None:
    """Nothing can be written on that machine."""
    node = _node(world, rng)
    node.disk_is_full = True
    world.loop.call_outside(setattr, node, "disk_is_full", False, after_s=world.pace.scale * rng.uniform(2, 40))


def slow_births(world: World, rng: random.Random) -> None:
    """A machine that pages: shims are born seconds after they were ordered; and the agent that ordered them may be dead by then, or was frozen
    for longer than a lease and has joined again."""
    node = _node(world, rng)
    node.birth_s = world.pace.scale * rng.uniform(1, 12)
    world.loop.call_outside(setattr, node, "birth_s", BIRTH_S, after_s=world.pace.scale * rng.uniform(10, 40))
    for _ in range(rng.randint(0, 3)):
        world.loop.call_outside(lambda: world.agents[node.name].kill(), after_s=world.pace.scale * rng.uniform(0.5, 40))
    if rng.random() < 0.4:
        node.birth_s = world.pace.birth_s * rng.uniform(0.6, 1)

        def freeze() -> None:
            agent = world.agents[node.name]
            agent.freeze()
            world.loop.call_outside(agent.thaw, after_s=world.pace.scale * rng.uniform(15, 32))

        world.loop.call_outside(freeze, after_s=world.pace.scale * rng.uniform(0.5, 10))


def set_back_and_killed(world: World, rng: random.Random) -> None:
    """The daemon's machine is told an earlier time, and the daemon dies; or the store's is, and it dies while another one stands by."""
    process, back_s = world.daemon_process, rng.choice((2, 600, 86_400))
    if process is None:
        return
    if rng.random() < 0.6 or world.regressed:

        def strike() -> None:
            process.machine.wall_offset_s -= back_s
            process.kill()

        world.at_state("snapshot", strike)  # the next one begins with that, and with what time it says
    else:
        world.start_daemon(_other_machine(world))
        world.server.machine.wall_offset_s -= back_s
        world.loop.call_outside(process.kill, after_s=world.pace.scale * rng.uniform(3, 20))


def rush(world: World, rng: random.Random) -> None:
    """More urgent and long work than there is room for; and then there is a machine less."""
    world.rush_until_s = world.loop.true_s + 15 * world.pace.scale
    node, for_s = _node(world, rng), rng.uniform(20, 200)
    world.loop.call_outside(_go_dark, world, node, for_s, after_s=world.pace.scale * rng.uniform(5, 30))


def device_fails(world: World, rng: random.Random) -> None:
    """One device is failed or suspect, and well again later."""
    node, device = _node(world, rng), f"gpu-{rng.randrange(GPUS)}"
    node.sick[device] = rng.choice(("failed", "failed", "suspect"))
    world.loop.call_outside(node.sick.pop, device, None, after_s=world.pace.scale * rng.uniform(5, 120))


FAULTS: dict[str, Callable[[World, random.Random], None]] = {
    fault.__name__: fault
    for fault in (
        kill_daemon, freeze_daemon, kill_agent, freeze_agent, kill_shim, freeze_machine, reboot, power_cut, machine_gone,
        kill_server, power_cut_server, freeze_server, slow_disk, full_server, replica_server, lost_answers,
        regressed_store, second_leader, frozen_leader, cut_off_leader,
        partition, one_way, isolate, cut, cut_off_and_killed, answered_and_powerless, slow_network, jumbled,
        hasty_successor, late_acknowledgements, set_back_and_killed,
        wall_clock, clock_rate, slow_agent_disk, full_agent_disk, device_fails, slow_births, rush,
    )
}  # fmt: skip


def mend(world: World) -> None:
    """Everything that is broken, at once; and nothing breaks from now on."""
    world.disarm()
    world.network.dark.clear()
    world.network.blocked.clear()
    world.network.delay_s = 0.0
    world.network.flow()
    world.network.jumble = 0.0
    server = world.server
    server.sync_s, server.refusal, server.is_replica, server.answers_to_lose = 0.001, "", False, 0
    world.loop.disk_s = lambda: 0.0002
    server.restore()
    world.regressed = False
    for node in world.nodes:
        node.still_until_s = min(node.still_until_s, world.loop.true_s)
        node.disk_is_full = False
        node.birth_s = BIRTH_S
        node.sick.clear()
    for process in world.loop.processes:
        process.fuse = None
        if process.alive and process.frozen:
            process.thaw()
