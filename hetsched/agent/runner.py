"""Makes the table's effects real: records on disk, shims, signals; and tells the table what became of them.

`Attempts` decides, this executes; what an attempt's files need is done in order (`Chains`).
Promises: `start` and `stop` never block and never raise for what an order says (that becomes the attempt's end); whatever this
process is killed in, the next one's `open` finds every attempt again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hetsched import wire
from hetsched.agent import adoption, delegation, hunt, records
from hetsched.agent import attempts as table
from hetsched.agent.attempts import Attempts, Key, Outcome
from hetsched.agent.chains import Chains
from hetsched.agent.nursery import Nursery
from hetsched.agent.policy import Refusal
from hetsched.agent.shim.lease import Lease, now_ns
from hetsched.agent.shim.tree import describe
from hetsched.agent.spool import Spool, directory_name
from hetsched.agent.watching import Shims

log = logging.getLogger("hetsched.agent")

# An order to the nursery is answered in milliseconds; after this long somebody was killed and we look ourselves.
_LOOK_AFTER_S = 2.0  # also between two tries at what the machine refuses for now
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
        self._chains = Chains()
        self._nursery = Nursery(site.tasks.parent / "shims.log", site.descriptors, self._heard)
        self._shims = Shims(self._shim_gone)
        self._names: dict[str, Key] = {}
        self._stopping: set[Key] = set()
        self._tries: Counter[Key] = Counter()  # of those whose shim leaves no sign
        self._clock: asyncio.TimerHandle | None = None
        self._clock_ns = 0
        self._closed = False

    @property
    def nursery_pid(self) -> int:
        """0 = none yet."""
        return self._nursery.pid

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Adopts what an earlier agent left: living tasks are watched again, ends not yet settled will be told."""
        for one in await self._chains.in_thread(lambda: adoption.look(self._spool, self._site.boot_id)):
            self.attempts.adopt(one.row)
            if one.shim is not None:
                self._names[directory_name(one.row.key)] = one.row.key
                self._watch(one.row.key, *one.shim)
        if self._site.cgroup is not None:
            cgroup, keep = self._site.cgroup, {directory_name(key) for key in self.attempts.alive()}
            await self._chains.in_thread(lambda: delegation.sweep(cgroup, keep))
        self._tick()

    async def close(self) -> None:
        """Lets go. Tasks and their shims stay; what was being begun is begun."""
        self._closed = True
        if self._clock is not None:
            self._clock.cancel()
        await self._chains.close(_CLOSE_S)
        self._shims.close()
        self._nursery.close()

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

    # ------------------------------------------------------------------ effects

    def _do(self, effects: list[table.Effect]) -> None:
        for effect in effects:
            match effect:
                case table.Say(message):
                    self._say(message)
                case table.Begin(order):
                    self._chains.add(Key(order.task, order.attempt), self._begin(order))
                case table.Hold(order):
                    self._chains.add(Key(order.task, order.attempt), self._hold(order))
                case table.Halt(key, reason, grace_s):
                    self._chains.add(key, self._halt(key, reason, grace_s))
                case table.Bury(key, outcome):
                    self._chains.add(key, self._bury(key, outcome))
                case table.Forget(key):
                    self._chains.add(key, self._chains.in_thread(lambda key=key: self._spool.settle(key)))  # type: ignore[misc]

    async def _begin(self, order: wire.Start) -> None:
        key = Key(order.task, order.attempt)
        if await self._record(key, lambda: records.record_of(order, self._site)):
            self._names[directory_name(key)] = key
            self._nursery.ask(self._spool.path(key))
            self._later(lambda: self._look_after(key))

    async def _hold(self, order: wire.Start) -> None:
        key = Key(order.task, order.attempt)
        record = records.held_record_of(order, self._site)
        if await self._record(key, lambda: record):
            until_ns = record["held_until_ns"]
            self._do(self.attempts.held(key, until_ns=until_ns, at=time.time()))
            self._set_clock(min(self._lease.deadline_ns, until_ns or self._lease.deadline_ns))

    async def _record(self, key: Key, make: Callable[[], dict[str, Any]]) -> bool:
        """Whether a new record is on disk; if not, the attempt has ended here or before."""
        try:
            await self._chains.in_thread(lambda: self._spool.prepare(key, make()))
            return True
        except FileExistsError:
            before = await self._chains.in_thread(lambda: self._spool.outcome(key))
            self._do(self.attempts.ended(key, before or Outcome(False, None, "cannot_start: it was here before")))
        except (Refusal, OSError) as error:
            text = str(error) if isinstance(error, Refusal) else describe(error, "attempt.json")
            await self._bury(key, Outcome(False, None, f"cannot_start: {text}"))
        return False

    async def _halt(self, key: Key, reason: str, grace_s: float) -> None:
        if self.attempts.get(key) is None:
            return
        self._stopping.add(key)
        await self._chains.in_thread(lambda: self._spool.ask_to_stop(key, reason, grace_s))
        self._shims.nudge(key)

    async def _bury(self, key: Key, outcome: Outcome) -> None:
        try:
            await self._chains.in_thread(lambda: self._spool.write_outcome(key, outcome))
        except OSError as error:
            log.error("%s attempt %d: cannot keep its end on disk: %s", *key, error)  # kept in memory, and said
        self._do(self.attempts.ended(key, outcome))

    # ------------------------------------------------------------------ news

    def _heard(self, message: dict[str, Any]) -> None:
        """From a shim, or that the nursery is dead."""
        if message["event"] == "nursery_died":
            # Only orders that were given: an attempt whose record is still being written has lost nothing, and to look at
            # it now would take its empty directory for a murder.
            for key in self.attempts.alive():
                if directory_name(key) in self._names and key not in self._shims and not self._closed:
                    self._look_after(key)
            return
        named = self._names.get(message["key"])
        if named is None:
            return
        if message["event"] == "started":
            self._do(self.attempts.started(named, pid=message["pid"], at=message["at"]))
            self._watch(named, message["shim"], message["shim_start_time"])
        else:
            self._look_after(named)

    def _watch(self, key: Key, pid: int, start_time: int) -> None:
        try:
            lives = self._shims.watch(key, pid, start_time)
        except OSError as error:
            log.error("%s attempt %d: its shim cannot be watched now: %s", *key, error)
            self._later(lambda: self._watch(key, pid, start_time))
            return
        if not lives:
            self._shim_gone(key)
        elif key in self._stopping:
            self._shims.nudge(key)  # the wish may have come between its look and our knowing it

    def _shim_gone(self, key: Key) -> None:
        """It has written how the attempt ended; if not, it was killed."""
        try:
            outcome = self._spool.outcome(key)
        except FileNotFoundError:
            outcome = None
        except OSError as error:
            log.error("%s attempt %d: its end cannot be read now: %s", *key, error)
            self._later(lambda: self._shim_gone(key))
            return
        if outcome is None:
            self._chains.add(key, self._after_murder(key))
        else:
            self._ended(key, outcome)

    async def _after_murder(self, key: Key) -> None:
        outcome = await hunt.outcome_without_shim(key, self._spool)
        await self._bury(key, outcome)
        self._ended(key, outcome)

    def _ended(self, key: Key, outcome: Outcome) -> None:
        self._stopping.discard(key)
        self._tries.pop(key, None)
        self._names.pop(directory_name(key), None)
        self._do(self.attempts.ended(key, outcome))

    # ------------------------------------------------------------------ time

    def _later(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(_LOOK_AFTER_S, lambda: None if self._closed else call())

    def _look_after(self, key: Key) -> None:
        """Finds out from the files what nobody told us, until the attempt is watched or has ended."""
        row = self.attempts.get(key)
        if row is None or row.outcome is not None or row.held or key in self._shims:
            return
        try:
            found = self._spool.find(self._spool.path(key))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("%s attempt %d: its directory cannot be read: %r", *key, error)
            self._later(lambda: self._look_after(key))
            return
        if found is None or found.outcome is not None:
            self._shim_gone(key)
        elif found.shim is not None:
            if found.task_pid is not None:
                self._do(self.attempts.started(key, pid=found.task_pid, at=found.started_at))
            self._watch(key, *found.shim)
        else:
            self._ask_again(key)

    def _ask_again(self, key: Key) -> None:
        self._tries[key] += 1
        if self._tries[key] >= _TRIES:
            self._chains.add(key, self._give_up(key))
            return
        log.warning("%s attempt %d: no sign of its shim, asked again; shims.log may say more", *key)
        self._nursery.ask(self._spool.path(key))  # harmless twice: the first shim claims it
        self._later(lambda: self._look_after(key))

    async def _give_up(self, key: Key) -> None:
        """Claims the attempt first: a shim that comes after all finds it taken and does not begin it."""
        try:
            is_ours = await self._chains.in_thread(lambda: self._spool.take_from_shims(key))
        except (
            OSError
        ) as error:  # a full disk, most likely what the shims met too; until it is claimed, one may still come
            log.error("%s attempt %d: cannot be claimed: %s", *key, error)
            is_ours = False
        if not is_ours:
            self._later(lambda: self._look_after(key))
            return
        outcome = Outcome(
            False, None, f"cannot_start: none of {_TRIES} shims came up; {self._nursery.errors} may say why"
        )
        await self._bury(key, outcome)
        self._ended(key, outcome)

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
