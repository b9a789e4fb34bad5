"""The daemon once its journal is read: scheduler, turn loop, links, events and metrics wired together.

Everything that changes goes through `ask` or `tell`; everything that is read comes from `view`, followed by `settled`. This class
knows no HTTP and opens no socket; `main.py` starts and stops it, `hetsched.api` is its face.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from hetsched import wire
from hetsched._core import NONE
from hetsched.config import Config
from hetsched.daemon.clock import Clock
from hetsched.daemon.events import EventRing
from hetsched.daemon.fronts import FrontTotals
from hetsched.daemon.greeting import fault_of
from hetsched.daemon.handover import Handover
from hetsched.daemon.inbox import Inbox
from hetsched.daemon.lag import Lag
from hetsched.daemon.links import Links, Terms
from hetsched.daemon.logs import Logs
from hetsched.daemon.measure import Measure
from hetsched.daemon.pace import Pace
from hetsched.daemon.planner import Planner
from hetsched.daemon.safe import SafeMode
from hetsched.daemon.snapshots import Snapshots
from hetsched.daemon.tuner import Tuner
from hetsched.daemon.turns import Taken, TurnLoop
from hetsched.errors import Problem, Unavailable
from hetsched.metrics import Metrics
from hetsched.model import State, Task
from hetsched.scheduler import Scheduler
from hetsched.scheduler.cells.letters import Letter
from hetsched.scheduler.lifecycle import STATE_OF_CODE
from hetsched.scheduler.messages import Array, Bundle, Input, Submit, SubmitGraph
from hetsched.scheduler.room import check_node
from hetsched.scheduler.view import View
from hetsched.store import Store


class Daemon:
    """`scheduler` is restored and resumed, `store` is open. `url`: where others are told to reach it. `watchers`: streams of events and logs
    that are open now. `safe`: why nothing may change; None = all is well. `failovers`: of this process, by their kind.
    `fronts`: what front ends did, where there are any."""

    def __init__(
        self,
        config: Config,
        scheduler: Scheduler,
        store: Store,
        *,
        cluster_id: str,
        url: str = "",
        insecure: bool = False,
        safe: SafeMode | None = None,
        failovers: Mapping[str, int] = MappingProxyType({}),
        fronts: FrontTotals | None = None,
    ) -> None:
        self.config = config
        self.scheduler = scheduler
        self.store = store
        self.cluster_id = cluster_id
        self.url = url
        self.insecure = insecure
        self.safe = safe
        self.epoch = scheduler.world.epoch
        self._pace = Pace()
        scheduler.most_placed = self._pace.most
        self.view: View = scheduler.view
        self.task_defaults = config.task_defaults()
        self.watchers = 0
        self.failovers = failovers
        self.fronts = fronts
        self.carry: Callable[[list[Letter]], None] = lambda letters: None
        """Takes letters to other cells, once the turn that wrote them is durable."""
        self.handover = Handover(store)
        self.clock = Clock(not_before_ns=scheduler.books.now_ns)
        self.events = EventRing(config.limits.events_kept, scheduler.books.event_seq - 1)
        self.snapshots = Snapshots(store, scheduler)
        self.turns = TurnLoop(
            scheduler,
            store,
            self.clock,
            Inbox(config.limits.inbox_tasks),
            self._release,
            self._after_step,
            self._refuse_if_full,
            "" if safe is None else safe.refusal,
        )
        self.filling = self.turns.filling
        self._immediate = frozenset(config.lanes.immediate)
        batch = config.batch
        self.tuner = Tuner(batch.latency, min(batch.min_wait, batch.max_wait), batch.max_wait)
        scheduler.window.eager = batch.latency > 0
        self._flushes = 0
        self.links = Links(self._terms(), self.turns.tell, self._longest_grace_s, self._judge, lambda: store.leads)
        self.logs = Logs(self.links)
        self.planner = Planner(scheduler, self.clock)
        self.metrics = Metrics()
        self._measure = Measure(self, self.metrics)
        self._lag = Lag(self.metrics.loop_lag.observe)

    def _terms(self) -> Terms:
        agent = self.config.agent
        return Terms(
            epoch=self.epoch,
            cluster=self.cluster_id,
            lease_s=agent.lease,
            heartbeat_s=agent.heartbeat,
            pull_every_s=agent.pull_every,
        )

    # ------------------------------------------------------------------ asking

    async def ask(self, item: Input) -> Any:
        """Change something; the answer, once it is durable."""
        return await self.turns.ask(item)

    async def submit(self, item: Submit | Bundle | Array | SubmitGraph, tasks: int) -> Any:
        """Submit that many tasks, or a graph; TooBusy when the inbox is full, Unavailable when the store takes nothing new."""
        self._refuse_if_full()
        if isinstance(item, Bundle) and item.single:  # from a front end
            self.turns.inbox.fast_total += tasks
        return await self.turns.ask(item, tasks=tasks, is_urgent=self._is_urgent(item))

    def _is_urgent(self, item: Input) -> bool:
        """All of it is the immediate lane's."""
        if isinstance(item, Submit):
            items = item.submission.items
            return len(items) == 1 and isinstance(items[0], Task) and items[0].qos in self._immediate
        if isinstance(item, Bundle):
            return all(known.task.qos in self._immediate for known in item.known)
        return False

    def _refuse_if_full(self) -> None:
        if refusal := self.store.refusal():
            raise Unavailable(f"no new tasks are taken: {refusal}", retry_after=5)

    async def settled(self) -> None:
        """Until all that was read so far is durable; Unavailable when another daemon may have gone on from it meanwhile."""
        await self.turns.settled()
        self.require_lead()

    def require_lead(self) -> None:
        """Raise Unavailable when another daemon may lead."""
        if not self.store.leads:
            raise Unavailable("the store does not answer and the lease is over; another daemon may lead")

    def state_of(self, task: str) -> State | None:
        """The task's state, without the rest of it; None if it is not known (any more)."""
        slot = self.scheduler.core.find(task.encode())
        return None if slot == NONE else STATE_OF_CODE[self.scheduler.core.task(slot).state]

    def about(self) -> dict[str, Any]:
        """For `GET /v1/cluster`."""
        seq = self.store.position.seq
        return {
            "role": "leader",
            "leader": self.url,
            "epoch": self.epoch,
            "cluster": self.cluster_id,
            "cell": self.config.store.cell,
            "agents_connected": len(self.links.by_node),
            "agents_refused": [{"node": node, "reason": reason} for node, reason in self.links.refused.items()],
            "durability": self.durability,
            "mode": "normal" if self.safe is None else "safe",
            "safe_mode": self.safe,
            "standbys": [
                {"name": standby.name, "url": standby.url, "lag_frames": max(0, seq - standby.seq)}
                for standby in self.store.standbys()
            ],
        }

    @property
    def durability(self) -> str:
        """How durable a 202 is (RELIABILITY, Promises)."""
        return str(self.store.durability)

    # ------------------------------------------------------------------ turning

    def expect_nodes(self) -> None:
        """After a restart: every node that was up is silent until its agent joins."""
        up = (node["name"] for node in self.view.nodes() if node["state"] != "down")
        self.links.expect(up, self.store.takeover_s)

    def _after_step(self, taken: Taken) -> None:
        self._lag.stir()
        self.snapshots.after_step()
        self._pace.turned(taken.cpu_s, is_cut=self.scheduler.is_unfinished)
        self.scheduler.most_placed = self._pace.most
        window = self.scheduler.window
        if window.flushes != self._flushes:
            self._flushes = window.flushes
            self.tuner.flushed(window.part, time.monotonic())

    def _release(self, taken: Taken) -> None:
        """The turn is durable and answered: orders to agents, events to watchers, numbers to metrics."""
        self.links.send(taken.turn.orders.parts)
        if taken.turn.letters:
            self.carry(taken.turn.letters)
        self.events.publish(taken.turn.events.parts)
        self._measure.released(taken)
        if taken.confirmed is not None:
            now_s = time.monotonic()
            self.scheduler.window.max_wait_ns = round(self.tuner.released(now_s - taken.began_s, now_s) * 1e9)

    def _judge(self, hello: wire.Hello) -> str:
        """What is wrong with an agent's hello, among it: a node or words for which there is no room any more."""
        if hello.cell and hello.cell != self.config.store.cell:
            leads = f"leads cell {self.config.store.cell}" if self.config.store.cell else "knows no cells"
            return f"the agent belongs to cell {hello.cell} (agent.cell), and the daemon here {leads}"
        try:
            check_node(self.scheduler.books, hello.node)
        except Problem as problem:
            return problem.detail
        return fault_of(hello)

    def _longest_grace_s(self, node: str) -> float:
        """Longest grace of what lives on the node: so long its shims may take after the lease."""
        found = self.scheduler.books.cluster.by_name.get(node)
        if found is None:
            return 0.0
        tasks = self.scheduler.core.tasks_on(found.slot)
        return max((self.scheduler.world.body(task).grace for task in tasks), default=0.0)
