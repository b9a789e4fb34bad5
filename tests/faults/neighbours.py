"""What the neighbours of a dead cell notice: single requests to the other cells while its daemon lives, and while it is dead.

Promise: requests come at a steady rate whoever waits for an answer, and a request's time counts from when it was due, so that standing
still is seen. Some tasks only the dead cell can run; what was acknowledged is counted, and once all is at rest as many have succeeded.
"""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import psutil

from tests.daemon.process import JSON
from tests.end_to_end.cluster import eventually
from tests.faults.cells import PATIENCE_S, Cell, Cells

ALIVE, DEAD = "alive", "dead"


class Phase(NamedTuple):
    """From when to when, in seconds of the monotonic clock. `cpu_s`: that the other cells' daemons used in it."""

    name: str
    begin_s: float
    end_s: float
    cpu_s: float


class Asker:
    """One connection to one cell, and a request on it `rate` times a second. `took`: when each was due, and its seconds until the answer."""

    def __init__(self, cell: Cell, body: Callable[[int], dict[str, Any]], rate: float) -> None:
        self.cell, self.body, self.rate = cell, body, rate
        self.took: list[tuple[float, float]] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.cell.daemon.port, timeout=PATIENCE_S)
        headers, begin_s, number = {**self.cell.daemon.headers(), **JSON}, time.monotonic(), 0
        while not self._stop.wait(max(0.0, (due_s := begin_s + number / self.rate) - time.monotonic())):
            task = {"id": f"{self.cell.name}-{number}", **self.body(number)}
            try:
                connection.request("POST", "/v1/schedule", json.dumps(task), headers)
                answer = connection.getresponse()
                said = answer.read()
                if answer.status != 202:
                    self.failed.append(f"{task['id']}: {answer.status} {said[:200]!r}")
            except OSError as error:
                self.failed.append(f"{task['id']}: {error!r}")
                connection.close()  # the next request opens another
            self.took.append((due_s, time.monotonic() - due_s))
            number += 1
        connection.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def within(self, phase: Phase) -> list[float]:
        return [took_s for due_s, took_s in self.took if phase.begin_s <= due_s < phase.end_s]


class Noticed(NamedTuple):
    """Of all rounds. `failed`: requests to those that live; `requests`: to them."""

    phases: list[Phase]
    askers: list[Asker]

    @property
    def requests(self) -> int:
        return sum(len(asker.took) for asker in self.askers)

    @property
    def failed(self) -> list[str]:
        return [sentence for asker in self.askers for sentence in asker.failed]

    def times_s(self, name: str) -> list[list[float]]:
        """In each phase of that name, what requests to all neighbours took."""
        return [
            sorted(one for asker in self.askers for one in asker.within(phase))
            for phase in self.phases
            if phase.name == name
        ]

    def ratio(self, percent: int) -> float:
        """Of this percentile while the cell is dead to the one while it lives: the median of all rounds, each compared with its own."""
        alive, dead = ([percentile(times, percent) for times in self.times_s(name)] for name in (ALIVE, DEAD))
        return statistics.median(after / before for before, after in zip(alive, dead, strict=True))

    def pooled_ms(self, name: str, percent: int) -> float:
        return percentile(sorted(one for times in self.times_s(name) for one in times), percent) * 1e3

    def cpu_us(self, name: str) -> float:
        """Processor time of the neighbours' daemons a request."""
        phases = [phase for phase in self.phases if phase.name == name]
        return sum(phase.cpu_s for phase in phases) / sum(map(len, self.times_s(name))) * 1e6


def watch(
    cells: Cells, victim: str, body: Callable[[int], dict[str, Any]], *, rounds: int, phase_s: float, rate: float
) -> Noticed:
    """The victim lives for so long, is dead for so long, and comes back: so many times, while the others are asked."""
    others = [cell for cell in cells.cells.values() if cell.name != victim]
    daemon = cells.cells[victim].daemon
    askers = [Asker(cell, body, rate) for cell in others]
    phases = []
    try:
        time.sleep(2.0)  # connections, and what is compiled or read at the first request
        for _ in range(rounds):
            phases.append(_phase(ALIVE, others, phase_s))
            daemon.kill()
            phases.append(_phase(DEAD, others, phase_s))
            daemon.start(PATIENCE_S)
            eventually(cells.all_heard, within_s=PATIENCE_S, why="all have heard of it again")
            time.sleep(2.0)  # what waited for it has gone there
    finally:
        for asker in askers:
            asker.close()
    return Noticed(phases, askers)


def _phase(name: str, others: list[Cell], length_s: float) -> Phase:
    began_s, before_s = time.monotonic(), _cpu_s(others)
    time.sleep(length_s)
    return Phase(name, began_s, time.monotonic(), _cpu_s(others) - before_s)


def _cpu_s(cells: list[Cell]) -> float:
    spent = [psutil.Process(cell.daemon.pid).cpu_times() for cell in cells]
    return sum(times.user + times.system for times in spent)


def percentile(ordered: list[float], percent: int) -> float:
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
