"""The agent's table of attempts: orders and news in, effects out. No clock, no disk, no process.

    absent ──start──▶ preparing ──started──▶ running ──ended──▶ ended ──settled──▶ absent
       └──stop──▶ ended ("never started": a tombstone, so that a start that comes late is refused)

Promises: starting and stopping are idempotent by (task, attempt); an attempt's end is said until the daemon has it on disk; what has
ended never runs again. An attempt without a command is *held*: it has no process, only a time at which it is over.

What is settled leaves the table, so that its size is that of what runs here; the ledger still remembers it, and a start that comes for
it again ends, in the runner, with what is written there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from hetsched import wire


class Key(NamedTuple):
    """One try at a task; attempts count from 1."""

    task: str
    attempt: int


class Holds(msgspec.Struct, frozen=True):
    """What an attempt was given. `devices`: their ids."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    devices: tuple[str, ...] = ()


def holds_of(order: wire.Start) -> Holds:
    return Holds(order.cpu_milli, order.memory_bytes, tuple([device for device, _ in order.devices]))


class Phase(StrEnum):
    preparing = "preparing"  # its line is being written, a shim is taking it up
    running = "running"
    ended = "ended"  # nothing of it lives; the daemon may not know yet


MOVES = {
    Phase.preparing: {Phase.running, Phase.ended},
    Phase.running: {Phase.ended},
    Phase.ended: set(),
}


class Outcome(msgspec.Struct, frozen=True):
    """How it ended. `reason`: "" where it succeeded, else `exit N`, `signal N`, `time_limit`, `lease`, `cannot_start: …` or a stop's."""

    succeeded: bool
    exit_code: int | None = None
    reason: str = ""


NEVER_STARTED = Outcome(False, None, "never started")
LEASE_OVER = Outcome(False, None, "lease")


class Attempt(msgspec.Struct):
    """A row. `held_until_ns`: only of held attempts, in `lease.now_ns` time; None = until told. `holds`: what it was given."""

    key: Key
    phase: Phase = Phase.preparing
    held: bool = False
    held_until_ns: int | None = None
    started_at: float = 0.0
    pid: int = 0
    outcome: Outcome | None = None
    holds: Holds = Holds()


# ---------------------------------------------------------------------- effects


class Begin(msgspec.Struct, frozen=True):
    """Write it down, then have a shim begin it. News of it comes back as `started` or `ended`."""

    order: wire.Start


class Hold(msgspec.Struct, frozen=True):
    """Write down an attempt without process; comes back as `held`."""

    order: wire.Start


class Halt(msgspec.Struct, frozen=True):
    """Tell the shim to end it."""

    key: Key
    reason: str
    grace_s: float


class Bury(msgspec.Struct, frozen=True):
    """Keep on disk how an attempt ended that has no shim to write it down."""

    key: Key
    outcome: Outcome


class Forget(msgspec.Struct, frozen=True):
    """The daemon has the end on disk: only the logs are kept, and not for ever."""

    key: Key


class Say(msgspec.Struct, frozen=True):
    """To the daemon, if it listens; if not, the next Hello says it."""

    message: wire.Started | wire.Ended


Effect = Begin | Hold | Halt | Bury | Forget | Say


class Attempts:
    """All attempts of this agent by key."""

    def __init__(self) -> None:
        self._rows: dict[Key, Attempt] = {}
        self._holding: dict[Key, Attempt] = {}  # those of them that are held and running

    # ------------------------------------------------------------------ orders

    def start(self, order: wire.Start) -> list[Effect]:
        key = Key(order.task, order.attempt)
        row = self._rows.get(key)
        if row is not None:
            return self._say_again(row)
        self._rows[key] = Attempt(key, held=order.command is None, holds=holds_of(order))
        return [Hold(order) if order.command is None else Begin(order)]

    def stop(self, key: Key, reason: str, grace_s: float) -> list[Effect]:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Attempt(key)
            return self._end(row, NEVER_STARTED, bury=True)
        if row.outcome is not None:
            return self._say_again(row)
        if row.held:
            return self._end(row, Outcome(False, None, reason), bury=True)
        return [Halt(key, reason, grace_s)]

    def settle(self, key: Key) -> list[Effect]:
        row = self._rows.get(key)
        if row is None or row.phase is not Phase.ended:
            return []
        del self._rows[key]
        return [Forget(key)]

    # ------------------------------------------------------------------ news

    def started(self, key: Key, *, pid: int, at: float) -> list[Effect]:
        """Its process runs. `at`: wall clock, seconds."""
        row = self._rows.get(key)
        if row is None or row.phase is not Phase.preparing:
            return []  # a short task's end may be heard first
        self._move(row, Phase.running)
        row.pid, row.started_at = pid, at
        return [Say(wire.Started(key.task, key.attempt, pid))]

    def held(self, key: Key, *, until_ns: int | None, at: float) -> list[Effect]:
        """The record of an attempt without process is on disk."""
        effects = self.started(key, pid=0, at=at)
        if effects:
            self._holding[key] = self._rows[key]
            self._rows[key].held_until_ns = until_ns
        return effects

    def ended(self, key: Key, outcome: Outcome) -> list[Effect]:
        """Nothing of it lives any more, and its end is on disk."""
        row = self._rows.get(key)
        if row is None or row.outcome is not None:
            return []
        return self._end(row, outcome, bury=False)

    def adopt(self, row: Attempt) -> None:
        """Takes in what an earlier life of the agent left on disk."""
        assert row.key not in self._rows, f"{row.key} is known already"
        self._rows[row.key] = row
        if row.held and row.phase is Phase.running:
            self._holding[row.key] = row

    # ------------------------------------------------------------------ time

    def wake_ns(self, lease_deadline_ns: int) -> int | None:
        """When `tick` may next have something to end; None: nothing is held."""
        ends = [row.held_until_ns for row in self._holding.values()]
        return min((lease_deadline_ns if end is None else min(end, lease_deadline_ns) for end in ends), default=None)

    def tick(self, now_ns: int, lease_deadline_ns: int) -> list[Effect]:
        """Ends held attempts whose time is over, and all of them when the lease is: the daemon may have given them to another node."""
        effects: list[Effect] = []
        for row in list(self._holding.values()):
            if row.held_until_ns is not None and row.held_until_ns <= min(now_ns, lease_deadline_ns):
                effects += self._end(row, Outcome(True), bury=True)
            elif lease_deadline_ns <= now_ns:
                effects += self._end(row, LEASE_OVER, bury=True)
        return effects

    # ------------------------------------------------------------------ read side

    def get(self, key: Key) -> Attempt | None:
        return self._rows.get(key)

    def rows(self) -> list[Attempt]:
        return list(self._rows.values())

    def latest(self, task: str) -> Key | None:
        """The task's highest attempt in the table."""
        return max((key for key in self._rows if key.task == task), default=None)

    def alive(self) -> list[Key]:
        """Not ended yet."""
        return [row.key for row in self._rows.values() if row.outcome is None]

    def states(self) -> tuple[wire.AttemptState, ...]:
        """For Hello: all that live, and all ends that the daemon may not have yet."""
        return tuple(map(_state, self._rows.values()))

    def unsettled(self) -> list[wire.Ended]:
        """Ends to say again."""
        return [_ended(row) for row in self._rows.values() if row.phase is Phase.ended]

    def check(self) -> None:
        """An outcome is there exactly from the end on; who is held and runs is in both indexes."""
        for key, row in self._rows.items():
            assert row.key == key, f"{row.key} lies under {key}"
            assert (row.outcome is not None) == (row.phase is Phase.ended), f"{row}"
            assert (key in self._holding) == (row.held and row.phase is Phase.running), f"{row}"
        assert self._holding.keys() <= self._rows.keys(), "somebody is held who is not there"

    # ------------------------------------------------------------------ inside

    def _end(self, row: Attempt, outcome: Outcome, *, bury: bool) -> list[Effect]:
        self._move(row, Phase.ended)
        row.outcome = outcome
        self._holding.pop(row.key, None)
        said = Say(_ended(row))
        return [Bury(row.key, outcome), said] if bury else [said]

    def _say_again(self, row: Attempt) -> list[Effect]:
        if row.outcome is not None:
            return [Say(_ended(row))]
        if row.phase is Phase.running:
            return [Say(wire.Started(row.key.task, row.key.attempt, row.pid))]
        return []

    @staticmethod
    def _move(row: Attempt, phase: Phase) -> None:
        assert phase in MOVES[row.phase], f"{row.key} cannot go from {row.phase} to {phase}"
        row.phase = phase


def _state(row: Attempt) -> wire.AttemptState:
    outcome = row.outcome or Outcome(False)
    return wire.AttemptState(
        task=row.key.task,
        attempt=row.key.attempt,
        state="running" if row.outcome is None else "ended",
        succeeded=outcome.succeeded,
        exit_code=outcome.exit_code,
        reason=outcome.reason,
        started_at=row.started_at,
    )


def _ended(row: Attempt) -> wire.Ended:
    assert row.outcome is not None, f"{row.key} has not ended"
    return wire.Ended(row.key.task, row.key.attempt, row.outcome.succeeded, row.outcome.exit_code, row.outcome.reason)
