"""Makes the table's effects real: lines in the ledger, orders to shims, wishes to stop; and tells the table what became of them.

`Attempts` decides, this executes. Promises: `start` and `stop` never block and never raise for what an order says (that becomes the
attempt's end); whatever this process is killed in, the next one's `open` finds every attempt again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from hetsched import wire
from hetsched.agent import adoption, delegation, hunt, ledger, records, spawner
from hetsched.agent import attempts as table
from hetsched.agent.attempts import Attempts, Key, Outcome
from hetsched.agent.policy import Refusal
from hetsched.agent.shim.lease import Lease, now_ns
from hetsched.agent.spawner import Spawner
from hetsched.agent.spool import Spool
from hetsched.agent.watching import Shims
from hetsched.agent.writing import Writer

log = logging.getLogger("hetsched.agent")

_LOOK_AGAIN_S = 2.0  # between two tries at what the machine refuses for now
_CLOSE_S = 5.0
# So often a shim is asked for that leaves no sign: a minute, in which a machine that is merely slow has made it.
_TRIES = 30


class Runner:
    """All attempts of one agent. `say` gets what the daemon has to hear; it may drop it (the next Hello tells all)."""

    def __init__(self, site: records.Site, spool: Spool, lease: Lease, say: Callable[[Any], None]) -> None:
        self.attempts = Attempts()
        self._site = site
        self._spool = spool
        self._lease = lease
        self._say = say
        self._recorder = records.Recorder(site)
        self._writer = Writer(spool)
        self._spawner = Spawner(site.tasks, site.lease, site.tasks.parent / "shims.log", site.descriptors, self._heard)
        self._shims = Shims(self._shim_gone)
        self._numbers = itertools.count(1)
        self._orders: dict[int, Key] = {}  # given to the spawner and not ended
        self._records: dict[Key, records.Record] = {}  # of those that may have to be given again
        self._watched_by: dict[Key, tuple[int, int]] = {}  # shims of living attempts
        self._wishes: dict[Key, tuple[str, float]] = {}  # to end
        self._tries: Counter[Key] = Counter()  # of those whose shim leaves no sign
        self._works: set[asyncio.Task[None]] = set()
        self._clock: asyncio.TimerHandle | None = None
        self._clock_ns = 0
        self._closed = False

    @property
    def spawner_pid(self) -> int:
        """0 = none yet."""
        return self._spawner.pid

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Adopts what an earlier agent left: living tasks are watched again, ends not yet settled will be told."""
        self._lease.renew_generation()
        for one in await asyncio.to_thread(adoption.look, self._spool, self._site.boot_id):
            self.attempts.adopt(one.row)
            if one.shim is not None:
                self._watch(one.row.key, *one.shim)
        self._writer.flush()
        await asyncio.to_thread(self._spool.sweep)
        if self._site.cgroup is not None:
            cgroup, keep = self._site.cgroup, set(map(delegation.group_name, self._watched_by.values()))
            await asyncio.to_thread(delegation.sweep, cgroup, keep)
        self._tick()

    async def close(self) -> None:
        """Lets go. Tasks and their shims stay; what was being begun is begun."""
        if self._clock is not None:
            self._clock.cancel()
        await self._writer.close()
        self._closed = True
        self._shims.close()
        self._spawner.close()
        if self._works:  # hunts for what cannot be killed, or a disk that does not answer
            _, late = await asyncio.wait(self._works, timeout=_CLOSE_S)
            for work in late:
                work.cancel()
            if late:
                await asyncio.wait(late)

    # ------------------------------------------------------------------ orders

    def start(self, order: wire.Start) -> None:
        """Begins an attempt; answers again if it was begun before."""
        self._do(self.attempts.start(order))

    def stop(self, order: wire.Stop) -> None:
        """Ends an attempt; one that is not here never will be."""
        self._do(self.attempts.stop(Key(order.task, order.attempt), order.reason, order.grace_s))

    def settle(self, key: Key) -> None:
        """The daemon has its end on disk."""
        self._do(self.attempts.settle(key))

    def forget(self, key: Key) -> None:
        """Nothing of it is kept any more."""
        self._writer.note(ledger.Forgotten(*key))

    # ------------------------------------------------------------------ effects

    def _do(self, effects: list[table.Effect]) -> None:
        for effect in effects:
            match effect:
                case table.Say(message):
                    self._say(message)
                case table.Begin(order):
                    self._begin(order)
                case table.Hold(order):
                    self._hold(order)
                case table.Halt(key, reason, grace_s):
                    self._halt(key, reason, grace_s)
                case table.Bury(key, outcome):
                    self._writer.note(ledger.Ended(*key, outcome.succeeded, outcome.exit_code, outcome.reason, True))
                case table.Forget(key):
                    self._writer.note(ledger.Settled(*key, time.time()))

    def _begin(self, order: wire.Start) -> None:
        key = Key(order.task, order.attempt)
        if self._was_here(key):
            return
        try:
            record = self._records[key] = self._recorder.record_of(order, self._lease.generation)
        except Refusal as refusal:
            self._bury(key, Outcome(False, None, f"cannot_start: {refusal}"))
            return
        line = records.line_of(order, record, self._site)
        self._writer.note(line, lambda: self._ask(key), lambda error: self._cannot_note(key, error))

    def _ask(self, key: Key) -> None:
        """It is on disk: now it may be begun, unless somebody has thought better of it."""
        record, wish = self._records.get(key), self._wishes.get(key)
        if record is None:
            return
        if wish is not None:
            self._bury(key, Outcome(False, None, wish[0]))
            return
        if record.generation != self._lease.generation:
            self._bury(key, table.LEASE_OVER)
            return
        number = next(self._numbers)
        self._orders[number] = key
        self._spawner.ask(number, record)

    def _cannot_note(self, key: Key, error: OSError) -> None:
        self._bury(key, Outcome(False, None, f"cannot_start: {error.strerror}: the agent's ledger"))

    def _hold(self, order: wire.Start) -> None:
        key = Key(order.task, order.attempt)
        if self._was_here(key):
            return
        line = records.held_line_of(order, self._site)

        def held() -> None:
            self._do(self.attempts.held(key, until_ns=line.held_until_ns, at=time.time()))
            self._set_clock(min(self._lease.deadline_ns, line.held_until_ns or self._lease.deadline_ns))

        self._writer.note(line, held, lambda error: self._cannot_note(key, error))

    def _was_here(self, key: Key) -> bool:
        """Then it has ended as it did."""
        entry = self._spool.get(key)
        if entry is None:
            return False
        before = entry.outcome or Outcome(False, None, "cannot_start: it was here before")
        self._do(self.attempts.ended(key, before))
        return True

    def _halt(self, key: Key, reason: str, grace_s: float) -> None:
        self._wishes[key] = (reason, grace_s)
        if key in self._watched_by:
            self._work(self._pass_on(key))  # else as soon as a shim has it

    async def _pass_on(self, key: Key) -> None:
        """A wish to the shim."""
        wish, shim = self._wishes.get(key), self._watched_by.get(key)
        if wish is None or shim is None:
            return
        try:
            await asyncio.to_thread(self._spool.ask_to_stop, key, *wish)
        except FileNotFoundError:
            return  # it has ended meanwhile
        except OSError as error:
            log.error("%s attempt %d: cannot be told to stop now: %s", *key, error)
            self._later(lambda: self._work(self._pass_on(key)))
            return
        if key in self._watched_by:
            self._watch(key, *shim)
            self._shims.nudge(key)

    def _bury(self, key: Key, outcome: Outcome) -> None:
        """It has ended without ever having had a shim."""
        self._ended(key, outcome, silent=True)

    # ------------------------------------------------------------------ news

    def _heard(self, news: list[spawner.News]) -> None:
        for one in news:
            match one:
                case spawner.Started(order, shim, pid, at):
                    self._started(self._orders.get(order), shim, pid, at)
                case spawner.Ended(order):
                    self._heard_end(one)
                case spawner.Unclear(order):
                    key = self._orders.pop(order, None)
                    if key is not None:
                        self._look_after(key)
                case spawner.Died():
                    lost, self._orders = list(self._orders.values()), {}
                    for key in lost:
                        self._look_after(key)

    def _started(self, key: Key | None, shim: tuple[int, int], pid: int, at: float) -> None:
        if key is None:
            return
        self._do(self.attempts.started(key, pid=pid, at=at))
        self._watched_by[key] = shim
        if key in self._wishes:
            self._work(self._pass_on(key))

    def _heard_end(self, end: spawner.Ended) -> None:
        key = self._orders.pop(end.order, None)
        if key is None:
            return
        known = (lambda: self._spawner.known(end.order)) if end.silent else None
        self._ended(key, Outcome(end.succeeded, end.exit_code, end.reason), silent=end.silent, then=known)

    def _ended(self, key: Key, outcome: Outcome, *, silent: bool, then: Callable[[], None] | None = None) -> None:
        row = self.attempts.get(key)
        if row is None or row.outcome is not None:
            return
        for of_the_living in (self._wishes, self._tries, self._records, self._watched_by):
            of_the_living.pop(key, None)
        self._shims.release(key)
        self._writer.note(ledger.Ended(*key, outcome.succeeded, outcome.exit_code, outcome.reason, silent), then)
        self._do(self.attempts.ended(key, outcome))

    # ------------------------------------------------------------------ shims that do not speak to us

    def _watch(self, key: Key, pid: int, start_time: int) -> None:
        self._watched_by[key] = (pid, start_time)
        try:
            lives = self._shims.watch(key, pid, start_time)
        except OSError as error:
            log.error("%s attempt %d: its shim cannot be watched now: %s", *key, error)
            self._later(lambda: self._look_after(key))
            return
        if not lives:
            self._shim_gone(key)

    def _shim_gone(self, key: Key) -> None:
        """It has written how the attempt ended; if not, it was killed."""
        self._work(self._find_end(key))

    async def _find_end(self, key: Key) -> None:
        outcome = await hunt.outcome_without_shim(key, self._spool)
        self._ended(key, outcome, silent=False)

    def _look_after(self, key: Key) -> None:
        """Finds out from the files what nobody told us, until the attempt is watched or has ended."""
        row = self.attempts.get(key)
        if row is None or row.outcome is not None or row.held or key in self._shims:
            return
        try:
            life = self._spool.life(key)
        except (OSError, ValueError) as error:
            log.error("%s attempt %d: its directory cannot be read: %r", *key, error)
            self._watch(key, *adoption.NOBODY)
            return
        if life is None:
            self._ask_again(key)
            return
        if life.task_pid:
            self._do(self.attempts.started(key, pid=life.task_pid, at=life.started_at))
        if life.end is not None:
            self._shim_gone(key)
        else:
            self._watch(key, *life.shim)
            if key in self._wishes:
                self._work(self._pass_on(key))

    def _ask_again(self, key: Key) -> None:
        self._tries[key] += 1
        if self._tries[key] >= _TRIES:
            self._give_up(key)
            return
        log.warning("%s attempt %d: no sign of its shim, asked again; shims.log may say more", *key)
        self._later(lambda: self._ask(key))

    def _give_up(self, key: Key) -> None:
        """Claims the attempt first: a shim that comes after all finds it taken and does not begin it."""
        try:
            is_ours = self._spool.take_from_shims(key)
        except (
            OSError
        ) as error:  # a full disk, most likely what the shims met too; until it is claimed, one may still come
            log.error("%s attempt %d: cannot be claimed: %s", *key, error)
            is_ours = False
        if not is_ours:
            self._later(lambda: self._look_after(key))
            return
        why = f"cannot_start: none of {_TRIES} shims came up; {self._spawner.errors} may say why"
        self._bury(key, Outcome(False, None, why))

    # ------------------------------------------------------------------ time

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._works.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._works.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work on an attempt failed", exc_info=error)

    def _later(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, lambda: None if self._closed else call())

    def _set_clock(self, wake_ns: int | None) -> None:
        """The next `_tick` is at `wake_ns` or before."""
        if wake_ns is None or self._closed or (self._clock is not None and self._clock_ns <= wake_ns):
            return
        if self._clock is not None:
            self._clock.cancel()
        self._clock_ns = wake_ns
        wait_s = max(0.0, (wake_ns - now_ns()) / 1e9)
        self._clock = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _tick(self) -> None:
        """Ends held attempts whose time or lease is over."""
        self._clock = None
        deadline_ns = self._lease.deadline_ns
        self._do(self.attempts.tick(now_ns(), deadline_ns))
        self._set_clock(self.attempts.wake_ns(deadline_ns))
