"""What a replay is judged by: waits of jobs by class, and how much of the devices worked at every moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.model import Task
from hetsched.scheduler.messages import Event
from hetsched.sim.summary import OVER
from hetsched.sim.weighted import spread
from loadtest.replay.world import Drawn

Floats = npt.NDArray[np.float64]
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


def bound(drawn: Sequence[Drawn], devices: int) -> float:
    """No scheduler can make more device-seconds of work happen before the last submission.

    Jobs are taken as liquid: each may use from nothing to all that it asked for, from its submission on. Then the most is a maximum flow,
    and each cut is an upper bound (weak duality): in the hours `full` the cluster's capacity counts, for the rest each job's own work or
    its own width. `full` is where a cluster that never idles while there is work would be full; all hours and none are tried too. The
    least of the three is told.
    """
    end_s = max(one.job.submit_s for one in drawn)
    at_s = np.array([one.job.submit_s for one in drawn])
    run_s = np.array([one.job.duration_s for one in drawn])
    wide = np.array([one.milli / 1000 for one in drawn])
    edges = np.append(np.arange(0.0, end_s, HOUR_S), end_s)
    length = np.diff(edges)
    begun = _by_hour(at_s, wide, edges)
    ended = _by_hour(at_s + run_s, wide, edges)
    asked = (begun - ended) / length  # would run if there were devices for all
    full, backlog = np.zeros(len(length), dtype=bool), 0.0
    for hour, want in enumerate(asked):
        backlog = max(0.0, backlog + (want - devices) * length[hour])
        full[hour] = backlog > 0 or want >= devices
    return min(_cut(which, edges, devices, at_s, run_s, wide) for which in (full, ~full & False, full | True))


def _by_hour(at_s: Floats, wide: Floats, edges: Floats) -> Floats:
    """Integral over each hour of how wide those are that came before."""
    order = np.argsort(at_s, kind="stable")
    at, level = at_s[order], np.concatenate(([0.0], np.cumsum(wide[order])))
    area = np.concatenate(([0.0], np.cumsum(level[1:-1] * np.diff(at))))
    last = np.searchsorted(at, edges, side="right") - 1
    total = np.where(last >= 0, area[last] + level[last + 1] * (edges - at[last]), 0.0)
    return np.diff(total)


def _cut(full: npt.NDArray[np.bool_], edges: Floats, devices: int, at_s: Floats, run_s: Floats, wide: Floats) -> float:
    length = np.diff(edges)
    rest = np.concatenate(([0.0], np.cumsum(np.where(full, 0.0, length))))
    before = np.interp(at_s, edges, rest)
    return float(devices * length[full].sum() + (wide * np.minimum(run_s, rest[-1] - before)).sum())


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
