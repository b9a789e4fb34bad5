"""Plans and advice: questions that are answered by a copy of the scheduler, in a process of its own and never in the way of the turn loop.

Promises: the loop pays for images, some milliseconds each and at most a tenth of its time, for explain at most one a second; no answer
takes much longer than `limits.plan_time`; at most `MOST_ASKED` questions wait, more are refused (a plan) or answered without advice
(explain). What was found out about a task is kept as long as the image: who polls in a loop costs a dictionary's look-up.

*Why a process* (and not a thread, or slices of the loop): a thread shares the interpreter's lock. Measured with 100,000 waiting tasks on a
busy machine, the loop was late by 6 ms at the median and 100 ms at worst while a thread worked out one explanation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from hetsched.daemon import rehearsing
from hetsched.daemon.clock import Clock
from hetsched.daemon.sidecar import Sidecar
from hetsched.errors import HetschedError, TooBusy, TooLarge
from hetsched.model import Rejection, Submission, Task
from hetsched.scheduler import Scheduler, rehearse
from hetsched.scheduler.lifecycle import WAITING_CODES
from hetsched.scheduler.rehearse import Advice

log = logging.getLogger("hetsched.daemon")

MOST_ASKED = 16
FRESH_S = 1.0
KEPT = 4096
IMAGE_REST = 10.0
"""After an image there is none for so many times as long as it took: a flood of plans costs the loop a tenth of its time, not all of it."""

START_S = 30.0
"""Beyond the time of all questions before it, so long an answer may be late: the helper may have to start on a busy machine."""

BUSY = "too many questions are being answered just now; ask again"
FAULTY = "it could not be worked out; the daemon's log says why"


class Planner:
    """One per daemon. `asked`: questions that wait or are being answered. `changes`: another number when the scheduler has changed; None = the
    scheduler's own, which counts the turns that it takes."""

    def __init__(self, scheduler: Scheduler, clock: Clock, changes: Callable[[], int] | None = None) -> None:
        self._scheduler = scheduler
        self._changes = changes or (lambda: scheduler.changes)
        self._clock = clock
        self._limits = scheduler.config.limits
        self._sidecar = Sidecar("hetsched.daemon.rehearsing", START_S + MOST_ASKED * self._limits.plan_time)
        self._shown: tuple[int, int] | None = (
            None  # (start of the helper, changes of the scheduler) that the helper's image is of
        )
        self._shown_s = 0.0
        self._image_s = 0.0
        self._advice: OrderedDict[str, asyncio.Future[Advice | str | None]] = OrderedDict()
        self.asked = 0

    def close(self) -> None:
        """Nothing new."""
        self._sidecar.close()

    # ------------------------------------------------------------------ plans

    async def plan(self, submission: Submission) -> dict[str, Any]:
        """What submitting this would do. Raises TooLarge and TooBusy."""
        items = submission.items
        if len(items) > self._limits.plan_tasks:
            raise TooLarge(
                f"a plan may hold {self._limits.plan_tasks} tasks (limits.plan_tasks), this one has {len(items)}"
            )
        if self.asked >= MOST_ASKED:
            raise TooBusy(BUSY)
        tasks = [(index, item) for index, item in enumerate(items) if isinstance(item, Task)]
        alone = [task for _, task in tasks]
        answer = await self._ask(lambda now_ns: rehearsing.Plan(alone, now_ns), 0.0)
        if answer.fault:
            log.error("no plan: %s", answer.fault)
            raise HetschedError(FAULTY)
        told = answer.plan
        for entry in (*told["tasks"], *told["rejected"]):
            entry["index"] = tasks[entry["index"]][0]
        refused = [
            {"index": item.index, "problem": item.problem.body()} for item in items if isinstance(item, Rejection)
        ]
        told["rejected"] = sorted((*told["rejected"], *refused), key=lambda entry: int(entry["index"]))
        told["summary"]["rejected"] = len(told["rejected"])
        return told

    # ------------------------------------------------------------------ explanations

    async def explain(self, ident: str) -> dict[str, Any]:
        """Why the task waits, or why it is where it is; of a waiting one also when it will start and what would help. Raises NotFound."""
        if not self._waits(ident):
            return self._scheduler.view.explain(ident)
        advice = await self._advise(ident)
        told = self._scheduler.view.explain(ident)
        return with_advice(told, advice) if self._waits(ident) else told

    def _waits(self, ident: str) -> bool:
        view = self._scheduler.view
        return view.core.task(view.slot(ident)).state in WAITING_CODES

    async def _advise(self, ident: str) -> Advice | str:
        """The advice, or why there is none."""
        for stale_s in (FRESH_S, 0.0):  # again with a new image where the task came after the old one was taken
            if self._is_old(stale_s):
                self._advice.clear()
            asked = self._advice.get(ident)
            if asked is None:
                if self.asked >= MOST_ASKED:
                    return BUSY
                asked = self._advice[ident] = asyncio.ensure_future(self._ask_advice(ident, stale_s))
                if len(self._advice) > KEPT:
                    self._advice.popitem(last=False)
            advice = await asyncio.shield(asked)
            if advice is not None:
                return advice
        return BUSY

    async def _ask_advice(self, ident: str, stale_s: float) -> Advice | str | None:
        """An explanation without advice is better than none: what goes wrong here is logged and said."""
        try:
            answer = await self._ask(lambda now_ns: rehearsing.Advise(ident, now_ns), stale_s)
        except HetschedError as error:
            return error.detail
        if answer.fault:
            log.error("no advice for %s: %s", ident, answer.fault)
            return FAULTY
        return answer.advice

    # ------------------------------------------------------------------ the helper

    def _is_old(self, stale_s: float) -> bool:
        """Whether something has changed since the helper was shown an image, which is older than that."""
        now = self._sidecar.starts, self._changes()
        return self._shown is None or (self._shown != now and time.monotonic() - self._shown_s >= stale_s)

    async def _ask(self, question: Callable[[int], rehearsing.Question], stale_s: float) -> rehearsing.Answer:
        """`question`: made of the time at which it is sent."""

        def build() -> list[bytes]:
            payloads = [rehearsing.encode(question(self._clock.now_ns()))]
            if self._is_old(stale_s) or self._shown is None or self._shown[0] != self._sidecar.starts:
                payloads.insert(0, self._take())
            return payloads

        self.asked += 1
        try:
            if self._is_old(stale_s):
                await asyncio.sleep(max(0.0, self._shown_s + IMAGE_REST * self._image_s - time.monotonic()))
            return rehearsing.answer_of(await self._sidecar.ask(build))
        finally:
            self.asked -= 1

    def _take(self) -> bytes:
        """A new image, as a frame. All that the turn loop pays."""
        began_s = time.monotonic()
        payload = rehearsing.encode(rehearsing.Show(rehearse.take(self._scheduler, apart=False)))
        self._shown = self._sidecar.starts, self._changes()
        self._shown_s = time.monotonic()
        self._image_s = self._shown_s - began_s
        return payload


class FollowedPlanner(Planner):
    """For a standby: its scheduler is only ever told what the leader decided, so that ranks and prices are worked out on a copy, too."""

    async def explain(self, ident: str) -> dict[str, Any]:
        """As the leader's. Raises NotFound and TooBusy."""
        if self.asked >= MOST_ASKED:
            raise TooBusy(BUSY)
        for stale_s in (FRESH_S, 0.0):  # again with a new image where the task came after the old one was taken
            self._scheduler.view.slot(ident)
            answer = await self._ask(lambda now_ns: rehearsing.Explain(ident, now_ns), stale_s)
            if answer.fault:
                log.error("no explanation of %s: %s", ident, answer.fault)
                raise HetschedError(FAULTY)
            if answer.told is not None:
                return answer.told if answer.advice is None else with_advice(answer.told, answer.advice)
        raise TooBusy(BUSY)


def with_advice(told: dict[str, Any], advice: Advice | str) -> dict[str, Any]:
    """The whole answer about a waiting task. A text instead of advice says why there is none."""
    if isinstance(advice, str):
        return {**told, "eta": None, "eta_reason": advice, "remedies": []}
    out = {**told, **msgspec.to_builtins(advice)}
    if advice.eta is not None:
        out["eta_seconds"] = advice.eta["p50"]
    return out
