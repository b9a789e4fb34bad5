"""Plug-ins in a daemon: each on a thread of its own, within a time budget per decision, so that a slow one stalls no lane.

A call over its time is left to finish: the plug-in is dropped from this decision and counted, asked nothing more until it is back, and
its late answer serves the next decision. Python's threads share one lock: a plug-in that holds it in C code stalls everybody all the
same, which no budget can mend.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping

from hetsched.policy.fleet import Fleet, Vector
from hetsched.policy.scorers import Scorer, Scorers, checked
from hetsched.policy.shape import ShapeWords


class Call:
    """One question under way. `answer` or `fault` is there once `done` is set."""

    def __init__(self, shape: ShapeWords, fleet: Fleet) -> None:
        self.shape = shape
        self.fleet = fleet
        self.done = threading.Event()
        self.answer: Vector | None = None
        self.fault = ""


class Worker:
    """One plug-in's thread. A daemon thread: a plug-in that never returns does not keep the program from ending."""

    def __init__(self, name: str, scorer: Scorer) -> None:
        self._scorer = scorer
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self.late: Call | None = None
        threading.Thread(target=self._run, name=f"scorer-{name}", daemon=True).start()

    def ask(self, shape: ShapeWords, fleet: Fleet, timeout_s: float) -> Call:
        """The call, done or (as `late`) still under way."""
        call = Call(shape, fleet)
        self._calls.put(call)
        if not call.done.wait(timeout_s):
            self.late = call
        return call

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                call.answer = checked(self._scorer(call.shape, call.fleet), call.fleet)
            except BaseException as error:  # a plug-in may raise anything; its thread goes on
                call.fault = repr(error)
            call.done.set()


class ThreadedScorers(Scorers):
    """`budget_s`: what each plug-in may take of one decision, over all shapes that are told in it."""

    def __init__(
        self, scorers: Mapping[str, Scorer], budget_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(scorers)
        self._budget_s = budget_s
        self._clock = clock
        self._workers = {name: Worker(name, scorer) for name, scorer in scorers.items()}
        self._left_s = dict.fromkeys(scorers, budget_s)
        self._missed = False

    def begin(self) -> bool:
        """A fresh budget. True: some plug-in missed a shape for want of time and can be asked again."""
        self._left_s = dict.fromkeys(self.scorers, self._budget_s)
        can_ask = any(worker.late is None or worker.late.done.is_set() for worker in self._workers.values())
        again, self._missed = self._missed and can_ask, self._missed and not can_ask
        return again

    def _ask(self, name: str, shape: ShapeWords, fleet: Fleet) -> Vector | None:
        call = self._call(name, shape, fleet)
        if call is None or not call.done.is_set():
            self._missed = True
            self.drop(name, "slow", f"more than {self._budget_s:g} s in one decision")
            return None
        if call.answer is None:
            self.drop(name, "raised", call.fault)
        return call.answer

    def _call(self, name: str, shape: ShapeWords, fleet: Fleet) -> Call | None:
        """None: it may not be asked now."""
        worker, late = self._workers[name], self._workers[name].late
        if late is not None:
            if not late.done.is_set():
                return None
            worker.late = None
            if late.shape == shape and late.fleet is fleet:
                return late
        if self._left_s[name] <= 0:
            return None
        began_s = self._clock()
        call = worker.ask(shape, fleet, self._left_s[name])
        self._left_s[name] -= self._clock() - began_s
        return call
