"""What the handlers stand on: one object in the application that says how far the daemon is, and who may ask it.

The listener opens before the journal has been read, so that a client gets an honest 503 during a recovery; `daemon` is there once ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from hetsched.api.known import Memory
from hetsched.errors import Unavailable
from hetsched.model import Qos

if TYPE_CHECKING:
    from hetsched._scan import Filling
    from hetsched.config import Config
    from hetsched.daemon.auth import Tokens
    from hetsched.daemon.cells import Office
    from hetsched.daemon.daemon import Daemon
    from hetsched.daemon.safe import SafeMode
    from hetsched.daemon.standby import Standby
    from hetsched.model import TaskDefaults
    from hetsched.scheduler.messages import Array, Bundle, Submit, SubmitGraph


class Taker(Protocol):
    """Who takes submissions: the daemon, or what stands for it in a front end (`hetsched.front`)."""

    task_defaults: TaskDefaults

    @property
    def durability(self) -> str:
        """How durable a 202 is."""

    async def submit(self, item: Submit | Bundle | Array | SubmitGraph, tasks: int) -> Any:
        """Submit that many tasks; the answer, once it is durable."""

    def filling(self, is_urgent: bool) -> Filling:
        """A bundle for single tasks that may grow, those of the immediate lane or others; their askers are answered."""


class Desk:
    """`hosts`: names accepted in the Host header, None = any. `state`: recovering, ready, safe, standing by, handing over or stopping;
    `safe`: why it is safe mode. `leader`: the address that a refusal names, None = not known. `changed`: called when any of this changed.
    `taker`: who takes submissions now, if anybody does. `cells`: those of a cluster that is parted."""

    def __init__(self, config: Config, tokens: Tokens, *, hosts: frozenset[str] | None, insecure: bool) -> None:
        self.config = config
        self.tokens = tokens
        self.hosts = hosts
        self.insecure = insecure
        self.began_s = time.monotonic()
        self.daemon: Daemon | None = None
        self.safe: SafeMode | None = None
        self.standby: Standby | None = None
        self.cells: Office | None = None
        self.state = "recovering"
        self.changed: Callable[[], None] = lambda: None
        self.taker: Taker | None = None
        self._successor: str | None = None
        self._memory: Memory | None = None

    def recover(self) -> None:
        """Reading the journal to lead: 503 to everybody."""
        self.daemon = self.standby = self.safe = self._successor = None
        self._become("recovering")

    def open(self, daemon: Daemon) -> None:
        """The journal is read; serve."""
        self.daemon, self.standby = daemon, None
        self.safe = daemon.safe
        self._become("ready" if daemon.safe is None else "safe")

    def know_nothing(self, safe: SafeMode) -> None:
        """There is not even a prefix of the journal to answer from."""
        self.safe = safe
        self._become("safe")

    def stand_by(self, standby: Standby) -> None:
        """Another daemon leads: reads are answered by what we follow, the rest gets 503 with its address."""
        self.daemon, self.standby, self._successor = None, standby, None
        self._become("standing by")

    def close(self, state: str = "stopping", successor: str | None = None) -> None:
        """503 from now on. `successor`: whom clients find instead."""
        self._successor = successor
        self._become(state)

    def _become(self, state: str) -> None:
        self.state = state
        self.taker = self.daemon if state == "ready" else None
        self.changed()

    @property
    def epoch(self) -> int | None:
        """Of the leader that answers here; None = nobody leads here."""
        return self.daemon.epoch if self.daemon is not None and self.standby is None else None

    @property
    def leader(self) -> str | None:
        return self._successor if self.standby is None else self.standby.leader.url

    def knows_host(self, host: str) -> bool:
        """Whether a Host header of this value may be answered."""
        name = host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()
        return self.hosts is None or name in self.hosts

    def memory(self) -> Memory:
        """Tasks whose like was read before."""
        if self._memory is None:
            immediate = frozenset(map(Qos, self.config.lanes.immediate))
            self._memory = Memory(self.config.task_defaults(), immediate)
        return self._memory

    def ready(self) -> Daemon:
        """The daemon; in safe mode it refuses changes by itself. Unavailable while it recovers, stands by, hands over or stops, or knows
        nothing."""
        if self.daemon is not None and self.state in ("ready", "safe"):
            self.daemon.require_lead()
            return self.daemon
        if self.state == "safe" and self.safe is not None:
            raise Unavailable(self.safe.refusal, retry_after=30.0)
        raise self.refusal()

    def taking(self) -> Taker:
        """Who takes submissions, or Unavailable as `ready`."""
        return self.ready()

    def reader(self) -> Daemon | Standby:
        """Who answers questions."""
        if self.standby is not None and self.standby.is_readable:
            return self.standby
        return self.ready()

    def serves(self, daemon: Daemon) -> bool:
        """Whether this one is still in office: streams of another one's end."""
        return self.daemon is daemon and self.state in ("ready", "safe")

    def refusal(self) -> Unavailable:
        """Why not, and who does."""
        leader = self.leader
        if leader is None:
            return Unavailable(f"the daemon is {self.state}; try again", retry_after=1.0)
        return Unavailable(f"the daemon is {self.state}; {leader} leads", leader=leader, retry_after=0.0)


DESK = web.AppKey("desk", Desk)
