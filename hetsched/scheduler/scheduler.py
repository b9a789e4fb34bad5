"""The turn: inputs in, facts and effects out. No clock, no socket, no randomness, no asyncio.

`step` reads like the contents page of a decision: hear everything, fire what is due, decide the lanes, forget the old, answer.
The flow is drawn in README.md beside this file.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched import _core
from hetsched._core import Core, Room, Run
from hetsched.config import Config
from hetsched.model import Task
from hetsched.policy import Pricer
from hetsched.policy.presets import BLENDED
from hetsched.policy.price import Known
from hetsched.scheduler import messages, snapshot, words
from hetsched.scheduler.books import Books
from hetsched.scheduler.bundles import Bundles
from hetsched.scheduler.cancels import Cancels
from hetsched.scheduler.cells.clerk import Clerk
from hetsched.scheduler.clients import Clients
from hetsched.scheduler.due import Due
from hetsched.scheduler.follow import Follow
from hetsched.scheduler.graphs.clients import GraphClients
from hetsched.scheduler.graphs.conductor import Conductor
from hetsched.scheduler.graphs.view import GraphView
from hetsched.scheduler.measuring import Measuring
from hetsched.scheduler.messages import HEARD, Events, Input, Orders, Turn
from hetsched.scheduler.nodes import Nodes
from hetsched.scheduler.ranking import Ranking
from hetsched.scheduler.scarce import Scarce
from hetsched.scheduler.snapshot import Copied
from hetsched.scheduler.submit import Submissions
from hetsched.scheduler.view import View
from hetsched.scheduler.window import Window
from hetsched.scheduler.world import World

if TYPE_CHECKING:
    from hetsched.policy.scorers import Scorers

PRESETS = {
    "price": _core.POLICY_PRICE,
    "fragment": _core.POLICY_FRAGMENT,
    "pack": _core.POLICY_PACK,
    "spread": _core.POLICY_SPREAD,
    "random": _core.POLICY_RANDOM,
    "first-fit": _core.POLICY_FIRST_FIT,
    "best-fit": _core.POLICY_BEST_FIT,
    "dot-product": _core.POLICY_DOT_PRODUCT,
    "packing": _core.POLICY_PACKING,
    "clustering": _core.POLICY_CLUSTERING,
    "fgd": _core.POLICY_FGD,
    # nodes by weights that every shape has (ranking); devices as pack takes them
    **dict.fromkeys(BLENDED, _core.POLICY_PACK),
}
ORDERS = {"drf": _core.ORDER_DRF, "weighted": _core.ORDER_WEIGHTED, "fifo": _core.ORDER_FIFO}


MOVES = {"off": _core.MOVE_NEVER, "lower": _core.MOVE_LOWER, "equal": _core.MOVE_EQUAL}


class Derived(msgspec.Struct, frozen=True):
    """What was worked out from the state at some moment and counts until the next: prices of free capacity, scarcities of device models."""

    priced: Known | None
    scarce: Scarce


class Scheduler:
    """`view` is the read side; `scorers` asks the plug-ins (None: in line). One owner calls `step`, in order; nothing else changes
    the state. `changes`: turns so far that had facts."""

    def __init__(
        self,
        config: Config,
        *,
        seed: int = 0,
        epoch: int = 1,
        books: Books | None = None,
        scorers: Scorers | None = None,
    ) -> None:
        self.config = config
        self.books = books or Books(new_core(config), config)
        self.core: Core = self.books.core
        self.world = World(self.books, seed, epoch, Ranking(self.books, scorers))
        self.view = View(self.world)
        self.window = Window(config.batch.size, round(config.batch.max_wait * 1e9))
        self.most_placed = sys.maxsize
        """Placements in one turn, for the turn is what everybody else waits for meanwhile; the next turn goes on."""
        self.deciding: AbstractContextManager[object] = nullcontext()
        """Entered while prices, ranks and decisions are worked out: for who wants to know how long that takes."""
        self.changes = 0
        self._offset = 0
        self._unfinished = 0  # levels, a bit each, whose decision stopped at `most_placed`
        self._is_put_off = False  # the last turn was for urgent tasks only
        self._follow = Follow(self.world)
        self._due = Due(self.world)
        self._submissions = Submissions(self.world)
        self.clerk = Clerk(self.world, self._submissions)
        self._submissions.clerk = self.clerk
        self._bundles = Bundles(self.world, self._submissions, self.clerk)
        self._cancels = Cancels(self.world, self.clerk)
        self._measuring = Measuring(self.world)
        self.conductor = Conductor(self.world, self._submissions)
        self.view.graphs = GraphView(self.world, self.conductor)
        self._handlers = self._table()
        self._immediate = sum(1 << level for level in self.books.immediate)
        self._batch = 0b1111 & ~self._immediate
        self.world.drain = self._drain
        self.core.set_order(ORDERS[config.order])
        self.core.set_backfill(config.backfill.enabled)
        self.core.set_policy(PRESETS[config.policy.preset])
        self.core.set_strand_limit(config.policy.strand_limit)
        self.core.set_patience(round(config.policy.patience * 1e9))
        self.books.steer()
        self.core.set_repair(round(config.gang.repair * 1e9))
        self.core.set_consolidate(MOVES[config.preemption.consolidate])
        self.core.set_preemption_delay(round(config.preemption.delay * 1e9))
        self._pricer = Pricer(self.core) if config.policy.preset == "price" else None

    def _table(self) -> dict[type[Input], Callable[[Any], None]]:
        clients, nodes = Clients(self.world, self.view), Nodes(self.world, self.view)
        graphs = GraphClients(self.world)
        return {
            messages.Submit: self._submissions.on_submit,
            messages.Bundle: self._bundles.on_bundle,
            messages.Array: self._bundles.on_array,
            messages.Cancel: self._cancels.on_cancel,
            messages.Finish: clients.on_finish,
            messages.Operate: clients.on_operate,
            messages.SetQueue: clients.on_set_queue,
            messages.ImportProfiles: clients.on_import_profiles,
            messages.SubmitGraph: graphs.on_submit,
            messages.CancelGraph: graphs.on_cancel,
            messages.DigestsHeard: self.clerk.on_digests,
            messages.LettersHeard: self.clerk.on_letters,
            messages.Remind: self.clerk.on_remind,
            messages.OperateNode: nodes.on_operate_node,
            messages.NodeJoined: nodes.on_node_joined,
            messages.NodeSilent: nodes.on_node_silent,
            messages.NodeLost: nodes.on_node_lost,
            messages.AttemptStarted: nodes.on_attempt_started,
            messages.AttemptEnded: nodes.on_attempt_ended,
            messages.AttemptsStarted: nodes.on_attempts_started,
            messages.AttemptsSucceeded: nodes.on_attempts_succeeded,
            messages.DeviceHealth: nodes.on_device_health,
            messages.UseReported: self._measuring.on_use_reported,
        }

    # -- the turn

    def step(self, inputs: Sequence[Input], now_ns: int, *, only_urgent: bool = False) -> Turn:
        """Hear the inputs in order, do what is due at `now_ns` (never earlier than the last turn's), decide, answer. `only_urgent`: the batch
        lane waits for the next turn, which has to follow."""
        self._begin(now_ns)
        if not only_urgent:
            self._cancels.go_on()
        heard = False
        for asked in inputs:
            if heard and type(asked) not in HEARD:
                self._drain()
            self._handlers[type(asked)](asked)
            heard = type(asked) in HEARD
            if not heard:
                self._drain()
        self._drain()
        self._due.fire()
        self._drain()
        self._measuring.steer()
        self.conductor.review()
        self._drain()
        self._decide(only_urgent)
        self._submissions.answer()
        self._bundles.answer()
        self._forget_old()  # after the answers: what ended in the turn of its submission is still told
        return self._end()

    def wake_ns(self) -> int | None:
        """When `step([])` next has something to do; None = only an input can change anything."""
        if self._unfinished or self._is_put_off or self._cancels.is_under_way:
            return self.world.now_ns
        dues = (self.world.timers.next_ns(), self.window.due_ns(), self.core.next_ns())
        return min((due_ns for due_ns in dues if due_ns is not None), default=None)

    @property
    def is_unfinished(self) -> bool:
        """The last turn could have placed more than `most_placed`; the next one goes on."""
        return bool(self._unfinished)

    def _begin(self, now_ns: int) -> None:
        world = self.world
        world.now_ns = self.books.now_ns = now_ns  # a turn without facts moves the time of a snapshot, too
        world.events, world.orders, world.replies, world.letters = [], [], [], []
        self.core.begin(now_ns)
        self._offset = 0
        self._counters = (self.books.event_seq, self.books.id_seq)

    def _drain(self) -> None:
        """Let every fact written so far have its consequences, and theirs, until there are no more."""
        while True:
            peek = self.core.peek_runs if self.books.takes_runs else self.core.peek_facts
            facts, self._offset = peek(self._offset)
            if not facts:
                return
            for fact in facts:
                if isinstance(fact, Run):
                    self.books.record_run(fact)
                    self._follow.run(fact)
                else:
                    self.books.record(fact)
                    self._follow.fact(fact)

    def _decide(self, only_urgent: bool) -> None:
        """Immediate lane in this very turn, batch lane when its window is full or over."""
        world = self.world
        if self.core.settle():
            self._drain()
        world.capacity_changed |= self.core.time_told()
        changed = world.capacity_changed or world.arrived > 0
        unfinished, self._unfinished = self._unfinished, 0
        if (changed or unfinished & self._immediate) and self.core.waiting(self._immediate):
            self._place(self._immediate)
        self._is_put_off = only_urgent
        if only_urgent:  # what has arrived and what has changed is still to be told to the batch lane
            self._unfinished |= unfinished & self._batch
            return
        self.window.gather(world.arrived, world.capacity_changed, self.core.waiting(self._batch), world.now_ns)
        world.arrived, world.capacity_changed = 0, False
        if self.window.is_due(world.now_ns):
            self.window.flush(world.now_ns)
            unfinished |= self._batch
        if unfinished & self._batch:
            self._place(self._batch)

    def _place(self, levels: int) -> None:
        with self.deciding:
            if self._pricer is not None:
                self._pricer.turn()
            self.world.ranking.refresh()
            self.core.decide(levels, self.config.preemption.enabled, most=self.most_placed)
        self._drain()
        if self.core.has_more():
            self._unfinished |= levels

    def _forget_old(self) -> None:
        """Ended tasks are kept up to `limits.retention_tasks`, then leave the table, oldest end first."""
        self.books.learn_turn()
        self.books.forget_oldest(len(self.books.ended) - self.config.limits.retention_tasks)

    def _end(self) -> Turn:
        world = self.world
        if self._counters != (self.books.event_seq, self.books.id_seq):
            self.books.say(words.Counted(self.books.event_seq, self.books.id_seq))
        self._drain()  # nothing follows from these, but the books keep the turn's time, as they will at replay
        facts = self.core.take_facts()
        self.changes += bool(facts)
        return Turn(facts, world.replies, Orders(world.orders), Events(world.events), world.letters)

    # -- what a simulation calls

    def know(self, tasks: Iterable[Task]) -> None:
        """Count these as asked before anything happens: history, for presets that are defined by a mix known beforehand. No facts."""
        for shape, times in Counter(map(self.books.templates.intern_shape, tasks)).items():
            self.core.know(shape, times)
        self.core.set_policy(PRESETS[self.config.policy.preset])  # it looks at all of it, not at what it last counted

    # -- what a copy is told (rehearse/image.py)

    def derived(self) -> Derived:
        """What decisions hang on that stands in no fact and no dump: after a restart it is worked out anew, in a copy it must be the same."""
        scarce = msgspec.structs.replace(self.world.ranking.scarce)
        return Derived(None if self._pricer is None else self._pricer.known(), scarce)

    def adopt(self, derived: Derived) -> None:
        """Decide as the scheduler does from which this was derived."""
        self.world.ranking.scarce = msgspec.structs.replace(derived.scarce)
        if self._pricer is not None and derived.priced is not None:
            self._pricer.adopt(derived.priced)

    # -- what a restart calls

    def apply(self, facts: bytes) -> None:
        """Replay one journal frame; decides nothing. ValueError if it contradicts the state."""
        snapshot.replay(self.books, facts)

    def resume(self, epoch: int | None = None) -> None:
        """After the last frame: set the timers and links that hang on the state, and give orders in `epoch` (None: as told at first)."""
        if epoch is not None:
            self.world.epoch = epoch
        snapshot.rebuild(self.world)
        self.conductor.resume()
        self.window.open(0)
        self.world.capacity_changed = True  # both lanes are decided once: a reservation of the one holds in the other

    def look(self, now_ns: int) -> None:
        """Work out prices and ranks for questions about this state, and decide nothing."""
        self.world.now_ns = now_ns
        self.core.begin(now_ns)
        if self._pricer is not None:
            self._pricer.turn()
        self.world.ranking.refresh()

    def snapshot(self) -> bytes:
        """The whole state, to be given to `restore`."""
        return snapshot.save(self.books)

    def bytes_to_copy(self) -> int:
        """How much room `copied` needs."""
        return self.core.bytes_to_copy()

    def copied(self, room: Room | None = None) -> Copied:
        """The same, but for what may be done later and elsewhere. `room`: of `snapshot.room_for`."""
        return snapshot.copy(self.books, room)

    @classmethod
    def restore(
        cls,
        config: Config,
        state: bytes | None,
        *,
        seed: int = 0,
        epoch: int = 1,
        scorers: Scorers | None = None,
    ) -> Scheduler:
        """From a snapshot (None: from nothing). Then `apply` every later frame, then `resume`."""
        books = None if state is None else snapshot.load(config, state)
        return cls(config, seed=seed, epoch=epoch, books=books, scorers=scorers)

    def digest(self) -> int:
        """Equal for equal states, however they were reached."""
        return snapshot.digest(self.books)


def new_core(config: Config) -> Core:
    """An empty core under this configuration."""
    return Core(policy=PRESETS[config.policy.preset], blast_radius=config.preemption.blast_radius)
