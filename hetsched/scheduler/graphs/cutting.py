"""What of an operator goes to which node now.

An operator that cannot be divided goes where the plan wants it, once that is free of what goes before it there; while it only waits for tasks
of others, it waits in its queue like them. A divisible one is cut for every device that is free, in proportion to their speeds, half of what is
left at a time (Hummel, Schonberg and Flynn, Factoring, CACM 35, 1992), an eighth while speeds are only believed: so devices that are faster
than believed get more of the rest, and all end about together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from hetsched import _core
from hetsched.model.graph import Operator
from hetsched.policy.classify import task_type
from hetsched.policy.heft import Choice
from hetsched.policy.timetable import Ask
from hetsched.scheduler.books import Books
from hetsched.scheduler.graphs.route import Route
from hetsched.scheduler.graphs.sites import Sites
from hetsched.scheduler.graphs.state import Course, Part
from hetsched.scheduler.words import CutSaid

SHORTEST_PIECE_S = 2.0
"""Cutting finer would cost more in starting than it gains in balance."""

MOST_PIECES = 200
"""No piece is smaller than this part of all samples (an eighth of a device's, where there are many devices): where starting takes longer than
working, pieces would look ever slower, and be cut ever smaller."""

PART, FIRST_PART = 0.5, 0.125
"""Of what is left, cut at a time: of speeds that were seen, and before. A piece cannot be made smaller once it runs, so one that was cut for a
device of which too much was believed is what all wait for in the end."""


class Ledger:
    """What is free on each place in this turn: for anybody, and if only graphs were there (`ours`). Made as it is asked for."""

    def __init__(self, books: Books, sites: Sites, promised: Iterable[tuple[int, Ask, float]]) -> None:
        self._books = books
        self._sites = sites
        self._free: dict[int, list[int]] = {}
        self._ours: dict[int, list[int]] = {}
        self._promised: dict[int, list[Ask]] = {}
        for place, ask, _ in promised:
            self._promised.setdefault(place, []).append(ask)

    def free(self, place: int) -> list[int]:
        """Less what was cut for the place and is not there yet."""
        found = self._free.get(place)
        if found is None:
            found = self._sites.all[place].free(self._books.core)
            self._free[place] = self._less(found, place)
        return found

    def ours(self, place: int) -> list[int]:
        """What would be free without the tasks of others."""
        found = self._ours.get(place)
        if found is None:
            site = self._sites.all[place]
            found = list(site.whole)
            for task in self._books.core.tasks_on(site.node.slot):
                attempt = self._books.attempts.live.get(task)
                if attempt is not None and self._books.graphs.of_task(task) is not None:
                    _subtract(found, site.held(self._books.body(task), attempt.devices))
            self._ours[place] = self._less(found, place)
        return found

    def take(self, place: int, ask: Ask) -> None:
        """Something was cut for the place."""
        _subtract(self.free(place), ask)
        _subtract(self.ours(place), ask)

    def _less(self, amounts: list[int], place: int) -> list[int]:
        for ask in self._promised.get(place, ()):
            _subtract(amounts, ask)
        return amounts


class Cutter:
    """For one turn."""

    def __init__(self, books: Books, sites: Sites, ledger: Ledger, now_ns: int) -> None:
        self.books = books
        self.sites = sites
        self.ledger = ledger
        self.now_ns = now_ns

    def cuts(self, course: Course, route: Route, at: int) -> list[CutSaid]:
        """What of the operator is to become tasks now; it is taken out of the ledger."""
        if course.graph.operators[at].is_divisible:
            return self._pieces(course, route, at)
        choice = self._planned(route, at)
        if choice is None:
            return []
        self.ledger.take(choice.place, choice.ask)
        return [self._said(course, at, course.parts[at].cuts, choice, 0, 1)]

    # -- a whole operator

    def _planned(self, route: Route, at: int) -> Choice | None:
        planned = route.planned.get(at)
        if planned is None or planned.choice is None:
            return None
        choice = planned.choice
        before = [one.ask for one in route.before(choice.place, planned.start_s, at)]
        room = _fits(self.ledger.free(choice.place), before, choice.ask)
        return choice if room or _fits(self.ledger.ours(choice.place), before, choice.ask) else None

    # -- pieces of a divisible one

    def _pieces(self, course: Course, route: Route, at: int) -> list[CutSaid]:
        operator, part = course.graph.operators[at], course.parts[at]
        choices = sorted(route.choices(self.sites, at), key=lambda one: one.seconds_per_work)
        places = self._free_units(route, at, choices)
        if not places and not part.live:
            places = self._queue_for(choices)
        busy = sum(self._speed(course, cut, choices) for cut in self._at_it(course, at))
        return self._deal(course, at, operator, part, places, busy)

    def _free_units(self, route: Route, at: int, choices: Sequence[Choice]) -> list[Choice]:
        """One entry a piece that could run now, fastest first."""
        found: list[Choice] = []
        now_s = route.seconds(self.now_ns)
        for choice in choices:
            free = list(self.ledger.free(choice.place))
            for other in route.before(choice.place, now_s, at):
                _subtract(free, other.ask)
            for other in found:
                if other.place == choice.place:
                    _subtract(free, other.ask)
            units = min((free[dimension] // amount for dimension, amount in choice.ask), default=choice.units)
            found += [choice] * max(0, units)
        return found

    def _queue_for(self, choices: Sequence[Choice]) -> list[Choice]:
        """The fastest that only tasks of others keep it from."""
        return [one for one in choices if _fits(self.ledger.ours(one.place), (), one.ask)][:1]

    def _is_learned(self, operator: Operator, at_it: Iterable[Choice | CutSaid]) -> bool:
        """Whether the speeds of all these were seen, not only said or guessed."""
        rates = self.books.graphs.rates
        pairs = {(one.alternative, one.model) for one in at_it}
        return all(rates.is_learned(task_type(operator.tasks[alternative]), model) for alternative, model in pairs)

    @staticmethod
    def _at_it(course: Course, at: int) -> list[CutSaid]:
        return [cut for cut in course.live.values() if cut.operator == at]

    @staticmethod
    def _speed(course: Course, cut: CutSaid, choices: Sequence[Choice]) -> float:
        same = (one for one in choices if (one.alternative, one.model) == (cut.alternative, cut.model))
        return next((1.0 / one.seconds_per_work for one in same), 0.0)

    def _deal(
        self, course: Course, at: int, operator: Operator, part: Part, places: Sequence[Choice], busy: float
    ) -> list[CutSaid]:
        """Half of what is left over all that are or could be at it; the last few pieces whole."""
        left = list(part.left)
        cuts: list[CutSaid] = []
        rest = sum(end - begin for begin, end in left)
        speed = busy + sum(1.0 / one.seconds_per_work for one in places)
        together_s = rest * operator.cost / speed if speed else 0.0
        units = len(places) + len(self._at_it(course, at))
        floor = -(-operator.samples // max(MOST_PIECES, 8 * units))
        part_of = 1.0
        if together_s > 2 * SHORTEST_PIECE_S:
            part_of = PART if self._is_learned(operator, [*places, *self._at_it(course, at)]) else FIRST_PART
        for choice in places:
            if not left:
                break
            share = rest * part_of / (choice.seconds_per_work * speed)
            least_s = min(SHORTEST_PIECE_S, together_s)
            per_sample_s = operator.cost * choice.seconds_per_work
            least = math.ceil(least_s / per_sample_s - 1e-9) if per_sample_s else rest
            samples = max(operator.chunk, floor, least, math.ceil(share - 1e-9))
            if samples * per_sample_s > 2 * together_s + SHORTEST_PIECE_S and (cuts or busy):
                continue  # a slow device's smallest piece would be what all wait for in the end
            begin, end = left[0]
            end = min(end, begin + samples)
            if end + operator.chunk > left[0][1]:
                end = left[0][1]
            left[0] = (end, left[0][1])
            if left[0][0] == left[0][1]:
                del left[0]
            self.ledger.take(choice.place, choice.ask)
            cuts.append(self._said(course, at, part.cuts + len(cuts), choice, begin, end))
        return cuts

    # -- in words

    def _said(self, course: Course, at: int, number: int, choice: Choice, begin: int, end: int) -> CutSaid:
        operator = course.graph.operators[at]
        node = self.sites.all[choice.place].node.name
        said = CutSaid(at, number, begin, end, choice.alternative, node, choice.model, 0.0)
        fetch_s = self.books.graphs.fetch_s(course, said, node)
        seconds = fetch_s + operator.cost * (end - begin) * choice.seconds_per_work
        return msgspec.structs.replace(said, seconds=float(f"{seconds:.6g}"))


def promised(books: Books, sites: Sites, courses: Iterable[Course]) -> list[tuple[int, Ask, float]]:
    """Place, ask and seconds of all that was cut and is not placed yet."""
    found = []
    for course in courses:
        for task, cut in course.live.items():
            site = sites.by_name.get(cut.node)
            if site is not None and books.core.task(task).state in (_core.QUEUED, _core.BACKOFF, _core.HELD):
                ask = site.ask(course.graph.operators[cut.operator].tasks[cut.alternative], cut.model)
                if ask is not None:
                    found.append((site.place, ask, cut.seconds))
    return found


def _subtract(amounts: list[int], ask: Ask) -> None:
    for dimension, amount in ask:
        amounts[dimension] -= amount


def _fits(amounts: Sequence[int], before: Sequence[Ask], ask: Ask) -> bool:
    left = list(amounts)
    for one in before:
        _subtract(left, one)
    return all(left[dimension] >= amount for dimension, amount in ask)
