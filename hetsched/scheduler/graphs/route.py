"""One graph's plan, by HEFT, on the nodes as they are, and when it has to be made again.

Derived: after a restart it is made anew. It is followed as long as things happen about when it said; where they do not, what has not begun is
planned again from what is. HEFT plans in the order of rank, so that planning a part of it is the beginning of planning all of it: a large
graph is planned some way ahead only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from hetsched.policy.heft import Choice, Job, Planned
from hetsched.policy.timetable import Timetable
from hetsched.scheduler.graphs.planning import AHEAD, Planning, waits
from hetsched.scheduler.graphs.sites import Sites, Sort, sort_of
from hetsched.scheduler.graphs.state import Course, Graphs

SLACK_S, SLACK_PART = 0.5, 0.05
"""How much later than planned, in seconds and as a part of its run time, something may be before the plan is doubted."""

MOST_PLANS = 50
"""Of a graph in the time in which all its operators end, unless it is planned in parts; changes of the cluster come on top."""


class Route:
    """`ranks`: of all operators, as far as is known; empty before the first plan. `planned`: by operator, in seconds from `at_ns`.
    `planning`: the next plan, while it is made."""

    def __init__(self, graphs: Graphs, course: Course, sites: Sites) -> None:
        self.course = course
        self.ranks: list[float] = []
        self.at_ns = 0
        self.end_s = 0.0
        self.planned: dict[int, Planned] = {}
        self.doubted = True
        self._graphs = graphs
        self.planning: Planning | None = None
        self._sorts: dict[int, Sort] = {}
        self._after: dict[int, tuple[tuple[int, int], ...]] = {}
        self._books = sites.books
        self._position = {at: position for position, at in enumerate(course.graph.order)}
        self._version: tuple[int, int] | None = None
        self._ends_since = 0
        self._by_place: dict[int, deque[tuple[float, int]]] = {}

    # -- what is known

    def choices(self, sites: Sites, operator: int) -> list[Choice]:
        """Where it may run."""
        sort = self._sorts.get(operator)
        if sort is None:
            sort = self._sorts[operator] = sort_of(self._books, self.course.graph.operators[operator])
        return sites.choices(self.course.graph.operators[operator], sort)

    def job(self, sites: Sites, at: int, *, whole: bool = False) -> Job:
        """An operator as far as it is left to do, or all of it."""
        operator = self.course.graph.operators[at]
        left = operator.samples if whole else sum(end - begin for begin, end in self.course.parts[at].left)
        after = self._after.get(at)
        if after is None:
            after = self._after[at] = tuple((edge.parent, edge.data_bytes) for edge in operator.after)
        return Job(operator.cost * left, self.choices(sites, at), after, operator.is_divisible)

    def by_rank(self, operators: Iterable[int], ranks: Sequence[float]) -> list[int]:
        """Highest first."""
        return sorted(operators, key=lambda at: (-ranks[at], self._position[at]))

    # -- planning

    def is_due(self, sites: Sites, now_ns: int) -> bool:
        """Whether it has to be planned (again): it is not, or what is planned now is not what is there any more."""
        if self.planning is not None:
            return self.planning.version != sites.version
        if self._version != sites.version:
            return True
        if self._ends_since < 1 + min(len(self.course.parts) // MOST_PLANS, AHEAD // 4):
            return False
        return self.doubted or any(self._is_late(at, now_ns) for at in self._graphs.due(self.course))

    def is_ready(self, sites: Sites) -> bool:
        """Whether there is a plan, for the nodes as they are."""
        return self._version == sites.version

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

    def begin(self, sites: Sites, tables: list[Timetable], left_s: Mapping[int, float], now_ns: int) -> None:
        """Plan what has not begun. `left_s`: of the graph's live tasks. The tables are used up."""
        self.planning = Planning(self, sites, tables, left_s, now_ns)

    def go_on(self, work: float) -> float:
        """Do so much of the planning that is under way, and go by it when it is done. Returns what is left of the work."""
        planning = self.planning
        assert planning is not None
        work = planning.go_on(work)
        if planning.is_done:
            assert planning.plan is not None
            self.planning = None
            self.ranks, self.at_ns = planning.ranks, planning.now_ns
            self.planned, self.end_s = planning.plan.planned, planning.plan.end_s
            self._version, self._ends_since, self.doubted = planning.version, 0, False
            self._by_place = {}
            for start_s, at, choice in sorted((p.start_s, at, p.choice) for at, p in self.planned.items() if p.choice):
                self._by_place.setdefault(choice.place, deque()).append((start_s, at))
        return work

    # -- questions

    @property
    def bytes_per_s(self) -> float:
        """Between nodes."""
        return self._graphs.bytes_per_s

    @property
    def is_made(self) -> bool:
        """Whether there is a plan at all, and everything that has not begun is in it."""
        return self._version is not None and all(
            at in self.planned for at, part in enumerate(self.course.parts) if waits(part)
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
        while mine and not waits(self.course.parts[mine[0][1]]):
            mine.popleft()
        for start_s, at in mine or ():
            if start_s >= until_s:
                break
            choice = self.planned[at].choice
            if at != but_for and choice is not None and waits(self.course.parts[at]):
                found.append(choice)
        return found
