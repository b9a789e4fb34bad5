"""One storm from its beginning to the verdict: what was lost, ran twice, or was counted wrong. Tests want a clean one, the matrix adds up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import redis

from hetsched.client import ENDED
from tests.end_to_end.cluster import eventually, leftovers, running
from tests.faults.storm import Size, Storm, lives
from tests.faults.weather import LEASE_S, Clocks, Disk, Weather
from tests.store.helpers import Server

FAKE = "gpu:A100:8,cpu:16,memory:64Gi"
SETS = [f"agent.lease={LEASE_S:g}", "agent.heartbeat=1", "health.auto_cordon=false", "health.quarantine=false"]


class Verdict(NamedTuple):
    """`lost`: acknowledged and not there, not ended, or ended without having been done. `double`: lives of a task beside each other, attempts
    that began twice. `drift`: looks at which devices and tasks disagreed. `other`: whatever else should not be. `ready_s`: of each start of
    the daemon until it listened."""

    seed: int
    struck: Counter[str]
    tasks: int
    looks: int
    still_looks: int
    lost: list[str]
    double: list[str]
    drift: list[str]
    other: list[str]
    ready_s: list[float]
    restarts: dict[int, int]
    unsynced_bytes: int
    took_s: float

    @property
    def clean(self) -> bool:
        return not (self.lost or self.double or self.drift or self.other)

    def __str__(self) -> str:
        wrong = [*self.lost, *self.double, *self.drift, *self.other][:20]
        return "\n".join(
            [
                f"{self.tasks} tasks, {self.looks} looks, {self.still_looks} of them at rest; ended by itself {self.restarts}",
                *(f"| `{fault}` | {count} |" for fault, count in sorted(self.struck.items())),
                *wrong,
            ]
        )


def trial(directory: Path, size: Size, seed: int = 0) -> Verdict:
    """A storm of that size in an empty directory. `seed` 0: `HETSCHED_SEED`, else a new one; it is printed."""
    seed = seed or int(os.environ.get("HETSCHED_SEED", "0")) or int.from_bytes(os.urandom(3))
    print(f"HETSCHED_SEED={seed}")
    began_s = time.monotonic()
    disk, clocks = Disk(directory), Clocks(directory)
    preload = f"{disk.env['LD_PRELOAD']} {clocks.env['LD_PRELOAD']}"
    env = {**disk.env, **clocks.env, "LD_PRELOAD": preload}
    work = directory / "work"
    work.mkdir(mode=0o777)
    work.chmod(0o777)  # tasks of an agent that is root run as nobody
    directory.chmod(0o711)
    with _store(directory, needed="fill_memory" in size.faults) as (sets, memory):
        with running(directory, agents=3, fake=FAKE, sets=SETS + sets, wired=True, env=env) as cluster:
            storm = Storm(cluster, Weather(cluster, disk, clocks, random.Random(seed), memory), work, size)
            try:
                storm.rage()
                tasks = storm.settle(within_s=120 + size.processes * 0.2)
                eventually(lambda: not any(one["share_used"] for one in cluster.client.devices()["devices"]))
            except AssertionError as error:
                raise AssertionError(f"{error}\n{storm.complaints}\n{cluster.logs()}") from None
            return _judge(storm, tasks, work / "record", seed, time.monotonic() - began_s)


@contextlib.contextmanager
def _store(directory: Path, *, needed: bool) -> Iterator[tuple[list[str], Callable[[int], None]]]:
    """A server of our own whose memory can be bounded; where nobody wants that the daemon has its own."""
    if not needed:
        yield [], lambda limit_bytes: None
        return
    place = directory / "s"
    place.mkdir()
    server = asyncio.run(_started(place))
    client = redis.Redis(unix_socket_path=str(server.socket))

    def bound(room_bytes: int) -> None:
        used = int(client.info("memory")["used_memory"])  # type: ignore[index]
        client.config_set("maxmemory", used + room_bytes if room_bytes else 0)

    try:
        yield [f"store.url={server.url}"], bound
    finally:
        client.close()
        for pid in leftovers(place):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


async def _started(directory: Path) -> Server:
    server = Server(directory)
    await server.start()
    await server.client.aclose()
    return server


def _judge(storm: Storm, tasks: dict[str, dict[str, Any]], record: Path, seed: int, took_s: float) -> Verdict:
    client = storm.cluster.client
    written = lives(record)
    lost = [f"{name} was acknowledged and is not there" for name in sorted(storm.acknowledged - tasks.keys())]
    lost += [f"{name} is {task['state']}" for name, task in tasks.items() if task["state"] not in ENDED]
    other = [f"{name} is there and was not acknowledged" for name in sorted(tasks.keys() - storm.acknowledged)]
    other += [
        f"{name} is {task['state']}, and kills are nobody's failure: {client.task(name)['attempts']}"
        for name, task in tasks.items()
        if task["state"] in ENDED and task["state"] != "succeeded"
    ]
    if not storm.still_looks:
        other.append("not one look at a cluster at rest")
    if len(storm.acknowledged) != storm.size.processes + storm.size.leases:
        other.append(f"only {len(storm.acknowledged)} were acknowledged")
    lost += [f"{name} never began" for name in tasks if name.startswith("p") and name not in written]
    double = []
    for name, life in written.items():
        attempts = client.task(name)["attempts"]
        if life["overlap"]:
            double.append(f"two lives of {name}: {life}, {attempts}")
        if len(life["start"]) != len(set(life["start"])):
            double.append(f"an attempt of {name} began twice: {life}")
        if attempts[-1]["attempt"] not in life["end"]:
            lost.append(f"{name} succeeded without having come to its end: {life}, {attempts}")
    weather = storm.weather
    return Verdict(
        seed,
        storm.struck,
        len(tasks),
        storm.looks,
        storm.still_looks,
        lost,
        double,
        storm.complaints,
        other,
        weather.ready_s,
        weather.restarts,
        weather.unsynced_bytes,
        took_s,
    )


def of(faults: Mapping[str, int], per_strike: tuple[int, int], pause_s: float) -> Size:
    """A storm of these faults: processes and leases for each strike, seconds between two strikes."""
    strikes = sum(faults.values())
    return Size(per_strike[0] * strikes, per_strike[1] * strikes, faults, pause_s * strikes)
