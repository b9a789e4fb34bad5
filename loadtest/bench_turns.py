"""What does a bulk task cost the scheduler from submission to end, in processor time and in bytes of the journal?

    python -m loadtest.bench_turns [--tasks 100000] [--nodes 60] [--batch 1000] [--kinds 10] [--rounds 3] [--preset price]
    python -m loadtest.bench_turns --flow 10000000

Arrays of `--batch` tasks, one a turn, of `--kinds` kinds in turn; nodes that start what they are told at once and say it ended one turn
later, in columns. The scheduler alone, in this process: no HTTP, no journal, no sockets. The last figures are in README.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable

import psutil

from hetsched import wire
from hetsched.config import from_mapping
from hetsched.daemon.events import EventRing
from hetsched.model import Task, parse_node, parse_submission
from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from hetsched.scheduler.bundles import known_of

MS = 1_000_000
STEPS = ("submit and place", "starts heard", "ends heard")


class Fleet:
    """Nodes that say in columns what they are told in whatever way."""

    def __init__(self) -> None:
        self.running: dict[str, list[tuple[str, int]]] = {}

    def obey(self, orders: Iterable[m.Order]) -> list[m.Input]:
        """What the nodes say to these orders at once."""
        began: dict[str, list[tuple[str, int]]] = {}
        for order in orders:
            if isinstance(order.message, wire.Start):
                began.setdefault(order.node, []).append((order.message.task, order.message.attempt))
        for node, attempts in began.items():
            self.running.setdefault(node, []).extend(attempts)
        return [m.AttemptsStarted(node=node, tasks=t, attempts=a) for node, (t, a) in _columns(began)]

    def ends(self) -> list[m.Input]:
        """All that runs is done."""
        over, self.running = self.running, {}
        return [m.AttemptsSucceeded(node=node, tasks=t, attempts=a) for node, (t, a) in _columns(over)]


def _columns(by_node: dict[str, list[tuple[str, int]]]) -> Iterable[tuple[str, tuple[wire.Ids, bytes]]]:
    return [(node, wire.columns(attempts)) for node, attempts in by_node.items()]


class Run:
    """µs a task by step, and bytes a task."""

    def __init__(self, options: argparse.Namespace) -> None:
        config = from_mapping({"policy": {"preset": options.preset}, "batch": {"size": 1}})
        self.scheduler = Scheduler(config, seed=1)
        self.now_ns = 1_000_000 * MS
        self.seconds = dict.fromkeys(STEPS, 0.0)
        self.bytes = self.placed = 0
        for number in range(options.nodes):
            (spec,) = parse_node({"name": f"n{number}", "cpu": 64, "memory": "256Gi"})
            self.scheduler.step([m.NodeJoined(node=spec, session=1)], self.now_ns)
        fleet = Fleet()
        for number in range(options.tasks // options.batch):
            kind = number % options.kinds
            body = {"resources": {"cpu": f"{500 + 100 * kind}m"}, "labels": {"kind": str(kind)}, "duration": 1}
            (task,) = parse_submission([body]).items
            known = known_of(task) if isinstance(task, Task) else None
            assert known is not None
            asked = m.Array(ticket=1, known=known, base=f"a{number}", count=options.batch)
            self._take(fleet.obey(self._step(STEPS[0], [asked]).orders), STEPS[1])
            self._take(fleet.ends(), STEPS[2])
        self.micros = {step: seconds * 1e6 / options.tasks for step, seconds in self.seconds.items()}

    def _take(self, heard: list[m.Input], step: str) -> None:
        self._step(step, heard)

    def _step(self, step: str, heard: list[m.Input]) -> m.Turn:
        self.now_ns += MS
        began_s = time.thread_time()
        turn = self.scheduler.step(heard, self.now_ns)
        self.seconds[step] += time.thread_time() - began_s
        self.bytes += len(turn.facts)
        return turn


def flow(options: argparse.Namespace) -> None:
    """So many tasks come, are placed and end, a batch at a time: what is in memory after each tenth of them, kept events included."""
    config = from_mapping({"policy": {"preset": options.preset}, "batch": {"size": 1}})
    scheduler, now_ns = Scheduler(config, seed=1), 1_000_000 * MS
    ring = EventRing(config.limits.events_kept)

    def step(heard: list[m.Input]) -> m.Turn:
        nonlocal now_ns
        now_ns += MS
        turn = scheduler.step(heard, now_ns)
        ring.publish(turn.events.parts)
        return turn

    for number in range(options.nodes):
        (spec,) = parse_node({"name": f"n{number}", "cpu": 64, "memory": "256Gi"})
        step([m.NodeJoined(node=spec, session=1)])
    kinds = [_known(kind) for kind in range(options.kinds)]
    batches = options.flow // options.batch
    began_s = time.process_time()
    for number in range(batches):
        base = f"run.0.{number * options.batch}"
        turn = step([m.Array(ticket=1, known=kinds[number % len(kinds)], base=base, count=options.batch)])
        starts = [(order.node, order.message) for order in turn.orders.parts if isinstance(order.message, wire.Starts)]
        step([m.AttemptsSucceeded(node=node, tasks=one.tasks, attempts=one.attempts) for node, one in starts])
        if (number + 1) * 10 // batches > number * 10 // batches:
            done = (number + 1) * options.batch
            spent = (time.process_time() - began_s) * 1e6 / done
            print(
                f"{done:>12,} tasks: {psutil.Process().memory_info().rss / 1e6:.0f} MB, {spent:.2f} µs a task",
                flush=True,
            )


def _known(kind: int) -> m.Known:
    body = {"resources": {"cpu": f"{10 + kind}m"}, "labels": {"kind": str(kind)}, "duration": 1}
    (task,) = parse_submission([body]).items
    known = known_of(task) if isinstance(task, Task) else None
    assert known is not None
    return known


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--kinds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--preset", default="price")
    parser.add_argument("--flow", type=int, help="so many tasks instead, and what is in memory meanwhile")
    options = parser.parse_args()
    if options.flow:
        flow(options)
        return
    runs = [Run(options) for _ in range(options.rounds)]
    for step in STEPS:
        print(f"{step:18}{statistics.median(run.micros[step] for run in runs):8.2f} µs a task")
    total = statistics.median(sum(run.micros.values()) for run in runs)
    print(
        f"{'in all':18}{total:8.2f} µs a task, {1e6 / total:,.0f}/s; {runs[0].bytes / options.tasks:.1f} bytes of the journal"
    )


if __name__ == "__main__":
    main()
