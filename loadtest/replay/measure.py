"""What a replay is judged by: waits of jobs by class, and how much of the devices worked at every moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.model import NodeSpec, Task
from hetsched.scheduler.messages import Event
from hetsched.sim.summary import OVER
from hetsched.sim.weighted import spread
from loadtest.replay.world import Drawn

Floats = npt.NDArray[np.float64]
Levels = npt.NDArray[np.int64]
HOUR_S = 3600.0


class Measure:
    """A watcher. A gang is one job: it waits until its last member runs."""

    def __init__(self) -> None:
        self.waits_s: dict[str, float] = {}
        self.preempted = 0
        self._submitted_ns: dict[str, int] = {}
        self._tasks: dict[str, Task] = {}
        self._held: dict[str, tuple[int, int, int]] = {}
        self._changes: list[tuple[int, int, int]] = []
        self.lost_s = 0.0

    def submitted(self, task: Task, now_ns: int) -> None:
        assert task.id is not None
        self._tasks[task.id] = task
        self._submitted_ns[job_of(task)] = now_ns

    def happened(self, event: Event) -> None:
        task = event.task
        if task is None:
            return
        if event.event == "placed":
            given = sum(int(one["share"]) for one in event.data["devices"])
            asked = sum(ask.total_milli for ask in self._tasks[task].resources.devices)
            self._held[task] = given, asked, event.t_ns
            self._changes.append((event.t_ns, given, asked))
        elif event.event == "running":
            job = job_of(self._tasks[task])
            if not event.attempt or event.attempt == 1:
                self.waits_s[job] = (event.t_ns - self._submitted_ns[job]) / 1e9
        elif event.event in OVER and task in self._held:
            given, asked, since_ns = self._held.pop(task)
            self._changes.append((event.t_ns, -given, -asked))
            if event.event == "requeued":
                self.preempted += 1
                self.lost_s += (event.t_ns - since_ns) / 1e9 * asked / 1000

    def hours(self, until_s: float) -> tuple[Floats, Floats, Floats]:
        """Devices given, and of them asked for, mean over each hour until then; and how long each hour is, for the last is a part of one."""
        edges = np.append(np.arange(0.0, until_s, HOUR_S), until_s)
        at_s = np.array([0.0] + [ns / 1e9 for ns, _, _ in self._changes])
        out = []
        for column in (1, 2):
            level = np.cumsum([0.0] + [change[column] / 1000 for change in self._changes])
            area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(at_s))))
            last = np.clip(np.searchsorted(at_s, edges, side="right") - 1, 0, None)
            out.append(np.diff(area[last] + level[last] * (edges - at_s[last])) / np.diff(edges))
        return out[0], out[1], np.diff(edges)


def job_of(task: Task) -> str:
    """Of a gang's members the gang."""
    return task.gang.id if task.gang is not None else str(task.id)


def rooms(nodes: Iterable[NodeSpec]) -> dict[int, int]:
    """Devices of all nodes that have at least so many, by how many; 1: all of them. What `bound` counts work by that needs wide nodes."""
    has = [len(node.devices) for node in nodes]
    return {width: sum(count for count in has if count >= width) for width in sorted({1, *has}) if width}


def bound(drawn: Sequence[Drawn], room: Mapping[int, int], *, sweeps: bool = False) -> float:
    """No scheduler can make more device-seconds of work happen before the last submission.

    `room`: devices by how many a task must ask for at least to be kept to them, so {1: devices} takes the cluster for one pool of them, and
    `rooms(nodes)` keeps wide tasks to nodes that are as wide. Jobs are taken as liquid: each may use from nothing to all that it asked for,
    from its submission on. Then the most is a maximum flow, and each cut is an upper bound (weak duality): in an hour of level k the devices
    of `room[k]` count for all jobs that ask for as many, for any other job, and any other hour, its own work or its own width. An hour has
    the lowest level at which a cluster that never idles while there is work for it would be full, of the levels that are tried: all sets of
    them, none, and the first in every hour. The least of these cuts is told; if `sweeps`, it is lowered hour by hour first.
    """
    end_s = max(one.job.submit_s for one in drawn)
    at_s = np.array([one.job.submit_s for one in drawn])
    run_s = np.array([one.job.duration_s for one in drawn])
    wide = np.array([one.milli / 1000 for one in drawn])
    asks = np.array([sum(ask.whole + ask.parts for ask in one.pod.task.resources.devices) for one in drawn])
    edges = np.append(np.arange(0.0, end_s, HOUR_S), end_s)
    needed = [max(level for level in room if level <= ask) for ask in asks]
    levels = sorted({1, *needed})
    kinds = [(at_s[of], run_s[of], wide[of]) for of in (np.equal(needed, level) for level in levels)]
    full = {}
    for at, level in enumerate(levels):
        above = [np.concatenate(part) for part in zip(*kinds[at:], strict=True)]
        full[level] = _full(room[level], edges, *above)
    tried = [np.ones(len(edges) - 1, dtype=np.int64)]
    for count in range(len(levels) + 1):
        for some in combinations(levels, count):
            tried.append(np.select([full[level] for level in some], some, 0) if some else np.zeros_like(tried[0]))

    def cut(which: Levels) -> float:
        return _cut(which, edges, room, dict(zip(levels, kinds, strict=True)))

    return _swept(min(tried, key=cut), (0, *levels), cut) if sweeps else min(map(cut, tried))


def _swept(which: Levels, levels: Sequence[int], cut: Callable[[Levels], float]) -> float:
    """Each hour takes another level where that makes the cut less, over and over until that saves no more than a part in ten thousand."""
    least = cut(which)
    while True:
        before = least
        for hour, level in product(range(len(which)), levels):
            other = which.copy()
            other[hour] = level
            if (told := cut(other)) < least:
                which, least = other, told
        if before - least <= 1e-4 * before:
            return least


def _full(devices: int, edges: Floats, at_s: Floats, run_s: Floats, wide: Floats) -> npt.NDArray[np.bool_]:
    """The hours in which so many devices would all be at work, if these jobs could be split at will."""
    length = np.diff(edges)
    begun = _by_hour(at_s, wide, edges)
    ended = _by_hour(at_s + run_s, wide, edges)
    asked = (begun - ended) / length  # would run if there were devices for all
    full, backlog = np.zeros(len(length), dtype=bool), 0.0
    for hour, want in enumerate(asked):
        backlog = max(0.0, backlog + (want - devices) * length[hour])
        full[hour] = backlog > 0 or want >= devices
    return full


def _by_hour(at_s: Floats, wide: Floats, edges: Floats) -> Floats:
    """Integral over each hour of how wide those are that came before."""
    order = np.argsort(at_s, kind="stable")
    at, level = at_s[order], np.concatenate(([0.0], np.cumsum(wide[order])))
    area = np.concatenate(([0.0], np.cumsum(level[1:-1] * np.diff(at))))
    last = np.searchsorted(at, edges, side="right") - 1
    total = np.where(last >= 0, area[last] + level[last + 1] * (edges - at[last]), 0.0)
    return np.diff(total)


def _cut(
    which: Levels,
    edges: Floats,
    room: Mapping[int, int],
    kinds: Mapping[int, tuple[Floats, Floats, Floats]],
) -> float:
    """`which`: the level of each hour, 0 for none. `kinds`: submission, run time and width of the jobs by the level that they need."""
    length = np.diff(edges)
    total = sum(devices * length[which == level].sum() for level, devices in room.items())
    for level, (at_s, run_s, wide) in kinds.items():
        counted = (which > 0) & (which <= level)  # with the devices of these hours
        rest = np.concatenate(([0.0], np.cumsum(np.where(counted, 0.0, length))))
        total += (wide * np.minimum(run_s, rest[-1] - np.interp(at_s, edges, rest))).sum()
    return float(total)


def by_class(
    drawn: Iterable[Drawn], waits_s: dict[str, float], of: Callable[[Drawn], str]
) -> dict[str, dict[str, Any]]:
    """Waits of each class, with their percentiles from 0 to 100; jobs that never started are counted in `waiting`."""
    classes: dict[str, list[float]] = {}
    waiting: dict[str, int] = {}
    for one in drawn:
        name = of(one)
        wait = waits_s.get(str(one.pod.task.name))
        classes.setdefault(name, [])
        if wait is None:
            waiting[name] = waiting.get(name, 0) + 1
        else:
            classes[name].append(wait)
    return {
        name: {
            "jobs": len(waits),
            "waiting": waiting.get(name, 0),
            **spread(waits),
            "percentiles": [round(float(wait), 1) for wait in np.percentile(waits or [0.0], range(101))],
        }
        for name, waits in classes.items()
    }


def size_of(one: Drawn) -> str:
    """part, 1, 2, 4, 8, or more."""
    if one.milli < 1000:
        return "part"
    return str(one.job.gpus) if one.job.gpus <= 8 else ">8"
