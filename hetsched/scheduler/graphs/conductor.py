"""All graphs together, once a turn before the lanes are decided: whose turn it is, what is cut, what is withdrawn.

Between graphs of one level, queue and priority the one that uses least goes first, piece by piece; within a graph the highest upward rank.
What is cut is submitted like any task and wished to its node; the core decides, by its rules, and may decide otherwise.
"""

from __future__ import annotations

import heapq
from typing import Any

import msgspec

from hetsched import _core
from hetsched.errors import Problem
from hetsched.model import Resources, Task
from hetsched.policy.rates import NO_DEVICE
from hetsched.scheduler import outcomes
from hetsched.scheduler.graphs.cutting import Cutter, Ledger, promised
from hetsched.scheduler.graphs.planning import A_TURN
from hetsched.scheduler.graphs.route import Route
from hetsched.scheduler.graphs.sites import Sites, version_of
from hetsched.scheduler.graphs.state import CANCELLED, FAILED, Course, began_ns, cut_id
from hetsched.scheduler.judge import Judged
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.room import Room
from hetsched.scheduler.submit import Submissions
from hetsched.scheduler.templates import template_body
from hetsched.scheduler.timers import Timer
from hetsched.scheduler.words import CutSaid, Graphed
from hetsched.scheduler.world import World

LOOKED_AT = 256
"""Operators of a graph looked at in a turn, by rank: more devices than that do not become free at once."""

OVERDUE = 2.0
"""A piece that runs so many times longer than expected may be given to others."""

MOST_TAKEN_AWAY = 8
"""Pieces of an operator: where run times are not in proportion to work, this would go on for ever."""

WAITING = (_core.QUEUED, _core.BACKOFF, _core.HELD)


class Conductor:
    """One per scheduler. Holds only what is derived: the plans, and which ends were told."""

    def __init__(self, world: World, submissions: Submissions) -> None:
        self.world = world
        self.books = world.books
        self.graphs = world.books.graphs
        self._submissions = submissions
        self._sites: Sites | None = None
        self._routes: dict[str, Route] = {}
        self._told: set[str] = set()
        self._wished = False
        self._work = 0.0

    def resume(self) -> None:
        """After a restart: the ends that stand in the journal were told."""
        self._told = {ident for ident, course in self.graphs.by_id.items() if course.is_over}
        self.graphs.changed.update(self.graphs.by_id)
        self.graphs.ends.clear()

    # -- once a turn

    def review(self) -> None:
        """Cut what is due."""
        if not self.graphs.by_id:
            return
        changed = sorted(self.graphs.changed & self.graphs.by_id.keys())
        self._hear_ends()
        for ident in changed:
            self._clean_up(self.graphs.by_id[ident])
        courses = self.graphs.open()
        self._work = A_TURN
        is_planning = any(route.planning is not None for route in self._routes.values())
        if courses and (
            changed or is_planning or self.world.capacity_changed or self.sites.version != version_of(self.books)
        ):
            self._withdraw(courses)
            cutter = self._cutter(courses)
            self._let_go_on(cutter, courses)
            for course in courses:
                if course.id in changed:
                    self._watch_pieces(course, cutter)
        self._tell_wishes(courses)
        for ident in changed:
            self._tell_end(self.graphs.by_id[ident])

    @property
    def sites(self) -> Sites:
        """The nodes as they are."""
        if self._sites is None or self._sites.version != version_of(self.books):
            self._sites = Sites(self.books)
        return self._sites

    def route(self, course: Course) -> Route:
        """The graph's plan, made if need be; a large one over several turns."""
        route = self._routes.get(course.id)
        if route is None:
            route = self._routes[course.id] = Route(self.graphs, course, self.sites)
        now_ns = self.world.now_ns
        if route.is_due(self.sites, now_ns):
            tables = self.sites.timetables(now_ns)
            for place, ask, seconds in promised(self.books, self.sites, self.graphs.open()):
                tables[place].take(ask, 0.0, seconds)
            left_s = {task: self.sites.left_s(task, now_ns) for task in course.live}
            route.begin(self.sites, tables, left_s, now_ns)
        if route.planning is not None:
            self._work = route.go_on(self._work)
        if route.planning is not None:
            self.world.timers.set(Timer.PLANNING, course.id, now_ns)
        return route

    def planned_left_s(self, course: Course) -> float | None:
        """Seconds to the end by the plan in effect."""
        route = self._routes.get(course.id)
        if route is None or not route.is_made:
            return None
        return round(max(0.0, route.end_s - route.seconds(self.world.now_ns)), 3)

    # -- cutting

    def _cutter(self, courses: list[Course]) -> Cutter:
        ledger = Ledger(self.books, self.sites, promised(self.books, self.sites, courses))
        return Cutter(self.books, self.sites, ledger, self.world.now_ns)

    def _let_go_on(self, cutter: Cutter, courses: list[Course]) -> None:
        """Round by round the graph that uses least gives its next piece."""
        turns: list[tuple[Any, ...]] = []
        for index, course in enumerate(courses):
            due = self.graphs.due(course)
            if due:
                route = self.route(course)
                if not route.is_ready(self.sites):
                    continue
                ahead = heapq.nsmallest(LOOKED_AT, due, key=route.rank)
                turns.append((*self._place_in_line(course), self._used(course), index, course, route, iter(ahead)))
        heapq.heapify(turns)
        cuts: dict[str, list[CutSaid]] = {}
        while turns:
            *line, used, index, course, route, ahead_of = heapq.heappop(turns)
            for at in ahead_of:
                made = cutter.cuts(course, route, at)
                if made:
                    cuts.setdefault(course.id, []).extend(made)
                    used += sum(self._share(course, cut) for cut in made)
                    heapq.heappush(turns, (*line, used, index, course, route, ahead_of))
                    break
        for ident, made in cuts.items():
            self._submit(self.graphs.by_id[ident], made)

    def _place_in_line(self, course: Course) -> tuple[int, int]:
        body = course.graph.operators[0].tasks[0]
        return body.qos.level, -body.priority

    def _used(self, course: Course) -> float:
        """Largest part of any resource of the nodes that its tasks take, as for queues."""
        return sum(self._share(course, cut) for cut in course.live.values())

    def _share(self, course: Course, cut: CutSaid) -> float:
        site = self.sites.by_name.get(cut.node)
        ask = site and site.ask(course.graph.operators[cut.operator].tasks[cut.alternative], cut.model)
        if not site or not ask:
            return 0.0
        return max(amount / site.whole[dimension] for dimension, amount in ask)

    def _submit(self, course: Course, cuts: list[CutSaid]) -> None:
        room = Room(self.books)
        items, said = [], []
        for cut in cuts:
            cut = self._with_free_id(course, cut)
            task = self._body(course, cut, room)
            items.append(Judged(id=cut_id(course, cut), task=task, body=template_body(task)))
            said.append(cut)
        self._submissions.accept(items)
        self.books.say(Graphed(course.id, self.world.now_ns, cuts=tuple(said)))

    def _with_free_id(self, course: Course, cut: CutSaid) -> CutSaid:
        """Somebody may have taken the name for a task of their own."""
        while self.world.core.find(cut_id(course, cut).encode()) != _core.NONE:
            cut = msgspec.structs.replace(cut, number=cut.number + 1_000)
        return cut

    def _body(self, course: Course, cut: CutSaid, room: Room) -> Task:
        """The task as which the piece is submitted."""
        operator = course.graph.operators[cut.operator]
        body = operator.tasks[cut.alternative]
        env = {"HETSCHED_GRAPH": course.id, "HETSCHED_OPERATOR": operator.id}
        if operator.is_divisible:
            env |= {"HETSCHED_SAMPLES_BEGIN": str(cut.begin), "HETSCHED_SAMPLES_END": str(cut.end)}
        body = msgspec.structs.replace(
            body,
            env={**body.env, **env},
            labels={**body.labels, "hetsched/graph": course.id},
            estimate=cut.seconds or None,
            duration=operator.cost * (cut.end - cut.begin) if body.command is None else None,
        )
        narrow = _on_model(body, cut.model)
        try:
            room.take(narrow)
        except Problem:  # no room for one more shape: then on any model
            return body
        return narrow

    # -- what is not as planned

    def _hear_ends(self) -> None:
        for ident, operator in self.graphs.ends:
            if ident in self._routes:
                self._routes[ident].ended(operator, self.world.now_ns)
        self.graphs.ends.clear()
        self.graphs.changed.clear()

    def _clean_up(self, course: Course) -> None:
        """An operator that failed or was cancelled needs its other pieces no more."""
        for task, cut in list(course.live.items()):
            if course.parts[cut.operator].state in (FAILED, CANCELLED):
                if self.world.core.task(task).state != _core.STOPPING:
                    outcomes.cancel(self.world, task)
        self.world.drain()

    def _withdraw(self, courses: list[Course]) -> None:
        """Pieces that wait for a sort of device that is there no more are cut anew."""
        for course in courses:
            for task, cut in list(course.live.items()):
                if self.world.core.task(task).state == _core.QUEUED and not self._could_run(course, cut):
                    self.world.core.ended(task, _core.CANCELLED, Reason.REPLANNED)
        self.world.drain()

    def _could_run(self, course: Course, cut: CutSaid) -> bool:
        task = course.graph.operators[cut.operator].tasks[cut.alternative]
        if cut.node in self.sites.by_name:
            return True
        return any(site.ask(task, cut.model) is not None for site in self.sites.all)

    def _watch_pieces(self, course: Course, cutter: Cutter) -> None:
        """Pieces of divisible operators that take far too long are taken away from where they are, if somebody else could redo them sooner."""
        now_ns, checks = self.world.now_ns, []
        for task, cut in list(course.live.items()):
            if not course.graph.operators[cut.operator].is_divisible:
                continue
            attempt = self.books.attempts.live.get(task)
            started_ns = now_ns if attempt is None else began_ns(attempt)
            limit_ns = round(OVERDUE * max(cut.seconds, 1.0) * 1e9)
            elapsed_ns = now_ns - started_ns
            if elapsed_ns < limit_ns:
                checks.append(started_ns + limit_ns)
            elif self.world.core.task(task).state == _core.RUNNING:
                if self._could_redo(course, cut, cutter, elapsed_ns / 1e9):
                    self.world.core.stop(task, Reason.REPLANNED)
                checks.append(now_ns + elapsed_ns // 2)
        if checks:
            self.world.timers.set(Timer.GRAPH, course.id, min(checks))
        self.world.drain()

    def _could_redo(self, course: Course, cut: CutSaid, cutter: Cutter, elapsed_s: float) -> bool:
        """Whether free devices would do all of it in the time that it has taken so far; nothing else of the operator is left to do."""
        part = course.parts[cut.operator]
        if part.left or part.taken_away >= MOST_TAKEN_AWAY:
            return False
        speed = 0.0
        for choice in self.route(course).choices(self.sites, cut.operator):
            free = cutter.ledger.free(choice.place)
            units = min((free[dimension] // amount for dimension, amount in choice.ask), default=1)
            if self.sites.all[choice.place].node.name != cut.node:
                speed += max(0, units) / choice.seconds_per_work
        work = course.graph.operators[cut.operator].cost * (cut.end - cut.begin)
        return speed > 0 and work / speed < elapsed_s

    # -- told

    def _tell_wishes(self, courses: list[Course]) -> None:
        """To the core: where what waits would best be placed."""
        wishes = []
        for course in courses:
            for task, cut in course.live.items():
                node = self.books.cluster.by_name.get(cut.node)
                if node is not None and self.world.core.task(task).state in WAITING:
                    wishes.append((task, node.slot))
        if wishes or self._wished:
            self.world.core.set_wishes(wishes)
        self._wished = bool(wishes)

    def _tell_end(self, course: Course) -> None:
        if course.is_over and course.id not in self._told:
            self._told.add(course.id)
            self._routes.pop(course.id, None)
            self.world.timers.clear(Timer.GRAPH, course.id)
            self.world.timers.clear(Timer.PLANNING, course.id)
            self.world.emit_named("graph_ended", None, graph=course.id, state=course.state)
        self._told &= self.graphs.by_id.keys()


def _on_model(body: Task, model: str) -> Task:
    """The body, for devices of this model only."""
    devices = body.resources.devices
    if not devices or model in ("", NO_DEVICE):
        return body
    first = msgspec.structs.replace(devices[0], models=(model,))
    resources: Resources = msgspec.structs.replace(body.resources, devices=(first, *devices[1:]))
    return msgspec.structs.replace(body, resources=resources)
