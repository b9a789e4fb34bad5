"""When a waiting task will start: a copy is run forward, attempts ending when they are known to end, until it is placed.

What is known of an attempt's end: a `duration` is the truth; then what was learned of such tasks, where that beats the `estimate`; the
estimate is a guess, which the late run doubles; a `time_limit` bounds all; a stopping attempt has its `grace`. An attempt of which none of
this is known never ends here, so a start that hangs on it has no ETA, and the answer says so instead of guessing. Who expires at its deadline
leaves then, and makes way for others. Nothing new arrives, nothing fails: it is the future as far as it is known.
"""

from __future__ import annotations

import heapq
from itertools import takewhile

import msgspec

from hetsched import _core, wire
from hetsched.model import Task
from hetsched.policy.profiles import Prediction
from hetsched.scheduler import messages, outcomes, snapshot
from hetsched.scheduler.attempts import Attempt
from hetsched.scheduler.lifecycle import states_mask
from hetsched.scheduler.messages import Orders
from hetsched.scheduler.rehearse.image import Patience
from hetsched.scheduler.rehearse.unknown import open_parents
from hetsched.scheduler.scheduler import Scheduler
from hetsched.scheduler.timers import Timer

LATE = 2.0
"""How many times its estimate an attempt takes in the late run (p90) that is said to take its estimate in the other (p50)."""

MOST_STEPS = 2_000
MOST_HELD = 5_000
EXACT_STEPS, GRAIN = 300, 0.01
"""So many steps are taken end by end and window by window. After them, windows flush at once, and ends that lie close together (in parts
of the time since now) are one step: a far future costs no more than a near one."""

EVERYTHING = 1 << 31

UNKNOWN_ENDS = "no running task that stands in its way has a duration, an estimate or a time_limit"
TOO_FAR = (
    "too many tasks go before it to look farther ahead than the next {seconds:.0f} s, and it does not start within them"
)
IDLE = "nothing that is going to happen by itself would let it start"


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A task was placed at `at_ns` on `node`; `ended`: whose ends let it begin, as far as they are known."""

    at_ns: int
    node: str
    ended: tuple[str, ...]


class Ended(msgspec.Struct, frozen=True):
    """The end of an attempt, on its node."""

    at_ns: int
    node: str


class Future(msgspec.Struct, kw_only=True):
    """`starts`: by task slot. `expired`: deadlines of those that it ended before they could start. `why`: of the others that are missing.
    `until_ns`: how far was looked."""

    starts: dict[int, Start]
    expired: dict[int, int] = {}
    why: str = ""
    until_ns: int = 0


def end_ns(body: Task, since_ns: int, now_ns: int, predicted: Prediction | None, *, late: bool) -> int | None:
    """When an attempt that began at `since_ns` ends; None = nobody knows."""
    limit_ns = None if body.time_limit is None else since_ns + round(body.time_limit * 1e9)
    if body.duration is not None and body.command is None:
        known = since_ns + round(body.duration * 1e9)
    elif predicted is not None:
        late_s = predicted.p50_s * LATE if predicted.source == "estimate" else predicted.p90_s
        known = since_ns + round((late_s if late else predicted.p50_s) * 1e9)
        if known < now_ns:  # it was wrong: only the limit is left to go by
            return limit_ns
    elif limit_ns is not None:
        known = limit_ns
    else:
        return None
    return max(now_ns, known if limit_ns is None else min(known, limit_ns))


class Runner:
    """Runs one copy forward, once."""

    def __init__(self, scheduler: Scheduler, now_ns: int, *, late: bool) -> None:
        self.scheduler = scheduler
        self.core = scheduler.core
        self.live = scheduler.books.attempts.live
        self.began_ns = now_ns
        self.now_ns = now_ns
        self.late = late
        self._ends: list[tuple[int, int, int]] = []  # (time, task slot, attempt)
        self._pauses: list[int] = []  # when those are over that lasted at the beginning
        self._deadlines: dict[int, int] = {}  # by task slot, of those that waited at the beginning
        self._parents: dict[int, list[str]] = {}  # by task slot: whom it was held by at the beginning
        self._ended: dict[str, Ended] = {}  # by task, the latest last
        self._just_ns = round(scheduler.config.batch.max_wait * 1e9)  # what ended so shortly before a start let it come
        self._unknown = 0
        self._predictions: dict[tuple[int, str], Prediction | None] = {}

    def run(self, wanted: set[int], is_over: Patience, *, undated: frozenset[int] = frozenset()) -> Future:
        """Until all wanted tasks are placed or have expired, or nothing happens any more, or it takes too long. `undated`: as if the deadlines
        of these tasks ended nothing."""
        self._set_timers()
        self._set_deadlines(undated)
        for task in list(self.live):
            self._expect(task)
        heapq.heapify(self._ends)
        future = Future(starts={})
        for task in wanted & self.live.keys():
            future.starts[task] = Start(at_ns=self.now_ns, node=self.live[task].node, ended=())
        missing = wanted - self.live.keys()
        self._parents = {task: open_parents(self.scheduler, task) for task in missing}
        window = self.scheduler.window
        window.max_wait_ns = round(self.scheduler.config.batch.max_wait * 1e9)
        window.open(self.now_ns)
        inputs: list[messages.Input] = []
        for count in range(MOST_STEPS):
            self._note_starts(self.scheduler.step(inputs, self.now_ns).orders, missing, future)
            self._note_expired(missing, future)
            if not missing or is_over() or not self._next_ns():
                break
            if count == EXACT_STEPS:
                window.max_wait_ns = 0
            inputs = self._due(0.0 if count < EXACT_STEPS else GRAIN)
        future.until_ns = self.now_ns
        if missing:
            future.why = self._why()
        return future

    def _why(self) -> str:
        """Why there are tasks that have not started."""
        if self._next_ns():
            return TOO_FAR.format(seconds=(self.now_ns - self.began_ns) / 1e9)
        return UNKNOWN_ENDS if self._unknown else IDLE

    # -- what is going to happen

    def _set_timers(self) -> None:
        """Pauses of those that back off, and links of those that are held, unless they are too many."""
        scheduler, books = self.scheduler, self.scheduler.books
        for task, until_ns in books.backoff_until_ns.items():
            scheduler.world.timers.set(Timer.BACKOFF, task, until_ns)
            self._pauses.append(until_ns)
        held = self.core.page(0, MOST_HELD + 1, states_mask((_core.HELD,)))
        if len(held) <= MOST_HELD:
            self.core.begin(self.now_ns)
            for task in held:
                if self.core.task(task).flags & _core.HELD_DEPENDENCY:
                    outcomes.settle_dependencies(scheduler.world, task, scheduler.world.body(task))

    def _set_deadlines(self, undated: frozenset[int]) -> None:
        """Of all that wait and expire: a copy has none of these timers but those of tasks that were submitted to it."""
        timers = self.scheduler.world.timers
        for task, deadline_ns in snapshot.expiries(self.scheduler.world):
            timers.set(Timer.DEADLINE, task, deadline_ns)
            self._deadlines[task] = deadline_ns
        for task in undated:
            timers.clear(Timer.DEADLINE, task)
            self._deadlines.pop(task, None)

    def _expect(self, task: int) -> None:
        """Note when the live attempt of the task ends."""
        row, attempt, body = self.core.task(task), self.live[task], self.scheduler.world.body(task)
        since_ns = attempt.started_ns or attempt.placed_ns
        predicted = self._predict(row.template, body, attempt)
        at_ns = end_ns(body, since_ns, self.now_ns, predicted, late=self.late)
        if row.state == _core.STOPPING:
            killed_ns = row.changed_ns + round(body.grace * 1e9)
            at_ns = max(self.now_ns, killed_ns if at_ns is None else min(killed_ns, at_ns))
        if at_ns is None:
            self._unknown += 1
        else:
            self._ends.append((at_ns, task, attempt.number))

    def _predict(self, template: int, body: Task, attempt: Attempt) -> Prediction | None:
        """How long such a task runs on the device that it has; asked once for each template and model."""
        model = self.scheduler.books.model_of(attempt)
        key = template, model
        if key not in self._predictions:
            self._predictions[key] = self.scheduler.books.profiles.predict(body, model)
        return self._predictions[key]

    def _next_ns(self) -> int:
        """When something happens next; 0: never."""
        wake_ns = self.scheduler.wake_ns()
        due = [self._ends[0][0]] if self._ends else []
        return min([*due, *([] if wake_ns is None else [wake_ns])], default=0)

    def _due(self, grain: float) -> list[messages.Input]:
        """Go on to that time; what is said then."""
        self.now_ns = max(self.now_ns, self._next_ns())
        last_ns = self.now_ns + round((self.now_ns - self.began_ns) * grain)
        if grain and (not self._ends or self._ends[0][0] > self.now_ns):
            self.now_ns = last_ns  # timers that lie close together, too
        inputs: list[messages.Input] = []
        ended: dict[str, str] = {}
        while self._ends and self._ends[0][0] <= last_ns:
            at_ns, task, number = heapq.heappop(self._ends)
            self.now_ns = max(self.now_ns, at_ns)
            attempt = self.live.get(task)
            if attempt is None or attempt.number != number:
                continue
            name = self.scheduler.books.id_of(task)
            ended[name] = attempt.node
            stopping = self.core.task(task).state == _core.STOPPING
            inputs.append(messages.AttemptEnded(node=attempt.node, task=name, attempt=number, succeeded=not stopping))
        for name, node in ended.items():
            self._ended.pop(name, None)
            self._ended[name] = Ended(self.now_ns, node)
        return inputs

    # -- what happened

    def _note_starts(self, orders: Orders, missing: set[int], future: Future) -> None:
        known = len(self._ends)
        for order in orders:
            if isinstance(order.message, wire.Start):
                task = self.core.find(order.message.task.encode())
                self._expect(task)
                if task in missing:
                    missing.discard(task)
                    future.starts[task] = Start(
                        at_ns=self.now_ns, node=order.node, ended=self._who_let_it(task, order.node)
                    )
            elif isinstance(order.message, wire.Stop):
                self._expect_stop(order.message)
        if len(self._ends) > known:
            heapq.heapify(self._ends)

    def _who_let_it(self, task: int, node: str) -> tuple[str, ...]:
        """Whose ends let the task begin on the node now: the last of those that it waited for, and of what ended just now who was on the node,
        else all of that (a limit of its queue, the place of another member, who had a reservation)."""
        parents = [name for name in self._parents[task] if name in self._ended]
        last_ns = max((self._ended[name].at_ns for name in parents), default=0)
        parents = [name for name in parents if self._ended[name].at_ns == last_ns]
        if last_ns >= self.now_ns - self._just_ns:
            return tuple(parents)
        just = self._ended_since(self.now_ns - self._just_ns)
        there = [name for name in just if self._ended[name].node == node]
        if not just and not parents and not self._was_due():  # looked at again a while after there was room
            there = [name for name, ended in self._ended.items() if ended.node == node][-1:]
        return (*parents, *(there or just))

    def _ended_since(self, since_ns: int) -> list[str]:
        """Who ended then or later, in order."""
        found = list(takewhile(lambda name: self._ended[name].at_ns >= since_ns, reversed(self._ended)))
        return found[::-1]

    def _was_due(self) -> bool:
        """A pause or a deadline was over just now, of whomever."""
        times = (*self._deadlines.values(), *self._pauses)
        return any(self.now_ns - self._just_ns <= due_ns <= self.now_ns for due_ns in times)

    def _note_expired(self, missing: set[int], future: Future) -> None:
        """After the starts of the step: whoever has not started by its deadline never does."""
        for task in [task for task in missing if self._deadlines.get(task, self.now_ns + 1) <= self.now_ns]:
            missing.discard(task)
            future.expired[task] = self._deadlines[task]

    def _expect_stop(self, stop: wire.Stop) -> None:
        """A victim has its grace from now."""
        task = self.core.find(stop.task.encode())
        attempt = self.live.get(task)
        if attempt is not None and attempt.number == stop.attempt:
            self._ends.append((self.now_ns + round(stop.grace_s * 1e9), task, attempt.number))
