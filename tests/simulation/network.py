"""Connections between simulated processes: in order and whole like TCP's, late, stuck or cut like TCP's.

A message handed over stays on its way while the direction is blocked or its reader is frozen, and arrives when that is over, however
late: bytes in a socket's buffer know of no new session. A process that dies closes its connections (the peer reads what was on its way,
then the end); a machine without power says nothing any more.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.clockwork import CURRENT, Bell, Process, VirtualLoop

WINDOW = 512
"""Messages on their way in one direction before `send` waits."""

GREETINGS = 2
"""First messages of either side, which no disorder touches: an agent's hello opens the line, as the web socket's own handshake does."""

Handler = Callable[["End"], Coroutine[Any, Any, None]]


class End:
    """One side of a connection, in the hands of `process`."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self.process = process
        self.peer: End
        self.closed = False  # by this side, or cut
        self._arrived: deque[Any] = deque()
        self._over = False  # the peer's end has arrived
        self._more: asyncio.Future[None] | None = None
        self._on_way: deque[Any] = deque()  # towards this side
        self._room: asyncio.Future[None] | None = None  # of a sender that waits for this side
        self._last_s = 0.0
        self._sent = 0
        self.is_answering = False  # the side that was dialled

    def machines(self) -> tuple[str, str]:
        return self.process.machine.name, self.peer.process.machine.name

    async def send(self, data: Any) -> None:
        """Raises ConnectionError when this side knows that it is cut."""
        if self.closed or self._over:
            raise ConnectionResetError("the connection is gone")
        while len(self.peer._on_way) + len(self.peer._arrived) > WINDOW and not self.closed:
            self.peer._room = self._network.loop.create_future()
            await self.peer._room
        self._network.carry(self, data)

    async def receive(self) -> Any:
        """The next message; None = the other side is gone."""
        while not self._arrived:
            if self._over or self.closed:
                return None
            self._more = self._network.loop.create_future()
            await self._more
        self._make_room()
        return self._arrived.popleft()

    async def close(self) -> None:
        self.shut()

    def shut(self) -> None:
        """Close without waiting; the peer hears of it after all that was sent."""
        if not self.closed:
            self.closed = True
            self._network.carry(self, _END)
            self._wake()

    def cut(self) -> None:
        """Both sides at once, nothing on its way arrives."""
        for end in (self, self.peer):
            end.closed = True
            end._on_way.clear()
            end._wake()

    def arrive(self, data: Any) -> None:
        if data is _END:
            self._over = True
        else:
            self._arrived.append(data)
        self._wake()

    def _wake(self) -> None:
        for future in (self._more, self._room):
            if future is not None and not future.done():
                future.set_result(None)

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


_END = object()


class Network:
    """`latency_s` of a message; `blocked`: directions (from machine, to machine) in which nothing arrives."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, store: str = "store") -> None:
        self.loop = loop
        self.store = store  # the machine whose lines keep TCP's order even then: its client counts answers
        self.rng = rng
        self.blocked: set[tuple[str, str]] = set()
        self.dark: set[str] = set()  # machines without power
        self.ends: list[End] = []
        self.delay_s = 0.0  # more, for everything
        self.jumble = (
            0.0  # chance of a message to come twice, and to change places with the one before; half of it to stray
        )
        self.stray_s = 5.0  # longest that it may
        self._listeners: dict[str, tuple[Process, Handler]] = {}
        self._dialling: list[Bell] = []  # who dials where nothing arrives

    def listen(self, address: str, process: Process, handler: Handler) -> None:
        self._listeners[address] = (process, handler)

    def leaves(self, address: str, process: Process) -> None:
        """That process listens there no more."""
        if self._listeners.get(address, (None,))[0] is process:
            del self._listeners[address]

    async def dial(self, address: str) -> End:
        """Raises ConnectionRefusedError where nobody listens; waits for ever where nothing arrives."""
        here = CURRENT.get()
        assert here is not None
        while True:
            await asyncio.sleep(self._latency_s())
            found = self._listeners.get(address)
            if found is None or not found[0].alive:
                raise ConnectionRefusedError(111, "nobody listens")
            process, handler = found
            if not self._is_blocked(here, process) and not self._is_blocked(process, here):
                break
            bell = Bell(self.loop)
            self._dialling.append(bell)
            await bell.wait()
        near, far = End(self, here), End(self, process)
        near.peer, far.peer = far, near
        far.is_answering = True
        for end in (near, far):
            self.ends.append(end)
            end.process.at_death.append(end.shut)
        if len(self.ends) > 400:
            self.ends = [end for end in self.ends if not end.closed or not end.peer.closed]
        process.run(handler(far))
        return near

    def carry(self, sender: End, data: Any) -> None:
        """Towards the peer, after everything sent before."""
        loop, receiver = self.loop, sender.peer
        at_s = max(receiver._last_s, loop.true_s + self._latency_s())
        receiver._last_s = at_s + 1e-6
        on_way = receiver._on_way
        on_way.append(data)
        sender._sent += 1
        loop.call_outside(self._deliver, receiver, after_s=at_s - loop.true_s)
        if self.jumble and sender._sent > GREETINGS and data is not _END and self.store not in sender.machines():
            self._jumble(receiver, at_s)

    def _jumble(self, receiver: End, at_s: float) -> None:
        """What was just put on its way comes twice, or changes places with the one before, or strays and comes when it may."""
        loop, rng, on_way = self.loop, self.rng, receiver._on_way
        if rng.random() < self.jumble:
            on_way.append(on_way[-1])
            loop.call_outside(self._deliver, receiver, after_s=at_s + self._latency_s() - loop.true_s)
        if len(on_way) > 1 and rng.random() < self.jumble:
            on_way[-1], on_way[-2] = on_way[-2], on_way[-1]
        if rng.random() < self.jumble / 2:
            loop.call_outside(self._stray, receiver, on_way[-1], after_s=rng.random() * self.stray_s)
            if rng.random() < 0.5:
                on_way.pop()  # that one only; what was to deliver it finds the next one, or nothing

    def _stray(self, receiver: End, data: Any) -> None:
        if (
            not receiver.closed
            and receiver.process.alive
            and not self._is_blocked(receiver.peer.process, receiver.process)
        ):
            receiver.arrive(data)

    def hang_up(self, process: Process) -> None:
        """That process ends whatever others have opened to it."""
        for end in self.ends:
            if end.process is process and end.is_answering:
                end.shut()

    def flow(self) -> None:
        """What was stuck and is not any more is on its way again."""
        dialling, self._dialling = self._dialling, []
        for bell in dialling:
            bell.ring()
        for end in self.ends:
            for _ in range(len(end._on_way)):
                self.loop.call_outside(self._deliver, end, after_s=self._latency_s())

    def _deliver(self, receiver: End) -> None:
        if not receiver._on_way or self._is_blocked(receiver.peer.process, receiver.process):
            return
        if not receiver.process.alive and receiver.closed:
            receiver.cut()  # that machine knows of no such connection
        else:
            receiver.arrive(receiver._on_way.popleft())

    def _is_blocked(self, sender: Process, receiver: Process) -> bool:
        if not self.blocked and not self.dark:
            return False
        pair = (sender.machine.name, receiver.machine.name)
        return pair in self.blocked or pair[0] in self.dark or pair[1] in self.dark

    def _latency_s(self) -> float:
        return 0.0002 + self.rng.random() * (0.002 + self.delay_s)
