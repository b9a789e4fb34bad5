"""Deliberate bugs of the protocol. Each has to be noticed by the auditor within some simulated hours, or the auditor is too kind. Bugs that
the simulation has found are among them, so that they stay found whatever becomes of the seeds.

To add one: a function here that replaces parts of hetsched by wrong ones through `put`; its docstring says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

import hetsched.agent.adoption as adoption
import hetsched.agent.hunt as hunt_module
import hetsched.agent.identity as agent_identity
import hetsched.daemon.measure as measure_module
import hetsched.daemon.recover as recover_module
import hetsched.scheduler.nodes as nodes_module
import hetsched.scheduler.outcomes as outcomes_module
import hetsched.store.identity as store_identity
import hetsched.store.memory as memory
import tests.simulation.world as world_module
from hetsched._core import NONE, STOPPING
from hetsched.agent import link as agent_link
from hetsched.agent import runner as agent_runner
from hetsched.agent.attempts import Attempts, Key, Outcome
from hetsched.agent.shim.lease import Lease
from hetsched.agent.spool import Spool
from hetsched.daemon.daemon import Daemon
from hetsched.daemon.links import Links
from hetsched.daemon.silence import Silences
from hetsched.daemon.turns import TurnLoop
from hetsched.errors import StoreLost
from hetsched.scheduler.cancels import Cancels
from hetsched.scheduler.cluster import Cluster
from hetsched.scheduler.due import Due
from hetsched.scheduler.follow import Follow
from hetsched.scheduler.judge import Judge
from hetsched.scheduler.messages import NodeLost
from hetsched.scheduler.submit import Submissions
from hetsched.store.appender import Appender
from hetsched.store.backend import Answer, Verdict
from hetsched.store.base import Unreachable
from hetsched.store.succession import Vigil

Put = Callable[[Any, str, Any], None]
MUTANTS: dict[str, Callable[[Put], None]] = {}


NEEDS = {
    "takeovers_are_forgotten": "hasty_successor",
    "hellos_are_obedience": "hasty_successor",
    "obeys_old_epochs": "hasty_successor",
    "lease_from_receipt": "late_acknowledgements",
    "never_begun_is_believed": "slow_births",
    "orders_outlive_their_lease": "slow_births",
    "no_tombstones": "jumbled",
    "starts_twice": "jumbled",
    "the_servers_clock_is_believed": "set_back_and_killed",
    "snapshots_forget_the_time": "set_back_and_killed",
}
"""Faults without which a bug hardly shows: a hunt is for worlds that know them, and counts these alone."""

NEEDS_LONG_LEADERS = ("takeovers_are_forgotten", "hellos_are_obedience", "obeys_old_epochs")
"""Bugs that show where a deposed leader's own lease is longer than a node's, likewise."""

CRASHES = ("snapshots_forget_the_time",)
"""Bugs by which a daemon ends with an error of its own, as often as it is started. A service manager does that, and a law has to notice what
comes of it."""


def mutant(bug: Callable[[Put], None]) -> Callable[[Put], None]:
    MUTANTS[bug.__name__] = bug
    return bug


def applied(name: str) -> Callable[[], Callable[[], None]]:
    """For `simulated`: puts the bug in, and its answer takes it out."""

    def mutate() -> Callable[[], None]:
        undo: list[Callable[[], None]] = []

        def put(place: Any, attribute: str, value: Any) -> None:
            old = place.__dict__[attribute]
            undo.append(lambda: setattr(place, attribute, old))
            setattr(place, attribute, value)

        MUTANTS[name](put)

        def mend() -> None:
            for call in reversed(undo):
                call()

        return mend

    return mutate


# ---------------------------------------------------------------------- daemon


@mutant
def answers_before_durable(put: Put) -> None:
    """202 before the frame is confirmed."""
    take_turn = TurnLoop._take_turn

    def hasty(self: TurnLoop) -> None:
        take_turn(self)
        if self._unreleased:
            for reply in self._unreleased[-1].turn.replies:
                self._answer(reply)

    put(TurnLoop, "_take_turn", hasty)


@mutant
def orders_before_durable(put: Put) -> None:
    """Agents are told before the frame is confirmed."""
    take_turn = TurnLoop._take_turn

    def hasty(self: TurnLoop) -> None:
        take_turn(self)
        if self._unreleased:
            taken = self._unreleased[-1]
            self._release.__self__.links.send(taken.turn.orders)  # type: ignore[attr-defined]

    put(TurnLoop, "_take_turn", hasty)


@mutant
def reads_before_durable(put: Put) -> None:
    """A reader is told what may yet be taken back."""

    async def at_once(self: TurnLoop) -> None:
        return None

    put(TurnLoop, "settled", at_once)


@mutant
def lost_too_early(put: Put) -> None:
    """A silent node is lost before its lease is over."""
    put(Silences, "patience_s", lambda self, node: 2.0)


@mutant
def lost_without_grace(put: Put) -> None:
    """A silent node is lost when its lease is over, though its tasks may use their grace."""
    put(Silences, "patience_s", lambda self, node: self._lease_s)


@mutant
def silent_is_lost(put: Put) -> None:
    """A cut link counts as a lost node."""
    leave = Links._leave

    def hasty(self: Links, link: Any) -> None:
        was_ours = not link.replaced and self.by_node.get(link.node) is link
        leave(self, link)
        if was_ours and not self._closing:
            self._tell_if_open(NodeLost(node=link.node, actor="daemon"))

    put(Links, "_leave", hasty)


@mutant
def forgets_nodes_at_restart(put: Put) -> None:
    """After a restart nodes that were up are taken to be there for ever."""
    put(Daemon, "expect_nodes", lambda self: None)


@mutant
def deposed_leaders_renew_leases(put: Put) -> None:
    """A leader that has lost its store goes on acknowledging heartbeats and answering readers."""
    put(world_module.Journal, "leads", True)


@mutant
def deposed_leaders_answer(put: Put) -> None:
    """A leader whose lease is over goes on answering readers, for as long as it does not hear of its successor."""
    put(Daemon, "require_lead", lambda self: None)


@mutant
def takeovers_are_forgotten(put: Put) -> None:
    """A new leader counts silence from its own start, though the one before may have been heard after that."""
    put(world_module.Journal, "takeover_s", 0.0)


@mutant
def hellos_are_obedience(put: Put) -> None:
    """Who has said hello to a new leader is taken to obey it, though our welcome was perhaps not heard or could not be noted."""
    put(Links, "_another_may_lead", False)


@mutant
def silence_counts_from_nothing(put: Put) -> None:
    """After a restart silent nodes are lost at once: the lease is not counted from the start."""

    def hasty(self: Links, nodes: Any, takeover_s: float = 0.0) -> None:
        for node in nodes:
            self._tell(NodeLost(node=node, actor="daemon"))

    put(Links, "expect", hasty)


@mutant
def strangers_are_not_waited_for(put: Put) -> None:
    """Devices under attempts that count for nothing any more are given away."""
    alive = nodes_module.Nodes._alive

    def careless(self: Any, name: str, report: Any) -> None:
        alive(self, name, report)
        self._strangers[name].clear()

    put(nodes_module.Nodes, "_alive", careless)


@mutant
def strangers_live_on(put: Put) -> None:
    """Attempts that count for nothing any more are not told to stop."""
    put(world_module.Scheduler, "__init__", _with_deaf_release(world_module.Scheduler.__init__))


def _with_deaf_release(init: Any) -> Any:
    def wired(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self.world.release_attempt = lambda *_: None

    return wired


@mutant
def stale_results_count(put: Put) -> None:
    """A result counts whichever attempt and node it is of."""

    def any_attempt(self: Any, node: str, ident: str, attempt: int) -> int:
        task: int = self.world.core.find(ident.encode())
        return NONE if task == NONE or task not in self.world.books.attempts.live else task

    put(nodes_module.Nodes, "_current", any_attempt)


@mutant
def missing_attempts_are_forgotten(put: Put) -> None:
    """An attempt that its node has never heard of is not started there."""
    put(nodes_module.Nodes, "_not_told", lambda self, task, state: None)


@mutant
def cancelled_at_once(put: Put) -> None:
    """The end of a cancelled task is not waited for."""
    on_cancel = Cancels.on_cancel

    def hasty(self: Cancels, asked: Any) -> None:
        on_cancel(self, asked)
        self.world.drain()  # the order to stop is given; what it leads to is not awaited
        for ident in asked.ids:
            task = self.world.core.find(ident.encode())
            if task != NONE and self.world.core.task(task).state == STOPPING:
                outcomes_module.stopped(self.world, task, False, "", None)

    put(Cancels, "on_cancel", hasty)


@mutant
def gangs_are_half_released(put: Put) -> None:
    """A gang of which a member failed for good goes on without it."""
    put(Follow, "_gang_member_ended", lambda self, gang, state: None)


@mutant
def gangs_stay_short(put: Put) -> None:
    """A gang that lost a member is never requeued as a whole."""
    put(Due, "_repair", lambda self, gang: None)


@mutant
def closed_nodes_stay_open(put: Put) -> None:
    """A node that is silent or lost goes on being given tasks, and what is promised there stays promised."""

    def open_for_ever(self: Any, word: Any) -> None:
        apply_marked(self, word)
        self._core.open_node(self.by_name[word.node].slot, True)

    apply_marked = Cluster.apply_marked
    put(nodes_module.Nodes, "_give_up_claims", lambda self, node: None)
    put(Cluster, "apply_marked", open_for_ever)


@mutant
def failed_devices_are_used(put: Put) -> None:
    """What a failed device means is said, and not done."""
    mark = nodes_module.Nodes._mark_device

    def hearsay(self: Any, node: Any, device: str, health: str, reason: str) -> None:
        say, self.world.books.say = self.world.books.say, lambda word: None
        try:
            mark(self, node, device, health, reason)
        finally:
            self.world.books.say = say

    put(nodes_module.Nodes, "_mark_device", hearsay)


@mutant
def attempts_are_counted_twice(put: Put) -> None:
    """An attempt that is told to stop counts as over then, and again when it is."""
    put(measure_module, "OVER", {**measure_module.OVER, "stopping": "requeued"})


@mutant
def who_waits_ends_an_attempt(put: Put) -> None:
    """A task that is cancelled while it waits for its next attempt ends the one before once more."""
    put(Follow, "_was_live", lambda self, task, end: True)


@mutant
def snapshots_forget_the_time(put: Put) -> None:
    """The time of a snapshot is that of the last change, which is before what the core has seen."""
    begin = world_module.Scheduler._begin

    def begin_alone(self: Any, now_ns: int) -> None:
        before = self.books.now_ns
        begin(self, now_ns)
        self.books.now_ns = before

    put(world_module.Scheduler, "_begin", begin_alone)


@mutant
def the_same_again_is_refused(put: Put) -> None:
    """A client that asks again for what it got is told that the id is taken."""
    put(Judge, "_same_body", lambda self, slot, item: False)


@mutant
def keys_are_forgotten(put: Put) -> None:
    """The same Idempotency-Key makes new tasks."""
    put(Submissions, "_answered_before", lambda self, asked: False)


# ---------------------------------------------------------------------- store


@mutant
def deposed_leaders_write(put: Put) -> None:
    """The fence lets an older epoch append."""
    append = memory.MemoryServer.append

    def unfenced(self: Any, frame: Any) -> Verdict:
        verdict = append(self, frame)
        if verdict.answer in (Answer.DEPOSED, Answer.BEHIND):
            self.frames.append((frame.position, frame.data))
            self.head = self.head._replace(seq=frame.position.seq, crc=frame.position.crc)
            return Verdict(Answer.STORED)
        return verdict

    put(memory.MemoryServer, "append", unfenced)


@mutant
def deposed_does_not_notice(put: Put) -> None:
    """A refusal by the fence is taken for a yes."""
    settle = Appender._settle

    def deaf(self: Appender, verdict: Verdict) -> None:
        settle(self, Verdict(Answer.STORED) if verdict.answer in (Answer.DEPOSED, Answer.BEHIND) else verdict)

    put(Appender, "_settle", deaf)


@mutant
def no_answer_is_a_yes(put: Put) -> None:
    """A cut connection confirms what was on its way."""
    receive_all = Appender._receive_all

    async def hopeful(self: Appender, link: Any) -> None:
        try:
            await receive_all(self, link)
        except Unreachable:
            while self._sent:
                self._settle(Verdict(Answer.STORED))
            raise

    put(Appender, "_receive_all", hopeful)


@mutant
def unanswered_frames_are_dropped(put: Put) -> None:
    """After a cut only what comes later is sent."""
    over_one_link = Appender._over_one_link

    async def forgetful(self: Appender) -> None:
        try:
            await over_one_link(self)
        except Unreachable:
            for _ in range(self._sent):
                pending = self._queue.popleft()
                if not pending.future.done():
                    pending.future.set_result(None)
            self._sent = 0
            raise

    put(Appender, "_over_one_link", forgetful)


@mutant
def resends_are_new(put: Put) -> None:
    """The fence does not know a frame that it has: it is stored again."""
    append = memory.MemoryServer.append

    def forgetful(self: Any, frame: Any) -> Verdict:
        head = self.head
        if head is not None and frame.position.seq <= head.seq and frame.position.epoch == head.epoch:
            self.frames.append((frame.position, frame.data))
            return Verdict(Answer.STORED)
        return append(self, frame)

    put(memory.MemoryServer, "append", forgetful)


@mutant
def no_new_epoch(put: Put) -> None:
    """A daemon that starts does not fence the one before."""

    async def same(self: Any, cluster: str, create: bool) -> Any:
        if create:
            self.server.head = self.server.head or memory.Head(cluster, 1, 0, 0)
        if self.server.head is None:
            raise StoreLost("the store changed while it was opened")
        return self.server.head

    put(memory.MemoryBackend, "open_epoch", same)


@mutant
def the_last_frame_is_not_read(put: Put) -> None:
    """Recovery stops one frame short."""

    async def short(scheduler: Any, opened: Any, until: Any = None) -> None:
        before = None
        async for facts in opened.frames:
            if before is not None:
                recover_module.apply(scheduler, *before)
            before = (facts, opened.frames.at)

    put(recover_module, "_apply_all", short)


@mutant
def trims_too_much(put: Put) -> None:
    """A snapshot drops frames that are not in it."""
    publish = memory.MemoryBackend.publish

    async def greedy(self: Any, epoch: int, snapshots: Any, trim: Any) -> None:
        await publish(self, epoch, snapshots, trim)
        newest = snapshots[0]
        self.server.frames = [entry for entry in self.server.frames if entry[0].seq > newest.seq + 1]

    put(memory.MemoryBackend, "publish", greedy)


@mutant
def the_servers_clock_is_believed(put: Put) -> None:
    """Whoever the server says leads, leads, though its clock was set back and nothing has been renewed for long."""
    put(Vigil, "is_dead", lambda self, leader, now_s: False)


# ---------------------------------------------------------------------- agent


@mutant
def orders_of_old_sessions(put: Put) -> None:
    """The agent obeys whatever session an order is of."""

    def trusting(self: Any, message: Any) -> None:
        if isinstance(message, agent_link.wire.HeartbeatSeen):
            self._renew(message.sent_ns)
        else:
            self._peer.order(message)

    put(agent_link._Session, "_on", trusting)


@mutant
def obeys_old_epochs(put: Put) -> None:
    """The agent obeys a daemon that was deposed."""
    refusal = Links._refusal
    put(agent_identity.Identity, "refusal", lambda self, cluster, epoch, holds_attempts: "")
    put(Links, "_refusal", lambda self, hello: refusal(self, msgspec.structs.replace(hello, highest_epoch=0)))


@mutant
def lease_from_receipt(put: Put) -> None:
    """The lease runs from when the acknowledgement came, not from when the heartbeat was sent."""

    def late(self: Any, sent_ns: int) -> None:
        self._seen_ns = max(self._seen_ns, sent_ns)
        self._lease.extend(agent_link.now_ns() + int(self._welcome.lease_s * 1e9))

    put(agent_link._Session, "_renew", late)


@mutant
def lease_for_ever(put: Put) -> None:
    """Tasks live on however long the daemon is not heard."""

    def generous(self: Any, sent_ns: int) -> None:
        self._seen_ns = max(self._seen_ns, sent_ns)
        self._lease.extend(sent_ns + int(1e15))

    put(agent_link._Session, "_renew", generous)


@mutant
def starts_twice(put: Put) -> None:
    """What was here before is begun again."""
    begin = agent_runner.Runner._begin

    def again(self: Any, order: Any) -> None:
        key = Key(order.task, order.attempt)
        self._spool._entries.pop(key, None)
        self._spool.remove(self._spool.path(key))
        begin(self, order)

    put(agent_runner.Runner, "_begin", again)


@mutant
def ends_are_said_once(put: Put) -> None:
    """An end that the daemon did not hear is never said again."""
    put(Attempts, "unsettled", lambda self: [])
    states = Attempts.states
    put(Attempts, "states", lambda self: tuple(one for one in states(self) if one.state != "ended"))


@mutant
def no_tombstones(put: Put) -> None:
    """A stop for what is not here is forgotten; a start that comes late is obeyed."""
    stop = Attempts.stop
    put(Attempts, "stop", lambda self, key, reason, grace_s: stop(self, key, reason, grace_s) if self.get(key) else [])


@mutant
def what_was_begun_is_forgotten(put: Put) -> None:
    """An agent that starts looks at nothing that lives."""
    put(adoption, "look", lambda spool, boot_id: [])


@mutant
def never_begun_is_believed(put: Put) -> None:
    """An adopted attempt without a shim is taken for never begun, but a late shim may still come."""
    put(Lease, "renew_generation", lambda self: None)


@mutant
def orders_outlive_their_lease(put: Put) -> None:
    """What was ordered under a lease that was over before its shim was born begins under the next one."""

    def extend(self: Lease, deadline_ns: int) -> None:
        if deadline_ns > self.deadline_ns:
            self._set(deadline_ns)

    put(Lease, "extend", extend)


@mutant
def nobody_hunts(put: Put) -> None:
    """What a killed shim leaves behind is not looked for."""

    async def at_once(key: Key, spool: Spool) -> Outcome:
        return hunt_module.LOST_SHIM

    put(hunt_module, "outcome_without_shim", at_once)


@mutant
def a_dead_shim_is_a_success(put: Put) -> None:
    """No exit on disk is taken for a good one."""

    async def lucky(key: Key, spool: Spool) -> Outcome:
        await asyncio.sleep(0)
        return Outcome(True)

    put(hunt_module, "outcome_without_shim", lucky)


@mutant
def stops_are_not_obeyed(put: Put) -> None:
    """The agent says it stopped what lives on."""

    def lazy(self: Any, key: Key, reason: str, grace_s: float) -> None:
        self._do(self.attempts.ended(key, Outcome(False, None, reason)))

    put(agent_runner.Runner, "_halt", lazy)


@mutant
def another_boot_is_this_boot(put: Put) -> None:
    """Attempts of before a reboot are taken to live."""
    adopt = adoption._adopt

    def same(entry: Any, spool: Spool, boot_id: str) -> Any:
        return adopt(entry, spool, entry.ordered.boot_id if entry.ordered else boot_id)

    put(adoption, "_adopt", same)
    put(nodes_module.Nodes, "_lose", lambda self, node, reason: None)


@mutant
def an_older_store_is_believed(put: Put) -> None:
    """A store that lost what was confirmed is gone on with; and the server confirms before it syncs."""
    put(store_identity.Identity, "check", lambda self, head: None)

    async def careless(self: Any, end: Any) -> None:
        while (asked := await end.receive()) is not None:
            try:
                await end.send((self._answer(*asked),))
            except ConnectionError:
                return

    put(world_module.Server, "_serve", careless)
