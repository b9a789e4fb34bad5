"""One graph's plan, by HEFT, on the nodes as they are, and when it has to be made again.

Derived: after a restart it is made anew. It is followed as long as things happen about when it said; where they do not, what has not begun is
planned again from what is. HEFT plans in the order of rank, so that planning a part of it is the beginning of planning all of it: a large
graph is planned some way ahead only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from hetsched.policy.heft import WEIGHINGS, Begun, Choice, Job, Plan, Planned, upward_ranks
from hetsched.policy.timetable import Timetable
from hetsched.scheduler.graphs.sites import Sites, sort_of
from hetsched.scheduler.graphs.state import ENDS, RUNNING, SUCCEEDED, Course, Graphs, Part

AHEAD = 600
"""Operators planned at a time: a tenth of a second of a core, on 32 nodes."""

SMALL = 300
"""Up to here all ways to average are tried."""

SLACK_S, SLACK_PART = 0.5, 0.05
"""How much later than planned, in seconds and as a part of its run time, something may be before the plan is doubted."""

MOST_PLANS = 50
"""Of a graph in the time in which all its operators end, unless it is planned in parts; changes of the cluster come on top."""


class Route:
    """`ranks`: of all operators, as far as is known. `planned`: by operator, in seconds from `at_ns`."""

    def __init__(self, graphs: Graphs, course: Course, sites: Sites) -> None:
        self.course = course
        self.ranks: list[float] = []
        self.at_ns = 0
        self.end_s = 0.0
        self.planned: dict[int, Planned] = {}
        self.doubted = True
        self._graphs = graphs
        self._sorts = [sort_of(sites.books, operator) for operator in course.graph.operators]
        self._position = {at: position for position, at in enumerate(course.graph.order)}
        self._version: tuple[int, int] | None = None
        self._ends_since = 0
        self._by_place: dict[int, deque[tuple[float, int]]] = {}

    # -- what is known

    def choices(self, sites: Sites, operator: int) -> list[Choice]:
        """Where it may run."""
        return sites.choices(self.course.graph.operators[operator], self._sorts[operator])

    def jobs(self, sites: Sites, *, whole: bool = False) -> list[Job]:
        """Every operator as far as it is left to do, or all of it."""
        jobs = []
        for at, operator in enumerate(self.course.graph.operators):
            left = operator.samples if whole else sum(end - begin for begin, end in self.course.parts[at].left)
            after = [(edge.parent, edge.data_bytes) for edge in operator.after]
            jobs.append(Job(operator.cost * left, self.choices(sites, at), after, operator.is_divisible))
        return jobs

    # -- planning

    def is_due(self, sites: Sites, now_ns: int) -> bool:
        """Whether it has to be planned (again)."""
        if self._version != sites.version:
            return True
        if self._ends_since < 1 + min(len(self.course.parts) // MOST_PLANS, AHEAD // 4):
            return False
        return self.doubted or any(self._is_late(at, now_ns) for at in self._graphs.due(self.course))

    def _is_late(self, operator: int, now_ns: int) -> bool:
        planned = self.planned.get(operator)
        if planned is None:
            return True
        slack_s = SLACK_S + SLACK_PART * (planned.end_s - planned.start_s)
        return planned.choice is not None and self.seconds(now_ns) > planned.start_s + slack_s

    def ended(self, operator: int, now_ns: int) -> None:
        """A piece of this operator is over: was that about when it was planned?"""
        self._ends_since += 1
        planned = self.planned.get(operator)
        if planned is not None and planned.choice is not None:
            slack_s = SLACK_S + SLACK_PART * (planned.end_s - planned.start_s)
            self.doubted |= abs(self.seconds(now_ns) - planned.end_s) > slack_s

    def make(self, sites: Sites, tables: list[Timetable], left_s: Mapping[int, float], now_ns: int) -> None:
        """Plan what has not begun. `left_s`: of the graph's live tasks. The tables are used up."""
        jobs, order = self.jobs(sites), self.course.graph.order
        begun = self._begun(sites, left_s)
        waiting = [at for at in order if self._waits(self.course.parts[at])]
        best: Plan | None = None
        several = len(sites.all) > 1
        for weighing in WEIGHINGS if len(waiting) <= SMALL else WEIGHINGS[:1]:
            ranks = upward_ranks(jobs, order, self._graphs.bytes_per_s if several else float("inf"), weighing)
            sequence = sorted(waiting, key=lambda at: (-ranks[at], self._position[at]))[:AHEAD]
            plan = Plan([table.copy() for table in tables], self._graphs.bytes_per_s, begun).fill(jobs, sequence)
            if best is None or (len(plan.planned), -plan.end_s) > (len(best.planned), -best.end_s):
                best, self.ranks = plan, ranks
        assert best is not None
        self.planned, self.end_s, self.at_ns = best.planned, best.end_s, now_ns
        self._version, self._ends_since, self.doubted = sites.version, 0, False
        self._by_place = {}
        for start_s, at, choice in sorted((p.start_s, at, p.choice) for at, p in self.planned.items() if p.choice):
            self._by_place.setdefault(choice.place, deque()).append((start_s, at))

    @staticmethod
    def _waits(part: Part) -> bool:
        return bool(part.left) and part.state not in ENDS

    def _begun(self, sites: Sites, left_s: Mapping[int, float]) -> dict[int, Begun]:
        """What is done, or on its way with nothing left to cut."""
        places = {site.node.name: site.place for site in sites.all}
        going: dict[int, dict[str, int]] = {}
        ends: dict[int, float] = {}
        for task, cut in self.course.live.items():
            ends[cut.operator] = max(ends.get(cut.operator, 0.0), left_s.get(task, cut.seconds))
            its_nodes = going.setdefault(cut.operator, {})
            its_nodes[cut.node] = its_nodes.get(cut.node, 0) + cut.end - cut.begin
        begun = {}
        for at, part in enumerate(self.course.parts):
            if part.state == SUCCEEDED or (part.state == RUNNING and not part.left):
                made = dict(part.made)
                for node, samples in going.get(at, {}).items():
                    made[node] = made.get(node, 0) + samples
                samples = sum(made.values()) or 1
                parts = {places[node]: count / samples for node, count in made.items() if node in places}
                begun[at] = Begun(ends.get(at, 0.0), parts)
        return begun

    # -- questions

    @property
    def is_made(self) -> bool:
        """Whether there is a plan at all, and everything that has not begun is in it."""
        return self._version is not None and all(
            at in self.planned for at, part in enumerate(self.course.parts) if self._waits(part)
        )

    def seconds(self, now_ns: int) -> float:
        """Since it was planned."""
        return (now_ns - self.at_ns) / 1e9

    def rank(self, operator: int) -> tuple[float, int]:
        """To sort by: highest upward rank first."""
        return -self.ranks[operator], self._position[operator]

    def before(self, place: int, until_s: float, but_for: int) -> list[Choice]:
        """What is to begin on the place until then and has not been cut yet."""
        found: list[Choice] = []
        mine = self._by_place.get(place)
        while mine and not self._waits(self.course.parts[mine[0][1]]):
            mine.popleft()
        for start_s, at in mine or ():
            if start_s >= until_s:
                break
            choice = self.planned[at].choice
            if at != but_for and choice is not None and self._waits(self.course.parts[at]):
                found.append(choice)
        return found
