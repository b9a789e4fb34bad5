"""One agent's connection: what goes out waits here in order, what comes in is told to the turn loop.

Promises: orders leave in the order of turns, through one writer; an agent that does not read is cut off at `OUTBOX_MESSAGES` instead
of filling the daemon's memory (it comes back with its whole state, so nothing is lost); a node speaks only for itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from hetsched import wire
from hetsched.daemon.greeting import check_attempt, check_attempts, check_readings, check_use, short
from hetsched.daemon.readings import Readings
from hetsched.scheduler.messages import (
    AttemptEnded,
    AttemptReport,
    AttemptsStarted,
    AttemptsSucceeded,
    AttemptStarted,
    AttemptUse,
    Input,
    UseReported,
)

OUTBOX_MESSAGES = 20_000
"""Longest queue to one agent: more starts than any node has slots for."""


class Socket(Protocol):
    """A message socket. `receive` gives None when the other side is gone; `send` waits while the other side does not read."""

    async def receive(self) -> bytes | None: ...

    async def send(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


class AgentLink:
    """Link of the agent of `node`. `heard_s`: loop time of its last sign of life. `when_obeyed`: called when the agent says something after its
    hello for the first time: it has noted our epoch on its disk before that, so it obeys no older one again.

    `log_readers`: by request number; None in the queue = the link is gone.
    """

    def __init__(
        self,
        socket: Socket,
        hello: wire.Hello,
        session: int,
        tell: Callable[[Input], None],
        readings: Readings,
        leads: Callable[[], bool],
    ) -> None:
        self.node = hello.node.name
        self.boot_id = hello.node.boot_id
        self.version = hello.version
        self.session = session
        self.heard_s = asyncio.get_running_loop().time()
        self.when_obeyed: Callable[[], None] | None = None
        self.load = 0.0
        self.memory_available_bytes: int | None = None
        self.log_readers: dict[int, asyncio.Queue[wire.LogData | None]] = {}
        self.replaced = False
        self._socket = socket
        self._tell = tell
        self._readings = readings
        self._leads = leads
        self._outbox: deque[Any] = deque()
        self._more = asyncio.Event()
        self._cut = False

    @property
    def actor(self) -> str:
        """Name in the audit record."""
        return f"node:{self.node}"

    def send(self, message: Any) -> None:
        """Queue a message of `hetsched.wire`; never waits."""
        if len(self._outbox) >= OUTBOX_MESSAGES:
            self.cut()
            return
        self._outbox.append(message)
        self._more.set()

    def cut(self) -> None:
        """End the link; `run` returns soon."""
        self._cut = True
        self._outbox.clear()
        self._more.set()

    async def run(self) -> None:
        """Until the agent is gone or cut off. The socket is closed afterwards."""
        writing = asyncio.create_task(self._write(), name=f"to {self.node}")
        reading = asyncio.create_task(self._read(), name=f"from {self.node}")
        try:
            done, _ = await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)
            for reader in self.log_readers.values():
                reader.put_nowait(None)
            await self._socket.close()

    async def _write(self) -> None:
        while not self._cut:
            while self._outbox:
                await self._socket.send(wire.encode(self._outbox.popleft()))
            self._more.clear()
            await self._more.wait()

    async def _read(self) -> None:
        while (data := await self._socket.receive()) is not None:
            self.heard_s = asyncio.get_running_loop().time()
            if (obeyed := self.when_obeyed) is not None:
                self.when_obeyed = None
                obeyed()
            self._on_message(wire.decode_from_agent(data))

    def _on_message(self, message: wire.FromAgent) -> None:
        match message:
            case wire.Heartbeat() if self._leads():
                self.send(wire.HeartbeatSeen(message.sent_ns))
            case wire.Heartbeat():
                self.cut()  # its lease is another daemon's matter: whoever leads by now counts on that
            case wire.Started():
                check_attempt(message.task, message.attempt)
                self._tell(AttemptStarted(node=self.node, task=message.task, attempt=message.attempt, actor=self.actor))
            case wire.Ended():
                check_attempt(message.task, message.attempt)
                self._tell(_ended(self.node, message, self.actor))
            case wire.StartedMany(tasks, attempts):
                check_attempts(tasks, attempts)
                self._tell(AttemptsStarted(node=self.node, tasks=tasks, attempts=attempts, actor=self.actor))
            case wire.SucceededMany(tasks, attempts):
                check_attempts(tasks, attempts)
                self._tell(AttemptsSucceeded(node=self.node, tasks=tasks, attempts=attempts, actor=self.actor))
            case wire.Report():
                self.on_report(message)
            case wire.LogData():
                if reader := self.log_readers.get(message.request):
                    reader.put_nowait(message)
            case wire.Hello():
                self.cut()  # a second hello is no part of the protocol: let it connect again

    def on_report(self, report: wire.Report, *, whole: bool = False) -> None:
        """Take readings in; `whole`: those of the Hello."""
        if not whole:
            self.load = report.load
            self.memory_available_bytes = report.memory_available_bytes or None
        check_readings(report.readings)
        for change in self._readings.take(self.node, report.readings, whole=whole):
            self._tell(change)
        if report.uses:
            self._tell(UseReported(node=self.node, uses=tuple(map(_use, report.uses)), actor=self.actor))


def _use(said: wire.AttemptUse) -> AttemptUse:
    check_use(said)
    return AttemptUse(
        task=said.task,
        attempt=said.attempt,
        cpu_milli=said.cpu_milli,
        memory_bytes=said.memory_bytes,
        utilization_milli=said.utilization_milli,
    )


def _ended(node: str, message: wire.Ended, actor: str) -> AttemptEnded:
    return AttemptEnded(
        node=node,
        task=message.task,
        attempt=message.attempt,
        succeeded=message.succeeded,
        exit_code=message.exit_code,
        reason=short(message.reason),
        actor=actor,
    )


def attempts_of(hello: wire.Hello) -> tuple[AttemptReport, ...]:
    """What the agent says it has, in the scheduler's words."""
    return tuple(
        AttemptReport(
            task=attempt.task,
            attempt=attempt.attempt,
            state=attempt.state,
            succeeded=attempt.succeeded,
            exit_code=attempt.exit_code,
            reason=short(attempt.reason),
        )
        for attempt in hello.attempts
    )
