"""One front end as the deciding process hears it: its frames become inputs of turns, its connections are counted or taken over."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from hetsched.api.app import Listener
from hetsched.api.desk import Desk
from hetsched.api.problem import fault
from hetsched.api.protocol import Handed
from hetsched.daemon.fronts import FrontTotals
from hetsched.errors import HetschedError
from hetsched.front import messages as say
from hetsched.front.baton import Came, Receiver
from hetsched.front.line import Line
from hetsched.scheduler.messages import Array, ArrayReply, Bundle, BundleReply, Known, Submit, SubmitReply

log = logging.getLogger("hetsched.front")


class Counterpart:
    """`serving()`: it accepts clients. `gone()`: its line is cut."""

    def __init__(
        self, listener: Listener, totals: FrontTotals, serving: Callable[[], None], gone: Callable[[], None]
    ) -> None:
        self.line = Line(say.FromFront, self._heard, self._cut)
        self._desk = listener.desk
        self._listener = listener
        self._totals = totals
        self._gone = gone
        self._kinds: list[Known] = []
        self._connections: dict[int, str] = {}  # number → address
        self._working: set[asyncio.Task[None]] = set()
        self._baton: Receiver | None = None
        self._hears: dict[type[say.Said], Callable[[Any], None]] = {
            say.Serving: lambda _: serving(),
            say.Kinds: self._on_kinds,
            say.Tasks: self._on_tasks,
            say.ArrayOf: self._on_array,
            say.Whole: self._on_whole,
            say.Entered: self._on_entered,
            say.Left: self._on_left,
            say.Counted: self._on_counted,
        }

    async def connect(self, line: socket.socket, baton: socket.socket) -> None:
        """Begin to listen to it."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self.line, sock=line)
        self._baton = Receiver(baton, self._take_over)

    def welcome(self) -> None:
        """First word."""
        desk = self._desk
        hosts = None if desk.hosts is None else sorted(desk.hosts)
        self.line.say(
            say.Welcome(config=desk.config, hosts=hosts, insecure=desk.insecure, standing=standing_of(self._desk))
        )

    def _heard(self, message: say.Said) -> None:
        self._hears[type(message)](message)

    def _cut(self) -> None:
        """Whoever asked by it is told nothing any more; what was taken in stands."""
        if self._baton is not None:
            self._baton.close()
        for number in list(self._connections):
            self._leave(number)
        self._gone()

    # ------------------------------------------------------------------ submissions

    def _on_kinds(self, said: say.Kinds) -> None:
        assert said.first in (0, len(self._kinds)), "its count of kinds is ours"
        if said.first == 0:
            self._kinds.clear()
        self._kinds += [kind.known() for kind in said.kinds]

    def _on_tasks(self, said: say.Tasks) -> None:
        ids = said.ids.split(b"\n")
        bundle = Bundle(
            known=[self._kinds[number] for number in said.kinds],
            which=bytearray(said.which or 2 * len(ids)),
            counts=said.counts,
            ids=ids,
            single=said.single,
            actor="" if said.single else said.actors[0],
            actors=[] if not said.single else said.actors if len(said.actors) > 1 else said.actors * len(ids),
        )
        is_named = b"" in ids
        self._work(said.ticket, self._submit_bundle(said.ticket, bundle, is_named))

    async def _submit_bundle(self, ticket: int, bundle: Bundle, is_named: bool) -> say.Said:
        reply: BundleReply | SubmitReply = await self._desk.taking().submit(bundle, len(bundle.ids))
        if isinstance(reply, SubmitReply):
            return say.AnsweredWhole(ticket=ticket, reply=reply)
        return say.Answered(
            ticket=ticket,
            ids=b"\n".join(reply.ids) if is_named else b"",
            states=reply.states,
            refused={index: say.Told.of(error) for index, error in reply.refused.items()},
            placements=reply.placements,
        )

    def _on_array(self, said: say.ArrayOf) -> None:
        array = Array(known=self._kinds[said.kind], base=said.base, count=said.count, actor=said.actor)
        self._work(said.ticket, self._submit_array(said.ticket, array))

    async def _submit_array(self, ticket: int, array: Array) -> say.Said:
        reply: ArrayReply | SubmitReply = await self._desk.taking().submit(array, array.count)
        if isinstance(reply, SubmitReply):
            return say.AnsweredWhole(ticket=ticket, reply=reply)
        return say.AnsweredArray(ticket=ticket, first=reply.first, count=reply.count, placements=reply.placements)

    def _on_whole(self, said: say.Whole) -> None:
        self._work(said.ticket, self._submit_whole(said.ticket, said.asked(), len(said.tasks) - len(said.refused)))

    async def _submit_whole(self, ticket: int, asked: Submit, tasks: int) -> say.Said:
        return say.AnsweredWhole(ticket=ticket, reply=await self._desk.taking().submit(asked, tasks))

    def _work(self, ticket: int, submitting: Coroutine[Any, Any, say.Said]) -> None:
        """Tasks of the event loop begin in the order in which they are made, and put their input in before they first wait: the order of a
        connection's requests stays."""
        task = asyncio.get_running_loop().create_task(self._answer(ticket, submitting))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _answer(self, ticket: int, submitting: Coroutine[Any, Any, say.Said]) -> None:
        try:
            self.line.say(await submitting)
        except HetschedError as error:
            self.line.say(say.Failed(ticket=ticket, error=say.Told.of(error)))
        except Exception:
            self.line.say(say.Failed(ticket=ticket, error=say.Told.of(fault(log, "a frame of a front end"))))

    # ------------------------------------------------------------------ connections

    def _on_entered(self, said: say.Entered) -> None:
        if self._listener.doorman.enter(said.address):
            self._connections[said.connection] = said.address
            self._totals.connections += 1
        else:
            self.line.say(say.TurnAway(connection=said.connection, address=said.address))

    def _on_left(self, said: say.Left) -> None:
        self._leave(said.connection)

    def _leave(self, connection: int) -> None:
        address = self._connections.pop(connection, None)
        if address is not None:
            self._listener.doorman.leave(address)
            self._totals.connections -= 1

    def _take_over(self, connection: socket.socket, came: Came, data: bytes) -> None:
        self._leave(came.connection)
        handed = Handed(came.address, came.is_tls, data)
        task = asyncio.get_running_loop().create_task(self._adopt(connection, handed))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _adopt(self, connection: socket.socket, handed: Handed) -> None:
        try:
            connection.setblocking(False)
            await self._listener.adopt(connection, handed)
        except OSError as error:  # the client has gone
            log.debug("a connection that was handed over: %s", error)
            connection.close()

    def _on_counted(self, said: say.Counted) -> None:
        self._totals.answered += said.answered
        self._totals.handed_over += said.handed_over
        self._totals.cpu_s += said.cpu_s


def standing_of(desk: Desk) -> say.Standing:
    """What front ends are told of the desk."""
    taker = desk.taker
    refusal = say.Told.of(desk.refusal()) if taker is None else None
    durability = "" if taker is None else taker.durability
    return say.Standing(
        state=desk.state, epoch=desk.epoch, refusal=refusal, durability=durability, tokens=desk.tokens.all
    )
