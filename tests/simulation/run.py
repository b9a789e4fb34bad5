"""One world from its beginning to its judgement, and what to do when the judge says no: shrink the plan, print one line that repeats it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation import faults
from tests.simulation.auditor import TERMINAL, Violation
from tests.simulation.clients import Client
from tests.simulation.clockwork import Nothing
from tests.simulation.faults import Fault
from tests.simulation.world import World, simulated

LOOK_S = 1.0
REST_S = 4 * 3600.0
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
    trace: int

    @property
    def clean(self) -> bool:
        return not self.law


def run(seed: int, hours: float = 1.0, plan: list[Fault] | None = None, mutate: Mutate | None = None) -> Verdict:
    """Simulate; what breaks is in the verdict."""
    plan = faults.plan(seed, hours) if plan is None else plan
    struck: Counter[str] = Counter()
    with simulated(seed, mutate) as world:
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
            hash((world.loop.true_s, world.turns, sum(process.steps for process in world.loop.processes))),
        )


async def _live(world: World, seed: int, hours: float, plan: list[Fault], struck: Counter[str]) -> None:
    world.server.start()
    world.start_daemon()
    for number in range(len(world.nodes)):
        world.start_agent(number)
    clients = [Client(world, f"c{number}", f"client {seed} {number}", 12.0) for number in range(3)]
    ahead = sorted(plan, reverse=True)
    end_s = hours * 3600
    while world.loop.true_s < end_s:
        while ahead and ahead[-1].at_s <= world.loop.true_s:
            fault = ahead.pop()
            faults.strike(world, fault)
            struck[fault.name] += 1
        await asyncio.sleep(LOOK_S)
        _supervise(world)
    faults.mend(world)
    for client in clients:
        client.stopping = True
    await _come_to_rest(world, clients)


def _supervise(world: World) -> None:
    """Start again what has died, a second later; raise what broke."""
    if world.loop.broken is not None:
        raise world.loop.broken
    if world.daemon_process is None or not world.daemon_process.alive:
        world.start_daemon(0)
    for number, node in enumerate(world.nodes):
        if not world.agents[node.name].alive and node.name not in world.network.dark:
            world.start_agent(number)


async def _come_to_rest(world: World, clients: list[Client]) -> None:
    """Until all that was accepted has ended; then judge."""
    until_s = world.loop.true_s + REST_S
    while world.loop.true_s < until_s:
        await asyncio.sleep(10.0)
        _supervise(world)
        if world.daemon is None or not world.daemon_process.alive:  # type: ignore[union-attr]
            continue
        states = world.states()
        if all(states.get(task, ("", 0))[0] in TERMINAL for task in world.audit.acknowledged):
            break
    await asyncio.sleep(60.0)
    daemon = world.daemon
    assert daemon is not None
    daemon.scheduler.core.check()
    world.audit.at_rest(world.states())
    if world.server.disk.state.head.seq == daemon.store.position.seq:  # type: ignore[union-attr]
        live, again = daemon.scheduler.digest(), world.replayed_digest()
        if live != again:
            raise Violation("I11", "what the journal replays to is not what lives")


# ---------------------------------------------------------------------- after a violation


def shrink(seed: int, hours: float, law: str, mutate: Mutate | None = None, patience_s: float = 120.0) -> list[Fault]:
    """A smaller plan that breaks the same law: halves, then quarters, … are left out as long as it still does."""
    plan = faults.plan(seed, hours)
    until = time.monotonic() + patience_s
    parts = 2
    while len(plan) > 1 and parts <= len(plan) and time.monotonic() < until:
        size = max(1, len(plan) // parts)
        for start in range(0, len(plan), size):
            less = plan[:start] + plan[start + size :]
            if run(seed, hours, less, mutate).law == law:
                plan, parts = less, max(2, parts - 1)
                break
        else:
            parts *= 2
    return plan


def command(seed: int, hours: float, plan: list[Fault]) -> str:
    """What to type to see it again."""
    whole: list[Any] = faults.plan(seed, hours)
    keep = ",".join(str(whole.index(fault)) for fault in plan)
    return f"python -m tests.simulation --seed {seed} --hours {hours:g} --keep {keep}"
