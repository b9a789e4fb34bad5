"""One world from its beginning to its judgement, and what to do when the judge says no: shrink the plan, print one line that repeats it."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation import faults
from tests.simulation.clients import Client
from tests.simulation.clockwork import Nothing
from tests.simulation.coverage import Met
from tests.simulation.faults import Fault
from tests.simulation.laws import Violation
from tests.simulation.pace import DENSE, Pace
from tests.simulation.world import World, simulated

REST_S = 3 * 3600.0
"""Longest the world may need after the last fault until everything has ended."""

Mutate = Callable[[], Callable[[], None]]


class Verdict(NamedTuple):
    """`law` and `sentence` empty: nothing was broken. `trace`: a number that is the same for the same steps."""

    seed: int
    law: str
    sentence: str
    hours: float
    tasks: int
    turns: int
    epochs: int
    struck: Counter[str]
    met: Met
    trace: int

    @property
    def clean(self) -> bool:
        return not self.law


def run(
    seed: int,
    hours: float = 1.0,
    plan: list[Fault] | None = None,
    mutate: Mutate | None = None,
    pace: Pace = DENSE,
    restarts: bool = False,
) -> Verdict:
    """Simulate; what breaks is in the verdict. `restarts`: a process that ends with an error of its own is started again, and the laws judge
    what comes of that; else it is a `crash`."""
    plan = faults.plan(seed, hours, pace.fault_s) if plan is None else plan
    struck: Counter[str] = Counter()
    with simulated(seed, pace, mutate) as world:
        world.restarts = restarts
        law = sentence = ""
        try:
            world.loop.run_until_complete(_live(world, seed, hours, plan, struck))
        except Violation as violation:
            law, sentence = violation.law, str(violation)
        except Nothing as stop:
            law, sentence = "I12", f"everything stands still: {stop}"
        except Exception as error:
            law, sentence = "crash", f"{type(error).__name__}: {error}"
        return Verdict(
            seed,
            law,
            sentence,
            world.loop.true_s / 3600,
            len(world.audit.acknowledged),
            world.turns,
            world.epochs_opened,
            struck,
            world.met,
            hash((world.loop.true_s, world.turns, sum(process.steps for process in world.loop.processes))),
        )


async def _live(world: World, seed: int, hours: float, plan: list[Fault], struck: Counter[str]) -> None:
    world.server.start()
    world.start_daemon()
    for number in range(len(world.nodes)):
        world.start_agent(number)
    clients = [Client(world, f"c{number}", f"client {seed} {number}") for number in range(3)]
    clients.append(Client(world, "watcher", f"watcher {seed}", watches=True))
    ahead = sorted(plan, reverse=True)

    def strike(fault: Fault) -> None:
        world.meet(fault.name)
        struck[fault.name] += 1
        faults.strike(world, fault)
        for client in clients:
            client.stir()

    end_s = hours * 3600
    judge_s = 0.0
    while world.loop.true_s < end_s:
        while ahead and ahead[-1].at_s <= world.loop.true_s:
            fault = ahead.pop()
            if fault.when:
                world.at_state(fault.when, functools.partial(strike, fault))
            else:
                strike(fault)
        await asyncio.sleep(world.pace.scale)
        _supervise(world)
        world.tick()
        if world.loop.true_s >= judge_s:
            judge_s = world.loop.true_s + 60.0 * world.pace.scale
            world.judge()
    faults.mend(world)
    for client in clients:
        client.stopping = True
    await _come_to_rest(world, clients)


def _supervise(world: World) -> None:
    """Start again what has died, a second later; raise what broke."""
    if world.loop.broken is not None:
        if not world.restarts:
            raise world.loop.broken
        world.last_words, world.loop.broken = str(world.loop.broken), None
    if world.daemon_process is not None and world.daemon_process.alive:
        world.opened_s = world.loop.true_s
    elif world.loop.true_s - world.opened_s > world.pace.longest_s:
        raise Violation("I12", f"nobody has led for {world.pace.longest_s:.0f} s: {world.last_words}")
    if not any(process.alive for process in world.daemons.values()):
        world.start_daemon(0)
    for number, node in enumerate(world.nodes):
        if not world.agents[node.name].alive and node.name not in world.network.dark:
            world.start_agent(number)


async def _come_to_rest(world: World, clients: list[Client]) -> None:
    """Until all that was accepted has ended; then judge."""
    until_s = world.loop.true_s + REST_S * world.pace.scale
    waited_for = set(world.audit.acknowledged)
    while world.loop.true_s < until_s:
        await asyncio.sleep(10.0)
        _supervise(world)
        world.tick()
        if world.daemon_process is not None and world.daemon_process.alive:
            waited_for = {task for task in waited_for if not world.has_ended(task)}
        if not waited_for and all(client.is_done for client in clients):
            waited_for = {task for task in world.audit.acknowledged if not world.has_ended(task)}
        if not waited_for and all(client.is_done for client in clients):
            break
    await asyncio.sleep(60.0 * world.pace.scale)
    daemon = world.daemon
    assert daemon is not None
    daemon.scheduler.core.check()
    world.audit.at_rest(world.states())
    world.audit.nobody_holds([(node.name, key) for node in world.nodes for key in node.held()])
    world.judge()
    if world.server.disk.state.head.seq == daemon.store.position.seq:  # type: ignore[union-attr]
        live, again = daemon.scheduler.digest(), world.replayed_digest()
        if live != again:
            raise Violation("I11", "what the journal replays to is not what lives")


def kill_at(seed: int, who: str, step: int, state: str = "placed") -> Verdict:
    """A small world in which the daemon or an agent dies at its `step`-th callback after a task came into that state."""
    plan = [Fault(60.0, f"kill_{who}@{step}", "", state)]
    return run(seed, 0.04, plan)


# ---------------------------------------------------------------------- after a violation


def shrink(
    seed: int, hours: float, mutate: Mutate | None = None, patience_s: float = 120.0, pace: Pace = DENSE
) -> list[Fault]:
    """A smaller plan that breaks the same law: halves, then quarters, … are left out as long as it still does."""
    plan = faults.plan(seed, hours, pace.fault_s)
    until = time.monotonic() + patience_s
    parts = 2
    kind = _kind(run(seed, hours, plan, mutate, pace))
    while len(plan) > 1 and parts <= len(plan) and time.monotonic() < until:
        size = max(1, len(plan) // parts)
        for start in range(0, len(plan), size):
            less = plan[:start] + plan[start + size :]
            if _kind(run(seed, hours, less, mutate, pace)) == kind:
                plan, parts = less, max(2, parts - 1)
                break
        else:
            parts *= 2
    return plan


def _kind(verdict: Verdict) -> str:
    """The law, and of a crash also which."""
    return verdict.sentence.split(":")[0] if verdict.law == "crash" else verdict.law


def command(seed: int, hours: float, plan: list[Fault], pace: Pace = DENSE) -> str:
    """What to type to see it again."""
    whole: list[Any] = faults.plan(seed, hours, pace.fault_s)
    keep = ",".join(str(whole.index(fault)) for fault in plan)
    return f"python -m tests.simulation --pace {pace.name} --seed {seed} --hours {hours:g} --keep {keep}"
