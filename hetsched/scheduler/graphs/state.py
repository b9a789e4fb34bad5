"""What is known of each graph: which of its operators are done, running, failed. Changed by word facts and by the ends of tasks only, live
and at replay alike; the conductor decides, this remembers.

A *cut* is a piece of an operator that became a task: the whole of it, or some of its samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from hetsched import _core
from hetsched.model import State
from hetsched.model.graph import Graph
from hetsched.policy.classify import task_type
from hetsched.policy.rates import Rate, Rates
from hetsched.scheduler.attempts import Attempt
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.reasons import Reason
from hetsched.scheduler.words import CutSaid, Graphed

HELD, READY, RUNNING = "held", "queued", "running"
SUCCEEDED, FAILED, CANCELLED, SKIPPED = (
    str(one) for one in (State.succeeded, State.failed, State.cancelled, State.skipped)
)
ENDS = (SUCCEEDED, FAILED, CANCELLED, SKIPPED)

Range = tuple[int, int]

encode = msgspec.msgpack.Encoder(order="deterministic").encode
decode_graph = msgspec.msgpack.Decoder(Graph).decode


class Part(msgspec.Struct, array_like=True, gc=False):
    """One operator. `left`: what of it is in no task; `cuts`: tasks made of it so far; `live`: those that have not ended; `made`: samples
    done by node; `taken_away`: pieces that ran too long and were given to others. `state`: held (for its parents), queued (may begin),
    running or an end."""

    state: str
    open_parents: int
    left: list[Range]
    done: int = 0
    cuts: int = 0
    live: int = 0
    made: dict[str, int] = {}
    started_ns: int = 0
    ended_ns: int = 0
    taken_away: int = 0


class Course(msgspec.Struct, array_like=True):
    """One graph. `live`: its tasks that have not ended, by slot."""

    id: str
    digest: bytes
    graph: Graph
    at_ns: int
    parts: list[Part]
    live: dict[int, CutSaid]
    is_cancelled: bool = False
    state: str = READY
    ended_ns: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing of it will happen any more."""
        return self.state in ENDS

    def uncut(self) -> int:
        """Operators of which something is no task yet."""
        return sum(bool(part.left) and part.state not in ENDS for part in self.parts)


class SavedGraphs(msgspec.Struct, frozen=True, array_like=True):
    """All of it. `live`: (graph, task slot, piece), which are not in the graphs here."""

    graphs: list[Course] = []
    live: list[tuple[str, int, CutSaid]] = []
    rates: list[Rate] = []


class Graphs:
    """By id, in order of acceptance. Derived, since somebody emptied them: `changed`, ids of graphs that facts moved, and `ends`,
    (id, operator) of pieces that ended."""

    def __init__(self, limit: int, bytes_per_s: float, find: Callable[[bytes], int]) -> None:
        self.limit = limit
        self.bytes_per_s = bytes_per_s
        self.by_id: dict[str, Course] = {}
        self.rates = Rates()
        self.changed: set[str] = set()
        self.ends: list[tuple[str, int]] = []
        self._of_task: dict[int, str] = {}
        self._children: dict[str, list[list[int]]] = {}
        self._due: dict[str, set[int]] = {}
        self._find = find
        self.heard: tuple[bytes, Graph] | None = None
        """A body that is about to be accepted, and the graph that it was made from: it need not be read again."""

    # -- word facts

    def apply(self, word: Graphed) -> None:
        """Accepted, cut or cancelled: whatever the word says."""
        if word.body is not None:
            self._accept(word.graph, word.body, word.at_ns)
        course = self.by_id[word.graph]
        for cut in word.cuts:
            self._cut(course, cut, word.at_ns)
        if word.is_cancelled:
            course.is_cancelled = True
            self._give_up(course, word.at_ns)
        self.changed.add(word.graph)

    def _accept(self, ident: str, body: bytes, at_ns: int) -> None:
        while len(self.by_id) >= self.limit and (oldest := self._oldest_ended()):
            self._forget(oldest)
        graph = self.heard[1] if self.heard is not None and self.heard[0] is body else decode_graph(body)
        self.heard = None
        parts = [
            Part(HELD if one.after else READY, len(one.after), [(one.begin, one.end)], made={})
            for one in graph.operators
        ]
        self.by_id[ident] = Course(ident, digest_of(body), graph, at_ns, parts, {})

    def _oldest_ended(self) -> str | None:
        return next((ident for ident, one in self.by_id.items() if one.is_over), None)

    def _forget(self, ident: str) -> None:
        del self.by_id[ident]
        self._children.pop(ident, None)
        self._due.pop(ident, None)

    def _cut(self, course: Course, cut: CutSaid, at_ns: int) -> None:
        part = course.parts[cut.operator]
        part.left = without(part.left, (cut.begin, cut.end))
        part.cuts = max(part.cuts, cut.number + 1)
        part.live += 1
        if part.state == READY:
            part.state, part.started_ns = RUNNING, max(at_ns, 1)  # 0: not yet
        course.state = RUNNING
        self._note(course, cut.operator)
        slot = self._find(cut_id(course, cut).encode())
        course.live[slot] = cut
        self._of_task[slot] = course.id

    # -- the end of a task

    def ended(self, task: int, state: int, reason: Reason, attempt: Attempt | None, model: str, now_ns: int) -> None:
        """A task is over for good, on this model if it ever ran; nothing happens if it is of no graph."""
        ident = self._of_task.pop(task, None)
        if ident is None:
            return
        course = self.by_id[ident]
        cut = course.live.pop(task)
        part = course.parts[cut.operator]
        part.live -= 1
        self.changed.add(ident)
        self.ends.append((ident, cut.operator))
        if state == _core.SUCCEEDED and attempt is not None:
            self._learn(course, cut, attempt, model, now_ns)
            self._done(course, cut, attempt.node, now_ns)
        elif reason is Reason.REPLANNED and part.state == RUNNING:
            if (
                attempt is not None
            ):  # it took at least so long: else it would be cut for the same device again, and taken away again
                self._learn(course, cut, attempt, model, now_ns)
                part.taken_away += 1
            part.left = _joined([*part.left, (cut.begin, cut.end)])
            self._note(course, cut.operator)
        elif part.state == RUNNING:
            self._end(course, cut.operator, FAILED if state == _core.FAILED else str(STATE_OF_CODE[state]), now_ns)
        self._settle(course, now_ns)

    def _done(self, course: Course, cut: CutSaid, node: str, now_ns: int) -> None:
        part, operator = course.parts[cut.operator], course.graph.operators[cut.operator]
        samples = cut.end - cut.begin
        part.done += samples
        part.made[node] = part.made.get(node, 0) + samples
        if part.state != RUNNING or part.done < operator.samples:
            return
        part.state, part.ended_ns = SUCCEEDED, now_ns
        for child in self.children(course)[cut.operator]:
            below = course.parts[child]
            below.open_parents -= 1
            if below.open_parents == 0 and below.state == HELD:
                below.state = READY
                self._note(course, child)

    def _end(self, course: Course, operator: int, state: str, now_ns: int) -> None:
        """Not done, and never will be; what needs it is skipped."""
        part = course.parts[operator]
        part.state, part.left, part.ended_ns = state if state in ENDS else CANCELLED, [], now_ns
        self._note(course, operator)
        ahead = [operator]
        while ahead:
            for child in self.children(course)[ahead.pop()]:
                below = course.parts[child]
                if below.state == HELD:
                    below.state, below.left, below.ended_ns = SKIPPED, [], now_ns
                    ahead.append(child)

    def _give_up(self, course: Course, now_ns: int) -> None:
        """Cancelled: nothing that has not begun will; what runs is stopped by whoever said so."""
        for part in course.parts:
            if part.state not in ENDS:
                part.state, part.left, part.ended_ns = CANCELLED, [], now_ns
        self._due[course.id] = set()
        self._settle(course, now_ns)

    def _settle(self, course: Course, now_ns: int) -> None:
        """The graph's one end, once nothing of it is left to happen."""
        if course.live or any(part.state not in ENDS for part in course.parts):
            return
        states = {part.state for part in course.parts}
        worst = next((one for one in (FAILED, CANCELLED) if one in states), SUCCEEDED)
        course.state = CANCELLED if course.is_cancelled and worst != SUCCEEDED else worst
        course.ended_ns = now_ns

    def _learn(self, course: Course, cut: CutSaid, attempt: Attempt, model: str, now_ns: int) -> None:
        """Time per work of a piece that ran from its start to its end, or was taken away because it took too long."""
        operator = course.graph.operators[cut.operator]
        body = operator.tasks[cut.alternative]
        work = operator.cost * (cut.end - cut.begin)
        if not work or (body.checkpoint is not None and attempt.number > 1):
            return
        run_s = (now_ns - began_ns(attempt)) / 1e9 - self.fetch_s(course, cut, attempt.node)
        if run_s > 0:
            self.rates.learn(task_type(body), model, run_s / work)

    def _note(self, course: Course, operator: int) -> None:
        """Whether something of it is to be cut."""
        due = self.due(course)
        (due.add if _is_due(course.parts[operator]) else due.discard)(operator)

    # -- questions

    def due(self, course: Course) -> set[int]:
        """Operators of which something may be cut now; derived."""
        found = self._due.get(course.id)
        if found is None:
            found = self._due[course.id] = {at for at, part in enumerate(course.parts) if _is_due(part)}
        return found

    @property
    def has_tasks(self) -> bool:
        """Whether some task is a piece of a graph."""
        return bool(self._of_task)

    def of_task(self, task: int) -> tuple[Course, CutSaid] | None:
        """The graph and the piece that a task is."""
        ident = self._of_task.get(task)
        return None if ident is None else (self.by_id[ident], self.by_id[ident].live[task])

    def children(self, course: Course) -> list[list[int]]:
        """By operator; derived."""
        found = self._children.get(course.id)
        if found is None:
            found = self._children[course.id] = [[] for _ in course.parts]
            for at in course.graph.order:
                for edge in course.graph.operators[at].after:
                    found[edge.parent].append(at)
        return found

    def fetch_s(self, course: Course, cut: CutSaid, node: str) -> float:
        """Seconds until what the piece needs from other nodes is on this one; transfers go on beside one another. A piece of a divisible
        operator needs its part of the data."""
        operator = course.graph.operators[cut.operator]
        needed = (cut.end - cut.begin) / operator.samples
        longest = 0.0
        for edge in operator.after:
            made = course.parts[edge.parent].made
            samples = sum(made.values())
            if edge.data_bytes and samples:
                away = 1.0 - made.get(node, 0) / samples
                longest = max(longest, edge.data_bytes * needed * away / self.bytes_per_s)
        return longest

    def open(self) -> list[Course]:
        """Those that are not over."""
        return [course for course in self.by_id.values() if not course.is_over]

    # -- snapshot

    def save(self) -> SavedGraphs:
        graphs = [msgspec.structs.replace(course, live={}) for course in self.by_id.values()]
        live = [(course.id, task, cut) for course in self.by_id.values() for task, cut in course.live.items()]
        return SavedGraphs(graphs, live, self.rates.save())

    def load(self, saved: SavedGraphs) -> None:
        self.by_id = {course.id: course for course in saved.graphs}
        for ident, task, cut in saved.live:
            self.by_id[ident].live[task] = cut
            self._of_task[task] = ident
        self.changed = set(self.by_id)
        self.rates.load(saved.rates)


def _is_due(part: Part) -> bool:
    return bool(part.left) and part.state in (READY, RUNNING)


def digest_of(body: bytes) -> bytes:
    """By which a graph that comes again is recognised."""
    return hashlib.blake2b(body, digest_size=16).digest()


def began_ns(attempt: Attempt) -> int:
    """When it started, or was placed: 0 is a time too, in the simulator."""
    return attempt.started_ns or attempt.placed_ns


def cut_id(course: Course, cut: CutSaid) -> str:
    """The task's id: GRAPH/OPERATOR, and its number where the operator may be, or was, cut more than once."""
    operator = course.graph.operators[cut.operator]
    plain = f"{course.id}/{operator.id}"
    return f"{plain}:{cut.number}" if operator.is_divisible or cut.number else plain


def without(ranges: list[Range], taken: Range) -> list[Range]:
    """The ranges but for one that lies within one of them."""
    out = []
    for begin, end in ranges:
        if begin <= taken[0] and taken[1] <= end:
            out += [one for one in ((begin, taken[0]), (taken[1], end)) if one[0] < one[1]]
        else:
            out.append((begin, end))
    return out


def _joined(ranges: list[Range]) -> list[Range]:
    out: list[Range] = []
    for begin, end in sorted(ranges):
        if out and out[-1][1] == begin:
            out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return out
