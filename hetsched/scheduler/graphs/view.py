"""The read side of graphs: how far each is, what it waits for, and what bounds it. Times are RFC 3339 in UTC, spans seconds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from hetsched import _core
from hetsched.errors import NotFound
from hetsched.policy.heft import critical_path, work_bound
from hetsched.scheduler.graphs.conductor import Conductor
from hetsched.scheduler.graphs.route import Route
from hetsched.scheduler.graphs.state import Course
from hetsched.scheduler.rendering import iso
from hetsched.scheduler.world import World

MOST_NAMED = 100
"""Operators that are listed of the critical path, and of those that nothing can run."""


class Bound(msgspec.Struct, frozen=True):
    """`path`: operators on the critical path. `nowhere`: those that no node could take."""

    key: object
    path_s: float
    work_s: float
    path: list[int]
    nowhere: list[int]


class GraphView:
    """Questions of the API."""

    def __init__(self, world: World, conductor: Conductor) -> None:
        self.world = world
        self.graphs = world.books.graphs
        self._conductor = conductor
        self._bounds: dict[str, Bound] = {}

    def find(self, ident: str) -> Course:
        """Raises NotFound."""
        course = self.graphs.by_id.get(ident)
        if course is None:
            raise NotFound(f"no graph {ident}")
        return course

    def all(self) -> list[dict[str, Any]]:
        """A line a graph, in order of acceptance."""
        return [self._line(course) for course in self.graphs.by_id.values()]

    def one(self, ident: str, *, operators: bool = True) -> dict[str, Any]:
        """One graph whole."""
        course = self.find(ident)
        bound = self._bound(course)
        names = [operator.id for operator in course.graph.operators]
        out = self._line(course)
        out["critical_path"] = {"seconds": _s(bound.path_s), "operators": [names[at] for at in bound.path[:MOST_NAMED]]}
        out["bound"] = {
            "seconds": _s(max(bound.path_s, bound.work_s)),
            "critical_path": _s(bound.path_s),
            "work": _s(bound.work_s),
        }
        out["planned_seconds_left"] = self._planned_left(course)
        out["unplaceable"] = [] if course.is_over else [names[at] for at in bound.nowhere[:MOST_NAMED]]
        if operators:
            out["operators"] = [self._operator(course, at) for at in range(len(names))]
        return out

    def _line(self, course: Course) -> dict[str, Any]:
        body = course.graph.operators[0].tasks[0]
        end_ns = course.ended_ns or self.world.books.now_ns
        return {
            "id": course.id,
            "name": course.graph.name,
            "state": course.state,
            "queue": body.queue,
            "qos": str(body.qos),
            "submitted_at": iso(course.at_ns),
            "ended_at": iso(course.ended_ns) if course.ended_ns else None,
            "seconds": _s((end_ns - course.at_ns) / 1e9),
            "progress": self._progress(course),
            "states": dict(sorted(Counter(part.state for part in course.parts).items())),
            "tasks": self._tasks(course),
        }

    @staticmethod
    def _progress(course: Course) -> float:
        """Of all work, the part that is done."""
        pairs = list(zip(course.graph.operators, course.parts, strict=True))
        work = sum(operator.work for operator, _ in pairs)
        done = sum(operator.cost * part.done for operator, part in pairs)
        return round(done / work, 4) if work else float(course.state == "succeeded")

    def _tasks(self, course: Course) -> dict[str, int]:
        """Pieces so far, and how many wait and run."""
        states = Counter(self.world.core.task(task).state for task in course.live)
        waiting = sum(states[state] for state in (_core.QUEUED, _core.HELD, _core.BACKOFF))
        return {"made": sum(part.cuts for part in course.parts), "waiting": waiting, "live": len(course.live) - waiting}

    def _operator(self, course: Course, at: int) -> dict[str, Any]:
        operator, part = course.graph.operators[at], course.parts[at]
        out: dict[str, Any] = {
            "id": operator.id,
            "state": part.state,
            "cost": operator.work,
            "after": [course.graph.operators[edge.parent].id for edge in operator.after],
            "tasks": part.cuts,
            "nodes": part.made,
            "started_at": iso(part.started_ns) if part.started_ns else None,
            "ended_at": iso(part.ended_ns) if part.ended_ns else None,
        }
        if operator.is_divisible:
            out["samples"] = {"begin": operator.begin, "end": operator.end, "done": part.done}
        return out

    # -- figures

    def _bound(self, course: Course) -> Bound:
        """On the nodes and at the speeds that are known now; worked out again only when those moved."""
        sites = self._conductor.sites
        key = (sites.version, self.graphs.rates.version)
        known = self._bounds.get(course.id)
        if known is None or known.key != key:
            route = Route(self.graphs, course, sites)
            jobs = [route.job(sites, at, whole=True) for at in range(len(course.parts))]
            path_s, path = critical_path(jobs, course.graph.order)
            nowhere = [at for at, job in enumerate(jobs) if not job.choices]
            known = Bound(key, path_s, work_bound(jobs), path, nowhere)
            self._bounds = {ident: one for ident, one in self._bounds.items() if ident in self.graphs.by_id}
            self._bounds[course.id] = known
        return known

    def _planned_left(self, course: Course) -> float | None:
        """By the plan in effect, if there is one."""
        return None if course.is_over else self._conductor.planned_left_s(course)


def _s(seconds: float) -> float:
    return round(seconds, 3)
