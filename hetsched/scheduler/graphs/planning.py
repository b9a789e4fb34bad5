"""One plan of a graph, made a piece at a time, so that no turn of the scheduler is long: a turn does so much of it (`go_on`), the next ones the
rest. Until it is done the graph goes by its last plan, or waits where there is none.

Promises: how much a turn does is counted in work, not in time, so a replay of a simulation plans alike; a graph of thirty operators is
planned in the turn in which that is wanted. What began meanwhile stays where it is: a plan only says where what waits would best go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hetsched.policy.heft import WEIGHINGS, Begun, Job, Plan, Ranking
from hetsched.policy.timetable import Timetable
from hetsched.scheduler.graphs.sites import Sites
from hetsched.scheduler.graphs.state import ENDS, RUNNING, SUCCEEDED, Part

if TYPE_CHECKING:
    from hetsched.scheduler.graphs.route import Route

AHEAD = 600
"""Operators planned at a time: a tenth of a second of a core, on 32 nodes."""

SMALL = 300
"""Up to here all ways to average are tried."""

A_TURN = 1.0
"""Work of planning that one turn does: 5 to 15 ms of a core."""

LOOKED_AT, RANKED, PLACED = 1 / 4000, 1 / 2000, 1 / 100
"""Work of one operator, of each step."""

CHUNK = 500
"""Operators looked at, or ranked, before work is counted."""

Work = Iterator[float]
"""Gives, now and then, the work done since."""


class Planning:
    """`ranks` and `plan` when it is done."""

    def __init__(
        self, route: Route, sites: Sites, tables: list[Timetable], left_s: Mapping[int, float], now_ns: int
    ) -> None:
        """`left_s`: of the graph's live tasks. The tables are used up."""
        self.version = sites.version
        self.now_ns = now_ns
        self.is_done = False
        self.ranks: list[float] = []
        self.plan: Plan | None = None
        self._route, self._sites, self._tables, self._left_s = route, sites, tables, left_s
        self._work = self._make()

    def go_on(self, work: float) -> float:
        """Do about so much of it. Returns what is left of the work."""
        while work > 0 and not self.is_done:
            try:
                work -= next(self._work)
            except StopIteration:
                self.is_done = True
        return work

    def _make(self) -> Work:
        course, bytes_per_s = self._route.course, self._route.bytes_per_s
        jobs: list[Job] = []
        begun: dict[int, Begun] = {}
        yield from self._look(jobs, begun)
        waiting = [at for at in course.graph.order if waits(course.parts[at])]
        apart_bytes_per_s = bytes_per_s if len(self._sites.all) > 1 else float("inf")
        yield len(jobs) * LOOKED_AT
        for weighing in WEIGHINGS if len(waiting) <= SMALL else WEIGHINGS[:1]:
            ranking = Ranking(jobs, course.graph.order, apart_bytes_per_s, weighing)
            while ranking.left:
                yield min(CHUNK, ranking.left) * RANKED
                ranking.go_on(CHUNK)
            sequence = self._route.by_rank(waiting, ranking.ranks)[:AHEAD]
            yield len(jobs) * LOOKED_AT
            plan = Plan([table.copy() for table in self._tables], bytes_per_s, begun)
            for at in sequence:
                plan.fill(jobs, (at,))
                yield PLACED
            if self.plan is None or (len(plan.planned), -plan.end_s) > (len(self.plan.planned), -self.plan.end_s):
                self.plan, self.ranks = plan, ranking.ranks

    def _look(self, jobs: list[Job], begun: dict[int, Begun]) -> Work:
        """Every operator as far as it is left to do; what is done, or on its way with nothing left to cut."""
        places = {site.node.name: site.place for site in self._sites.all}
        going: dict[int, dict[str, int]] = {}
        ends: dict[int, float] = {}
        for task, cut in self._route.course.live.items():
            ends[cut.operator] = max(ends.get(cut.operator, 0.0), self._left_s.get(task, cut.seconds))
            its_nodes = going.setdefault(cut.operator, {})
            its_nodes[cut.node] = its_nodes.get(cut.node, 0) + cut.end - cut.begin
        for at, part in enumerate(self._route.course.parts):
            jobs.append(self._route.job(self._sites, at))
            if is_begun(part):
                made = dict(part.made)
                for node, samples in going.get(at, {}).items():
                    made[node] = made.get(node, 0) + samples
                samples = sum(made.values()) or 1
                parts = {places[node]: count / samples for node, count in made.items() if node in places}
                begun[at] = Begun(ends.get(at, 0.0), parts)
            if len(jobs) % CHUNK == 0:
                yield CHUNK * LOOKED_AT


def waits(part: Part) -> bool:
    """Something of it is to be cut."""
    return bool(part.left) and part.state not in ENDS


def is_begun(part: Part) -> bool:
    """Nothing of it is to be cut any more, and it did not fail."""
    return part.state == SUCCEEDED or (part.state == RUNNING and not part.left)
