"""All agent links: greeting, sessions, the pull every few seconds, silence, and the orders of each turn.

Promises: one live link per node; connecting is a full state exchange and there is no other way in; a node whose link is gone is
silent at once and lost only when nothing can be alive there (see `silence.py`); another machine that comes with the name of a
node that is alive is refused, because obeying it would start that node's tasks twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from hetsched import wire
from hetsched.daemon.greeting import LONGEST_WORD, fault_of
from hetsched.daemon.link import AgentLink, Socket, attempts_of
from hetsched.daemon.readings import Readings
from hetsched.daemon.silence import Silences
from hetsched.errors import Unavailable
from hetsched.scheduler.messages import Input, NodeJoined, NodeLost, NodeSilent, Order

log = logging.getLogger("hetsched.links")

HELLO_DEADLINE_S = 10.0
KEPT_REFUSALS = 64
SESSIONS_PER_EPOCH = 1 << 32
"""Sessions count on from epoch × this, so no two connections ever share one, not even across restarts."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told and held to. Seconds."""

    epoch: int
    cluster: str
    lease_s: float
    heartbeat_s: float
    pull_every_s: float


class Links:
    """`tell` puts an input into the next turn; `grace_s(node)` is the longest grace of what runs there;
    `judge(hello)` says what is wrong with a hello, "" = nothing; `leads()` whether leases may be given.

    A node that comes back with another boot id has lost what ran there; the scheduler sees that in its hello.
    """

    def __init__(
        self,
        terms: Terms,
        tell: Callable[[Input], None],
        grace_s: Callable[[str], float],
        judge: Callable[[wire.Hello], str] = fault_of,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.terms = terms
        self.readings = Readings()
        self.by_node: dict[str, AgentLink] = {}
        self.refused: dict[
            str, str
        ] = {}  # node → why, of those that were turned away and have not joined since; newest last
        self._tell = tell
        self._judge = judge
        self._leads = leads
        self._instances: dict[
            str, tuple[str, str]
        ] = {}  # node → (boot id, instance) of who may have something alive there
        self._silences = Silences(terms.lease_s, grace_s, self._lose)
        self._sessions = itertools.count(terms.epoch * SESSIONS_PER_EPOCH + 1)
        self._another_until_s = 0.0  # a leader before this one may hear nodes until then
        self._pull_timer: asyncio.TimerHandle | None = None
        self._closing = False

    def expect(self, nodes: Iterable[str], takeover_s: float = 0.0) -> None:
        """After a restart: these were up. They are silent until they join, and lost if they do not. For `takeover_s` from now on a leader
        before this one may still have heard them."""
        self._another_until_s = asyncio.get_running_loop().time() + takeover_s
        for node in nodes:
            self._tell(NodeSilent(node=node, actor="daemon"))
            self._silences.begin(node, self._another_until_s)

    def send(self, orders: Iterable[Order]) -> None:
        """To whom it concerns; an order for a node that is not there is dropped, its next hello brings it again."""
        for order in orders:
            link = self.by_node.get(order.node)
            if link is not None:
                link.send(order.message)

    async def serve(self, socket: Socket) -> None:
        """One agent's connection, from its first message to its end."""
        hello = await self._hello(socket)
        if hello is None:
            await socket.close()
            return
        refusal = self._refusal(hello)
        if refusal:
            log.warning("agent of %s refused: %s", hello.node.name, refusal)
            self._remember(hello.node.name, refusal)
            with contextlib.suppress(ConnectionError):  # it has gone already
                await socket.send(wire.encode(wire.Refused(refusal)))
            await socket.close()
            return
        link = self._welcome(socket, hello)
        try:
            await link.run()
        except (msgspec.MsgspecError, ConnectionError, Unavailable) as error:
            log.warning("link of %s ended: %s", link.node, error)
        finally:
            self._leave(link)

    def close(self) -> None:
        """End every link without saying that anybody is silent: tasks go on, agents come back to the next daemon."""
        self._closing = True
        self._silences.clear()
        if self._pull_timer is not None:
            self._pull_timer.cancel()
        for link in list(self.by_node.values()):
            link.cut()

    # ------------------------------------------------------------------ coming

    async def _hello(self, socket: Socket) -> wire.Hello | None:
        try:
            async with asyncio.timeout(HELLO_DEADLINE_S):
                data = await socket.receive()
            message = None if data is None else wire.decode_from_agent(data)
        except (TimeoutError, msgspec.MsgspecError) as error:
            log.warning("no hello from an agent: %s", error or "deadline")
            return None
        return message if isinstance(message, wire.Hello) else None

    def _refusal(self, hello: wire.Hello) -> str:
        """Why not; empty = welcome."""
        terms = self.terms
        if self._closing:
            return "the daemon is stopping"
        if not self._leads():
            return "this daemon has not reached its store within its lease; another one may lead"
        if hello.protocol != wire.PROTOCOL:
            return f"the agent speaks protocol {hello.protocol}, this daemon {wire.PROTOCOL}; use the same version of hetsched"
        if hello.cluster and hello.cluster != terms.cluster:
            return f"the agent belongs to cluster {hello.cluster}, this is {terms.cluster}; give it another data directory to join"
        if hello.highest_epoch > terms.epoch:
            why = "a newer one leads, or the store is an older copy"
            return f"the agent has obeyed epoch {hello.highest_epoch}, this daemon has {terms.epoch}: {why}"
        present = self.by_node.get(hello.node.name)
        if present is not None and present.boot_id != hello.node.boot_id and self._is_fresh(present):
            return f"another machine is connected as {hello.node.name!r}; give this one another name with --name"
        return self._fault_of_twin(hello) or self._judge(hello)

    def _remember(self, node: str, refusal: str) -> None:
        self.refused.pop(node, None)
        self.refused[node[:LONGEST_WORD]] = refusal
        if len(self.refused) > KEPT_REFUSALS:
            del self.refused[next(iter(self.refused))]

    def _fault_of_twin(self, hello: wire.Hello) -> str:
        """A second agent of one machine under one name: it knows nothing of what the first one runs, and would be given it again."""
        boot_id, instance = self._instances.get(hello.node.name, ("", ""))
        if not instance or not hello.instance or hello.instance == instance or hello.node.boot_id != boot_id:
            return ""
        return (
            f"another agent of this machine, with another data directory, is {hello.node.name!r}; give this one another --name, "
            "or wait until nothing of the other one can be alive (its lease and the grace of its tasks)"
        )

    def _is_fresh(self, link: AgentLink) -> bool:
        return asyncio.get_running_loop().time() - link.heard_s < self.terms.lease_s

    def _welcome(self, socket: Socket, hello: wire.Hello) -> AgentLink:
        """It joins at once; but while a leader before us may be in office only when it obeys us. Our welcome may be lost, or our epoch not be
        noted on a full disk, and then it goes back to that leader and does what that one wants: until then its hello settles nothing, and its
        time of silence runs on."""
        terms = self.terms
        link = AgentLink(socket, hello, next(self._sessions), self._tell, self.readings, self._leads)
        link.send(wire.Welcome(link.session, terms.epoch, terms.cluster, terms.lease_s, terms.heartbeat_s))
        if self._another_may_lead:
            link.when_obeyed = partial(self._join, link, hello)
            asyncio.get_running_loop().call_later(terms.lease_s, self._cut_if_dumb, link)
        else:
            self._join(link, hello)
        return link

    @property
    def _another_may_lead(self) -> bool:
        return asyncio.get_running_loop().time() < self._another_until_s

    def _cut_if_dumb(self, link: AgentLink) -> None:
        if link.when_obeyed is not None:
            link.cut()

    def _join(self, link: AgentLink, hello: wire.Hello) -> None:
        if self._closing:
            return
        node = link.node
        before = self.by_node.get(node)
        if (
            before is not None and before.session > link.session
        ):  # its word was late: the agent has said hello again since
            link.cut()
            return
        if before is not None:
            before.replaced = True
            before.cut()
        self._silences.end(node)
        self._instances[node] = (link.boot_id, hello.instance)
        self.by_node[node] = link
        self.refused.pop(node, None)
        self._tell(NodeJoined(node=hello.node, session=link.session, attempts=attempts_of(hello), actor=link.actor))
        link.on_report(wire.Report(readings=hello.readings), whole=True)
        if self._pull_timer is None:
            self._pull_later()
        log.info("agent of %s joined, session %d, %d attempts", node, link.session, len(hello.attempts))

    # ------------------------------------------------------------------ going

    def _leave(self, link: AgentLink) -> None:
        if link.replaced or self.by_node.get(link.node) is not link:
            return
        del self.by_node[link.node]
        if self._closing:
            return
        log.info("link of %s is gone", link.node)
        self._tell_if_open(NodeSilent(node=link.node, actor="daemon"))
        self._silences.begin(link.node, link.heard_s)

    def _lose(self, node: str) -> None:
        log.warning("%s is lost: not heard for %.0f s", node, self._silences.patience_s(node))
        self.readings.forget(node)
        self._instances.pop(node, None)
        self._tell_if_open(NodeLost(node=node, actor="daemon"))

    def _tell_if_open(self, item: Input) -> None:
        try:
            self._tell(item)
        except Unavailable:
            log.info("stopping; %s is left to the next daemon", type(item).__name__)

    # ------------------------------------------------------------------ pulling

    def _pull_later(self) -> None:
        self._pull_timer = asyncio.get_running_loop().call_later(self.terms.pull_every_s, self._pull)

    def _pull(self) -> None:
        """Ask everybody for readings; cut off who has been dumb for a lease. Stops by itself when nobody is left."""
        self._pull_timer = None
        for link in list(self.by_node.values()):
            if self._is_fresh(link):
                link.send(wire.Pull())
            else:
                link.cut()
        if self.by_node and not self._closing:
            self._pull_later()
