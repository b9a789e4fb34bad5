"""Do four cells on this machine do as much as four times one cell's share of its cores, and does a cell's death leave the others' p99 alone?

    python loadtest/bench_cells.py [--tasks 20000] [--rounds 3] [--nodes 10] [--seconds 10] [--rate 40] [--durability replicated]

A cluster of six servers (every answer is on the disks of two), a daemon and a simulated fleet for each cell. A task goes all the way:
submitted in lists, placed, started, ended, settled; some go to another cell where theirs is full. One cell first has one core for everything
that belongs to it, then four have all cores. What they do in a second of the daemons' and servers' processor time is compared, as others may
want the same cores; by the clock it is told, too. Then single requests at a steady rate to each cell, and in the middle of them one
cell's daemon and its journal's primary are killed. The last figures are in README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from loadtest import server
from loadtest.fleet import FleetPlan, run_fleet
from loadtest.servers import Servers, own_servers

CELLS = 4
LIST = 500
PATIENCE_S = 120.0
spawn = multiprocessing.get_context("spawn")
wrong: Counter[str] = Counter()
"""What the fleets have counted that must not be."""


class Measured(NamedTuple):
    """Of some cells at work together."""

    tasks: int
    seconds: float
    cpu_s: float

    @property
    def per_cpu_s(self) -> float:
        return self.tasks / self.cpu_s


class Cell:
    """One that runs, with its fleet."""

    def __init__(self, name: str, daemon: server.Server) -> None:
        self.name = name
        self.daemon = daemon
        self._lists = 0

    def post(self, body: bytes) -> Any:
        request = urllib.request.Request(
            self.daemon.url + "/v1/schedule",
            body,
            {"Authorization": f"Bearer {self.daemon.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def submit(self, tasks: int) -> None:
        """So many, in lists."""
        for _ in range(tasks // LIST):
            self._lists += 1
            task = {"id": f"{self.name}-{self._lists}", "resources": {"cpu": 1}, "duration": 0.01}
            self.post(json.dumps({"template": task, "count": LIST}).encode())

    def ended(self) -> int:
        """Ever; what is forgotten counts too."""
        request = urllib.request.Request(
            self.daemon.url + "/metrics", headers={"Authorization": f"Bearer {self.daemon.token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        line = next((line for line in text.splitlines() if line.startswith(ENDED)), f"{ENDED} 0")
        return int(float(line.rpartition(" ")[2]))


ENDED = 'hetsched_attempts_total{outcome="succeeded"}'


@contextlib.contextmanager
def cell(name: str, servers: Servers, options: argparse.Namespace) -> Iterator[Cell]:
    """A daemon of this cell and its nodes, while in the context."""
    sets = [f'store.cell="{name}"', f'store.durability="{options.durability}"', "limits.retention_tasks=1000"]
    sets += [f"cells.spill={str(not options.no_spill).lower()}"]
    with server.own(store=servers.url, sets=sets) as daemon, tempfile.TemporaryDirectory() as place:
        ready, stop = spawn.Event(), spawn.Event()
        plan = FleetPlan(daemon.url, daemon.agent_token, name, options.nodes, Path(place) / "fleet.json")
        fleet = spawn.Process(target=run_fleet, args=(plan, ready, stop), daemon=True)
        fleet.start()
        try:
            assert ready.wait(PATIENCE_S), "the fleet did not connect"
            yield Cell(name, daemon)
        finally:
            stop.set()
            fleet.join(10)
            fleet.kill()
            if plan.result.exists():
                told = json.loads(plan.result.read_text())
                wrong.update({name: told[name] for name in ("started_twice", "overcommitted")})


def measure(cells: list[Cell], servers: Servers, tasks: int) -> Measured:
    """All of them at once, so many tasks each."""

    def cpu_s() -> float:
        return servers.cpu_s() + sum(one.daemon.cost()["cpu_s"] for one in cells)

    def ended() -> int:
        return sum(one.ended() for one in cells)

    wanted = len(cells) * (tasks // LIST * LIST)
    before, before_s, began_s = ended(), cpu_s(), time.perf_counter()
    with ThreadPoolExecutor(len(cells)) as pool:
        list(pool.map(lambda one: one.submit(tasks), cells))
    while (done := ended() - before) < wanted:
        assert time.perf_counter() - began_s < PATIENCE_S, f"{done} of {wanted} tasks came to their end"
        time.sleep(0.25)
    return Measured(wanted, time.perf_counter() - began_s, cpu_s() - before_s)


class Steady:
    """Single requests to one cell at a steady rate, whoever waits for an answer; when each was due and how long it took, in seconds."""

    def __init__(self, found: Cell, rate: float) -> None:
        self.took: list[tuple[float, float]] = []
        self.failed = 0
        self._cell, self._rate = found, rate
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(16)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        begin_s, number = time.monotonic(), 0
        while not self._stop.is_set():
            due_s = begin_s + number / self._rate
            time.sleep(max(0.0, due_s - time.monotonic()))
            self._pool.submit(self._one, due_s, number)
            number += 1

    def _one(self, due_s: float, number: int) -> None:
        task = {"id": f"{self._cell.name}-one{number}", "resources": {"cpu": 1}, "duration": 0.01}
        try:
            self._cell.post(json.dumps(task).encode())
        except OSError:
            self.failed += 1
            return
        self.took.append((due_s, time.monotonic() - due_s))

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._pool.shutdown(wait=True)

    def p99_ms(self, from_s: float, to_s: float) -> float:
        """Of the requests that were due then."""
        found = sorted(took_s for due_s, took_s in self.took if from_s <= due_s < to_s)
        return found[min(len(found) - 1, int(0.99 * len(found)))] * 1e3 if found else float("nan")


def spread(cells: list[Cell], servers: Servers, cores: set[int]) -> None:
    """Let everything that was started so far have these cores."""
    os.sched_setaffinity(0, cores)
    pids = [member.process.pid for member in servers.members] + [one.daemon.pid for one in cells]
    for child in psutil.Process().children(recursive=True):
        if child.pid in pids or "spawn" in " ".join(child.cmdline()):
            for thread in child.threads():
                os.sched_setaffinity(thread.id, cores)


def death(cells: list[Cell], servers: Servers, options: argparse.Namespace) -> None:
    """Kill the first cell, daemon and primary, under a steady load of all; print the others' p99 before and after."""
    load = [Steady(found, options.rate) for found in cells]
    begin_s = time.monotonic() + 2.0
    time.sleep(2.0 + options.seconds)
    died_s = time.monotonic()
    assert cells[0].daemon.pid is not None
    os.kill(cells[0].daemon.pid, signal.SIGKILL)
    servers.primary_of(cells[0].name).kill()
    time.sleep(options.seconds)
    end_s = time.monotonic()
    for each in load:
        each.end()
    before = [each.p99_ms(begin_s, died_s) for each in load[1:]]
    after = [each.p99_ms(died_s, end_s) for each in load[1:]]
    shown = "; ".join(f"{first:.1f} → {then:.1f}" for first, then in zip(before, after, strict=True))
    print(f"one cell dies        p99 of the others' single requests, ms: {shown}")
    print(
        f"                     medians {statistics.median(before):.1f} → {statistics.median(after):.1f}, "
        f"{sum(each.failed for each in load[1:])} of theirs failed, {load[0].failed} of the dead one's"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000, help="a cell and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=10, help="a cell")
    parser.add_argument("--seconds", type=float, default=10.0, help="before and after the death")
    parser.add_argument("--rate", type=float, default=40.0, help="single requests a second and cell")
    parser.add_argument("--durability", default="replicated")
    parser.add_argument("--no-spill", action="store_true", help="no task goes to another cell")
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    with own_servers() as servers, contextlib.ExitStack() as stack:
        first, *others = servers.names(CELLS)
        cells = [stack.enter_context(cell(first, servers, options))]
        measure(cells, servers, options.tasks // 2)  # warms up
        one = [measure(cells, servers, options.tasks) for _ in range(options.rounds)]
        spread(cells, servers, cores)
        cells += [stack.enter_context(cell(name, servers, options)) for name in others]
        measure(cells, servers, options.tasks // 4)
        four = [measure(cells, servers, options.tasks) for _ in range(options.rounds)]
        for words, found in (("one cell, one core", one), (f"{CELLS} cells", four)):
            rate = statistics.median(each.tasks / each.seconds for each in found)
            cost = statistics.median(each.per_cpu_s for each in found)
            print(f"{words:20} {rate:10,.0f} tasks/s by the clock, {cost:10,.0f} by a second of processor time")
        ratio = statistics.median(m.per_cpu_s for m in four) / statistics.median(m.per_cpu_s for m in one)
        rates = [statistics.median(m.tasks / m.seconds for m in found) for found in (four, one)]
        clock = rates[0] / (len(cores) * rates[1])
        print(
            f"of {CELLS} times one cell's share of the cores: {ratio:.2f} by processor time, {clock:.2f} by the clock"
        )
        death(cells, servers, options)
    print(
        f"the fleets say       started twice {wrong['started_twice']}, given more than there is {wrong['overcommitted']}"
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
