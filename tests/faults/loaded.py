"""A daemon under a million waiting tasks dies, alone, with its journal server, or with the power: how long until it acknowledges and answers.

Promise: what was acknowledged is counted here, while a client goes on submitting and cancelling through every death; after each the daemon's
counts by state and by queue have to be these exactly, and at the end every task is asked for by name.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from hetsched.client import Client
from hetsched.client.problems import Unreachable
from hetsched.errors import Conflict, Unavailable
from tests.end_to_end.cluster import Cluster, eventually, running
from tests.faults.weather import Clocks, Disk, Weather

TASKS = 1_000_000
ARRAY = 100_000
READY_S = 10.0
"""Longest that nobody may be acknowledged after a start, in processor time of daemon and server: who shares the machine with twenty others sees
ten times as much on the clock, which is told as well."""
DEVICES = 8
HOLDER, PROBE = "holder", "probe"
QUEUES = ("default", "research", "vision")
FAULTS = ("kill_daemon", "kill_daemon_and_server", "cut_power")


def kind(number: int) -> dict[str, Any]:
    """One of ten kinds of tasks, all of which need a device; one in ten has a deadline, and with it a timer of its own."""
    task = {
        "resources": {"cpu": 1 + number % 4, "gpu": (0.5, 1, 2)[number % 3]},
        "labels": {"kind": str(number % 10)},
        "queue": QUEUES[number % 3],
        "qos": ("production", "best_effort", "background")[number % 3],
        "duration": 1,
    }
    return {**task, "deadline": 86_400, "on_deadline": "expire"} if number % 10 == 9 else task


class Load:
    """What waits, as the clients were told. `waiting`: by queue; `arrays`: name → how many; `cancelled`: those that are gone from them."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.client, self.random = client, chance
        self.waiting: Counter[str] = Counter()
        self.arrays: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.failed: list[str] = []
        self._queue_of: dict[str, str] = {}
        self._still = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._guarded)

    @property
    def tasks(self) -> int:
        return sum(self.arrays.values())

    def submit(self, count: int) -> None:
        """An array of so many, until it is acknowledged."""
        number = len(self.arrays)
        name, task = f"array{number}", kind(number)
        insist(lambda: self.client.submit({"template": {"id": name, **task}, "count": count}))
        self.note(name, count, task)

    def note(self, name: str, count: int, task: dict[str, Any]) -> None:
        """So many more of this name were acknowledged."""
        self.arrays[name] = self.arrays.get(name, 0) + count
        self.waiting[task["queue"]] += count
        self._queue_of[name] = task["queue"]

    def cancel(self) -> None:
        """One of those that wait."""
        name = self.random.choice(list(self.arrays))
        task = f"{name}-{self.random.randrange(self.arrays[name])}"
        if task not in self.cancelled:
            with contextlib.suppress(Conflict):  # asked again for want of an answer: it is cancelled
                insist(lambda: self.client.cancel(task))
            self.cancelled.add(task)
            self.waiting[self._queue_of[name]] -= 1

    # ------------------------------------------------------------------ going on

    def start(self) -> None:
        """Submit and cancel from now on, through whatever happens."""
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(120)

    def _guarded(self) -> None:
        try:
            while not self._over.wait(0.05):
                with self._still:
                    self.submit(self.random.randint(1, 50))
                    self.cancel()
        except Exception as error:
            self.failed.append(f"the client broke off: {error!r}")

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nothing is under way: what was asked for has its answer."""
        with self._still:
            yield

    # ------------------------------------------------------------------ comparing

    def differences(self) -> list[str]:
        """Between what was acknowledged and what the daemon counts; at rest."""
        counts = self.client.cluster()["tasks"]
        wanted = {"queued": self.tasks - len(self.cancelled), "cancelled": len(self.cancelled), "running": DEVICES}
        wrong = [
            f"{counts[state]} tasks are {state}, not {count}"
            for state, count in wanted.items()
            if counts[state] != count
        ]
        others = {state: count for state, count in counts.items() if count and state not in wanted}
        queues = {queue["name"]: queue["waiting"] for queue in self.client.queues()["queues"]}
        wrong += [
            f"{queues[name]} wait in {name}, not {count}"
            for name, count in self.waiting.items()
            if queues[name] != count
        ]
        return wrong + ([f"there are {others}"] if others else [])

    def missing(self) -> list[str]:
        """Acknowledged tasks that are not there by name, and names that nobody was told; the daemon has to keep all that are cancelled."""
        known = {name: bytearray(count) for name, count in self.arrays.items()}
        strange = []
        for task in self.client.tasks():
            name, _, index = task["id"].rpartition("-")
            if name in known and task["state"] == ("cancelled" if task["id"] in self.cancelled else "queued"):
                known[name][int(index)] += 1
            elif name != HOLDER:
                strange.append(f"{task['id']} is {task['state']}")
        lost = [f"{name}-{index}" for name, seen in known.items() for index, times in enumerate(seen) if times != 1]
        return [*(f"{task} is not there, or not once" for task in lost[:20]), *strange[:20]]


def insist(ask: Any) -> Any:
    """Who gets no answer asks the same again."""
    while True:
        try:
            return ask()
        except (Unreachable, Unavailable):
            time.sleep(0.1)


@contextlib.contextmanager
def _crowded(directory: Path) -> Iterator[tuple[Cluster, Disk, Clocks]]:
    """A cluster whose devices are all taken for good, half of them by processes and half by leases."""
    disk, clocks = Disk(directory), Clocks(directory)
    env = {**disk.env, **clocks.env, "LD_PRELOAD": f"{disk.env['LD_PRELOAD']} {clocks.env['LD_PRELOAD']}"}
    directory.chmod(0o711)
    sets = ["agent.heartbeat=1", "agent.lease=60", "limits.inbox_tasks=300000"]
    with running(directory, agents=1, fake=f"gpu:A100:{DEVICES},cpu:64,memory:256Gi", sets=sets, env=env) as cluster:
        for number in range(DEVICES):
            command = {"command": ["sleep", "86400"]} if number % 2 else {}
            task = {"id": f"{HOLDER}-{number}", "qos": "critical", "resources": {"gpu": 1, "cpu": 1}, **command}
            cluster.client.submit(task)
        eventually(lambda: cluster.client.cluster()["tasks"]["running"] == DEVICES, why="every device is taken")
        yield cluster, disk, clocks


def deaths(directory: Path, runs: int, seed: int, tasks: int = TASKS) -> dict[str, Any]:
    """So many deaths under so many waiting tasks: an outcome for `matrix.py`."""
    print(f"HETSCHED_SEED={seed}")
    chance = random.Random(seed)
    with _crowded(directory) as (cluster, disk, clocks):
        weather = Weather(cluster, disk, clocks, chance)
        load = Load(cluster.client, chance)
        for first in range(0, tasks, ARRAY):
            load.submit(min(ARRAY, tasks - first))
        load.start()
        ready_s, cpu_s, drift = [], [], []
        try:
            for run in range(runs):
                weather.wait(chance.uniform(0, 2))
                weather.strike(FAULTS[run % len(FAULTS)])
                ready_s.append(weather.ready_s[-1] + _until_answered(load, run))
                cpu_s.append(_cpu_s(cluster))
                with load.at_rest():
                    drift += [f"after {run + 1} deaths {wrong}" for wrong in load.differences()]
        finally:
            load.close()
        moved = [task["id"] for task in cluster.client.tasks(state="running") if task["attempt"] != 1]
        lost = load.missing()
    late = [f"ready only after {one:.2f} s of processor time" for one in cpu_s if one > READY_S]
    other = [*load.failed, *late, *(f"{task} was begun again" for task in moved)]
    return {
        "seed": seed,
        "tasks": load.tasks,
        "lost": len(lost),
        "drift": len(drift),
        "other": len(other),
        "ready_s": [round(one, 3) for one in ready_s],
        "ready_cpu_s": [round(one, 3) for one in cpu_s],
        "unsynced_bytes": weather.unsynced_bytes,
        "said": [*lost[:5], *drift[:5], *other[:5]],
    }


def _cpu_s(cluster: Cluster) -> float:
    """Of the daemon and its journal server since they were started."""
    server = cluster.daemon.journal_server()
    spent = [process.cpu_times() for process in (psutil.Process(cluster.daemon.pid), server) if process is not None]
    return sum(times.user + times.system for times in spent)


def _until_answered(load: Load, number: int) -> float:
    """Seconds from now until a submission is acknowledged and what it brought is shown."""
    began_s = time.monotonic()
    task = f"{PROBE}-{number}"
    insist(lambda: load.client.submit({"id": task, **kind(0)}))
    found = insist(lambda: load.client.task(task))
    took_s = time.monotonic() - began_s
    assert found["state"] == "queued", found
    with load.at_rest():
        load.note(PROBE, 1, kind(0))
    return took_s
