"""Which part of a graph goes where, and in which order: HEFT (Topcuoglu, Hariri and Wu, Performance-Effective and Low-Complexity Task
Scheduling for Heterogeneous Computing, IEEE TPDS 13, 2002), on nodes that hold several at once.

The rank of a job is the longest way from its start to the end of the graph, with mean run times and transfers. In order of rank each job
gets the node on which it ends first, in a gap of the timetable where it fits into one; that may be a fast device which is busy now.
Differences to the paper: a job fetches its data when it starts and holds its device meanwhile (nobody moves data ahead here); a divisible
job takes all the places it may run on at once; and how run times are averaged for the rank is tried in three ways where that is cheap, for
none of them is best on all graphs (Zhao and Sakellariou, Euro-Par 2003).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hetsched.policy.timetable import NEVER, Ask, Timetable

MEAN, FASTEST, SLOWEST = "mean", "fastest", "slowest"
WEIGHINGS = (MEAN, FASTEST, SLOWEST)


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A job may run on `place` (its number in the plan) as its `alternative`, on devices of `model`. `units`: how many at once there."""

    place: int
    alternative: int
    model: str
    seconds_per_work: float
    ask: Ask
    units: int


class Job(msgspec.Struct, frozen=True, gc=False):
    """`work` left to do. `after`: (job, bytes). Jobs that are alike share one list of choices."""

    work: float
    choices: Sequence[Choice]
    after: Sequence[tuple[int, int]]
    is_divisible: bool = False


class Planned(msgspec.Struct, frozen=True, gc=False):
    """Seconds from the moment of planning. `choice` None: a divisible job, on whatever it may run."""

    choice: Choice | None
    start_s: float
    end_s: float


class Begun(msgspec.Struct, frozen=True, gc=False):
    """A job that needs no planning (any more). `parts`: how much of it (to be) made at which place, in all 1."""

    end_s: float
    parts: Mapping[int, float]


def run_s(job: Job, weighing: str = MEAN) -> float:
    """Of the whole job, over all that it may run on; a divisible one on all of it together."""
    if not job.choices:
        return 0.0
    if job.is_divisible:
        return job.work / sum(choice.units / choice.seconds_per_work for choice in job.choices)
    if weighing == MEAN:
        units = sum(choice.units for choice in job.choices)
        return job.work * sum(choice.units * choice.seconds_per_work for choice in job.choices) / units
    each = (choice.seconds_per_work for choice in job.choices)
    return job.work * (min(each) if weighing == FASTEST else max(each))


def upward_ranks(jobs: Sequence[Job], order: Sequence[int], bytes_per_s: float, weighing: str = MEAN) -> list[float]:
    """Of every job. `order`: parents before children."""
    ranking = Ranking(jobs, order, bytes_per_s, weighing)
    ranking.go_on(len(jobs))
    return ranking.ranks


class Ranking:
    """The same, so many jobs at a time: `ranks` is done when `left` is 0."""

    def __init__(self, jobs: Sequence[Job], order: Sequence[int], bytes_per_s: float, weighing: str = MEAN) -> None:
        self.ranks = [0.0] * len(jobs)
        self.left = len(jobs)
        self._jobs, self._order, self._bytes_per_s, self._weighing = jobs, order, bytes_per_s, weighing
        self._below = [0.0] * len(jobs)
        self._cost: dict[tuple[int, float, bool], float] = {}

    def go_on(self, count: int) -> None:
        """Children before parents."""
        jobs, order, below = self._jobs, self._order, self._below
        while count > 0 and self.left > 0:
            count, self.left = count - 1, self.left - 1
            at = order[self.left]
            job = jobs[at]
            key = (id(job.choices), job.work, job.is_divisible)
            cost = self._cost.get(key)
            if cost is None:
                cost = self._cost[key] = run_s(job, self._weighing)
            rank = self.ranks[at] = cost + below[at]
            for parent, data_bytes in job.after:
                below[parent] = max(below[parent], rank + data_bytes / self._bytes_per_s)


class Plan:
    """`tables` are reserved into as it grows. `planned`: by job; `end_s`: when the last one ends."""

    def __init__(self, tables: Sequence[Timetable], bytes_per_s: float, begun: Mapping[int, Begun]) -> None:
        self.tables = tables
        self.bytes_per_s = bytes_per_s
        self.planned: dict[int, Planned] = {}
        self.end_s = max((one.end_s for one in begun.values()), default=0.0)
        self._begun = dict(begun)

    def fill(self, jobs: Sequence[Job], sequence: Iterable[int]) -> Plan:
        """Plan these jobs one after the other; parents come first. A job that nothing can run is left out, and what needs it."""
        for at in sequence:
            job = jobs[at]
            if all(parent in self._begun for parent, _ in job.after):
                ready_s = max((self._begun[parent].end_s for parent, _ in job.after), default=0.0)
                planned = self._spread(job, ready_s) if job.is_divisible else self._place(job, max(0.0, ready_s))
                if planned is not None:
                    self._note(at, planned)
        return self

    def _note(self, at: int, planned: Planned) -> None:
        self.planned[at] = planned
        parts = {} if planned.choice is None else {planned.choice.place: 1.0}
        self._begun.setdefault(at, Begun(planned.end_s, parts))
        self.end_s = max(self.end_s, planned.end_s)

    # -- one job on one place

    def _place(self, job: Job, ready_s: float) -> Planned | None:
        """Where it ends first; waiting for a busy place is a place too."""
        best: Choice | None = None
        best_start = best_end = NEVER
        homes = {place for parent, _ in job.after for place in self._begun[parent].parts}
        seen: set[tuple[object, int, str]] = set()
        for choice in job.choices:
            table = self.tables[choice.place]
            if table.kin is not None and choice.place not in homes:
                key = (table.kin, choice.alternative, choice.model)
                if key in seen:
                    continue
                seen.add(key)
            least = self.fetch_s(job, choice.place) + job.work * choice.seconds_per_work
            if ready_s + least >= best_end:
                continue
            start = table.earliest(choice.ask, ready_s, least)
            if start + least < best_end - 1e-9:
                best, best_start, best_end = choice, start, start + least
        if best is None or best_end == NEVER:
            return None
        self.tables[best.place].take(best.ask, best_start, best_end)
        return Planned(best, best_start, best_end)

    def fetch_s(self, job: Job, place: int) -> float:
        """Seconds until all that the job needs from elsewhere is there; transfers go on beside one another."""
        return max(
            (
                data_bytes * (1.0 - self._begun[parent].parts.get(place, 0.0)) / self.bytes_per_s
                for parent, data_bytes in job.after
                if data_bytes
            ),
            default=0.0,
        )

    # -- a divisible job

    def _spread(self, job: Job, ready_s: float) -> Planned | None:
        """On every place from when it is free there, so that all end together."""
        ready_s = max(0.0, ready_s)
        free = []
        for choice in job.choices:
            start = self.tables[choice.place].earliest(choice.ask, ready_s, 0.0)
            if start < NEVER:
                free.append((start, choice, self.tables[choice.place].units(choice.ask, start)))
        if not free:
            return None
        free.sort(key=lambda one: one[0])
        end_s, used = _level([(start, units / choice.seconds_per_work) for start, choice, units in free], job.work)
        for start, choice, units in free[:used]:
            self.tables[choice.place].take(choice.ask, start, end_s, units)
        return Planned(None, free[0][0], end_s)


def _level(supply: Sequence[tuple[float, float]], work: float) -> tuple[float, int]:
    """When work is done that suppliers (from when, how fast), soonest first, share so that all end together; and how many of them share."""
    speed = done_at = 0.0
    for at, (start, its_speed) in enumerate(supply):
        speed += its_speed
        done_at += its_speed * start
        end = (work + done_at) / speed
        if at + 1 == len(supply) or end <= supply[at + 1][0]:
            return end, at + 1
    raise AssertionError("somebody supplies")


def critical_path(jobs: Sequence[Job], order: Sequence[int]) -> tuple[float, list[int]]:
    """The longest way through the graph with everything on its fastest device, without transfers: seconds, and the jobs on it."""
    ranks = upward_ranks(jobs, order, NEVER, FASTEST)
    children: dict[int, list[int]] = {}
    roots = []
    for at in order:
        if not jobs[at].after:
            roots.append(at)
        for parent, _ in jobs[at].after:
            children.setdefault(parent, []).append(at)
    if not roots:
        return 0.0, []
    path = [max(roots, key=lambda at: ranks[at])]
    while path[-1] in children:
        path.append(max(children[path[-1]], key=lambda at: ranks[at]))
    return ranks[path[0]], path


def work_bound(jobs: Sequence[Job]) -> float:
    """Seconds that all work takes at least: of the jobs that may run on the same places, work over the speed of all those places, each place
    as fast as it is for any of them."""
    groups: dict[int, list[Job]] = {}
    for job in jobs:
        groups.setdefault(id(job.choices), []).append(job)
    lists = {key: group[0].choices for key, group in groups.items()}
    places = {key: frozenset((one.place, one.model) for one in choices) for key, choices in lists.items()}
    bound = 0.0
    for mine in set(places.values()):
        within = [key for key, other in places.items() if other <= mine and other]
        fastest: dict[tuple[int, str], float] = {}
        for key in within:
            for one in lists[key]:
                at = (one.place, one.model)
                fastest[at] = max(fastest.get(at, 0.0), one.units / one.seconds_per_work)
        work = sum(job.work for key in within for job in groups[key])
        bound = max(bound, work / sum(fastest.values())) if fastest else bound
    return bound
