"""A cluster in one process: machines, server, daemons, agents, clients, all under one clock; and what may be done to them.

Daemons and agents are the real ones, wired as their `main` does it; the network, the server and the machines are simulated.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import random
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import hetsched.agent.agent as agent_module
import hetsched.agent.hunt as hunt_module
import hetsched.agent.link as link_module
import hetsched.agent.measuring as measuring_module
import hetsched.agent.runner as runner_module
import hetsched.agent.shim.files as files_module
import hetsched.daemon.standby as standby_module
import hetsched.store.journal as journal_module
from hetsched._core import CLAIMING
from hetsched.agent.ledger import Ledger
from hetsched.agent.main import agent_directory
from hetsched.config import Config, from_mapping
from hetsched.daemon.clock import Clock
from hetsched.daemon.daemon import Daemon
from hetsched.daemon.recover import Followed, Recovered, recover_prefix, take_over
from hetsched.daemon.standby import Standby
from hetsched.errors import Deposed, HetschedError
from hetsched.model import State, parse_submission
from hetsched.scheduler import Scheduler
from hetsched.scheduler.lifecycle import CODE_OF_STATE
from hetsched.scheduler.messages import Cancel, Finish, Submit
from hetsched.store.base import Led
from hetsched.store.identity import Identity
from hetsched.store.journal import Journal
from hetsched.store.succession import Candidate
from tests.simulation import kernel
from tests.simulation.agents import DAEMONS, ClientSocket, SimulatedAgent, SimulatedDevices
from tests.simulation.auditor import Auditor
from tests.simulation.clockwork import Machine, Process, VirtualLoop, VirtualTime, virtual_time
from tests.simulation.coverage import Met
from tests.simulation.kernel import Node
from tests.simulation.laws import LIVE, TERMINAL
from tests.simulation.network import End, Network
from tests.simulation.pace import DENSE, Pace
from tests.simulation.server import RemoteBackend, RemoteRenewer, RemoteSuccession, Server, SimulatedTenure

NOT_ENDED = ",".join(("held", "queued", "backoff", *LIVE))
NODES = 3


class World:
    """`seed` of everything that is not a fault. Ends with `close`."""

    def __init__(self, seed: int, pace: Pace = DENSE) -> None:
        self.pace = pace
        self.rng = random.Random(f"world {seed}")
        self.loop = VirtualLoop()
        self.directory = Path(
            tempfile.mkdtemp(prefix="hetsched-simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        )
        self.network = Network(self.loop, random.Random(f"network {seed}"))
        self.network.stray_s = 5.0 * pace.scale
        self.config: Config = from_mapping(pace.config(random.Random(f"config {seed}")), simulated=False)
        self.audit = Auditor(pace, self.config.store.lease)
        self.server = Server(
            self.loop, self.network, Machine("store"), random.Random(f"server {seed}"), self.audit.appended
        )
        self.server.published = lambda: self._come("snapshot", [])
        self.nodes = [Node(f"n{i}", self.audit.truth, 1 + self.rng.uniform(-0.01, 0.01), pace) for i in range(NODES)]
        self.daemon_machines = [Machine(DAEMONS[0], 1 + self.rng.uniform(-0.01, 0.01)), Machine(DAEMONS[1])]
        self.desk = Machine("clients")
        self.daemon: Daemon | None = None
        self.daemon_process: Process | None = None  # of the one that led last
        self.daemons: dict[int, Process] = {}  # by machine
        self.agents: dict[str, Process] = {}
        self.turns = 0
        self._moments: list[tuple[str, Callable[[], None]]] = []
        self.epochs_opened = 0
        self.last_words = ""  # of a daemon that ended by itself
        self.opened_s = 0.0  # when one was last seen with its store open
        self.began_s = 0.0  # when the present one opened it
        self.met: Met = Counter()
        self.regressed = False
        self.restarts = False  # whoever ends with an error of his own is started again
        self.hit: list[str] = []  # tasks in whose moment a fault has struck; some clients think better of them
        self.where: list[str] = []  # nodes at which the fault that strikes now has its moment
        self.rush_until_s = 0.0
        self._heard_since_s: float | None = None  # the last tick, where all was well at it
        self.spoken_of: deque[str] = deque(maxlen=6)  # tasks that some client has asked something of just now

    # ------------------------------------------------------------------ daemon

    def start_daemon(self, machine: int = 0) -> None:
        """Unless that machine's directory is locked: a daemon lives there, or is frozen."""
        if machine in self.daemons and self.daemons[machine].alive:
            return
        process = self.daemons[machine] = Process(self.loop, self.daemon_machines[machine], "daemon")
        process.at_death.append(lambda: self.network.leaves(process.machine.name, process))
        process.run(self._watch(lambda: self._daemon_life(process, machine), process))

    async def _watch(self, life: Callable[[], Awaitable[None]], process: Process) -> None:
        """The supervisor's half: what ends by itself, or breaks."""
        try:
            await life()
        except HetschedError as error:  # a store lost: what `main` ends with
            self.last_words = str(error)
        finally:
            self.loop.call_outside(process.kill)

    async def _daemon_life(self, process: Process, machine: int) -> None:
        """Who is deposed stands by and may lead again."""
        directory = self.directory / f"daemon{machine}"
        directory.mkdir(exist_ok=True)
        name = process.machine.name
        candidate = Candidate(name, name, f"http://{name}", self.config.store.lease)
        while True:
            backend = RemoteBackend(self.network)
            identity = Identity(directory / "identity.json", "simulated")
            store = Journal(
                backend,
                self.config.store,
                identity,
                succession=RemoteSuccession(backend),
                renewer=lambda: RemoteRenewer(self.network),
                candidate=candidate,
            )
            try:
                await self._lead(process, store, await self._our_turn(store))
            except Deposed:
                continue
            finally:
                await store.close()

    async def _our_turn(self, store: Journal) -> Recovered:
        followed: Followed | None = None
        while True:
            try:
                found = await (recover_prefix(self.config, store) if followed is None else take_over(store, followed))
                if found.damage is not None:
                    raise found.damage
                return found
            except Led as led:
                followed = await Standby(self.config, store, None, followed, led.leader, Counter()).follow()

    async def _lead(self, process: Process, store: Journal, found: Recovered) -> None:
        daemon = Daemon(self.config, found.scheduler, store, cluster_id=found.opened.cluster_id)
        daemon.scheduler.core.check()
        self.epochs_opened += 1
        self.opened_s = self.began_s = self.loop.true_s
        self._tell_ledger(daemon)
        turning = asyncio.create_task(daemon.turns.run())
        daemon.expect_nodes()
        self.daemon, self.daemon_process = daemon, process
        self.network.listen(process.machine.name, process, lambda end: self._serve(daemon, end))
        await asyncio.wait([turning, store.failed], return_when=asyncio.FIRST_COMPLETED)
        self.network.leaves(process.machine.name, process)
        daemon.links.close()
        self.network.hang_up(process)
        turning.cancel()
        await asyncio.gather(turning, return_exceptions=True)
        if store.failed.done():
            raise store.failed.result()
        turning.result()

    def _tell_ledger(self, daemon: Daemon) -> None:
        core, rows = daemon.scheduler.core, _all_tasks(daemon, NOT_ENDED)
        claiming = (row["id"] for row in rows if core.task(core.find(row["id"].encode())).flags & CLAIMING)
        claims = {task: str(daemon.view.task(task)["claim"]["node"]) for task in claiming}
        self.audit.ledger.recovered(rows, claims, daemon.view.devices(), lambda task: str(daemon.state_of(task)))

    async def _serve(self, daemon: Daemon, end: End) -> None:
        first = await end.receive()
        if first == "agent":
            await daemon.links.serve(end)
            return
        while first is not None:
            end.process.run(self._answer(daemon, end, *first))
            first = await end.receive()

    async def _answer(self, daemon: Daemon, end: End, number: int, verb: str, *args: Any) -> None:
        try:
            answer = await self._do(daemon, verb, *args)
        except HetschedError as problem:
            answer = ("problem", getattr(problem, "status", 400), str(problem))
        with contextlib.suppress(ConnectionError):
            await end.send((number, answer, daemon.epoch))

    async def _do(self, daemon: Daemon, verb: str, *args: Any) -> Any:
        """Thin, as the handlers of `hetsched.api` are."""
        daemon.require_lead()
        match verb:
            case "submit":
                submission = parse_submission(json.loads(args[0]), daemon.task_defaults)
                asked = Submit(submission=submission, actor="client", idempotency_key=args[1] or None)
                reply = await daemon.submit(asked, len(submission.items))
                return ("ok", reply.ids, reply.rejected)
            case "cancel":
                return ("ok", await daemon.ask(Cancel(ids=(args[0],), actor="client")))
            case "finish":
                return ("ok", await daemon.ask(Finish(task=args[0], attempt=args[1], succeeded=True, actor="client")))
            case "get":
                row = daemon.view.task(args[0])
                await daemon.settled()
                return ("ok", row["state"], len(row["attempts"]))
        raise AssertionError(verb)

    # ------------------------------------------------------------------ agents

    def start_agent(self, number: int) -> None:
        node = self.nodes[number]
        process = Process(self.loop, node, f"agent of {node.name}")
        self.agents[node.name] = node.agent = process
        process.run(self._watch(lambda: self._agent_life(process, node), process))

    async def _agent_life(self, process: Process, node: Node) -> None:
        directory = agent_directory(self.directory, node.name)
        agent = SimulatedAgent(node, self.config, directory)
        process.at_death.append(agent.let_go)
        node.held = agent.runner.attempts.alive
        await agent.open()
        await agent.run()

    # ------------------------------------------------------------------ the end

    def states(self) -> dict[str, str]:
        """Of all tasks that the daemon knows."""
        assert self.daemon is not None
        return {row["id"]: row["state"] for row in _all_tasks(self.daemon)}

    def remembered_seq(self) -> int:
        """What the first daemon's own disk knows to be confirmed."""
        path = self.directory / "daemon0" / "identity.json"
        return int(json.loads(path.read_bytes())["seq"]) if path.exists() else 0

    def has_ended(self, task: str) -> bool:
        """By the daemon that leads."""
        return self.daemon is not None and str(self.daemon.state_of(task)) in TERMINAL

    @property
    def waiting(self) -> int:
        """How many tasks are queued, by the daemon that leads."""
        return 0 if self.daemon is None else int(self.daemon.scheduler.core.counts()[CODE_OF_STATE[State("queued")]])

    def at_state(self, state: str, call: Callable[[], None]) -> None:
        """Call as soon as a task is in that state, by a turn that has just been let out, or a snapshot is published; after a while anyway."""
        waiting = (state, call)

        def at_last() -> None:
            if waiting in self._moments:
                self._moments.remove(waiting)
                call()

        self._moments.append(waiting)
        most_s = self.config.store.snapshot_every if state == "snapshot" else 30.0 * self.pace.scale
        self.loop.call_outside(at_last, after_s=most_s)

    def disarm(self) -> None:
        """What waits for its moment never comes."""
        self._moments.clear()

    def released(self, daemon: Daemon) -> None:
        """A turn of that daemon is durable and about to be let out."""
        self.turns += 1
        if daemon is not self.daemon:
            return
        for state in {state for state, _ in self._moments} - {"snapshot"}:
            if state == "claiming":
                if self.audit.ledger.claims:
                    self._come(state, sorted(self.audit.ledger.claims.values()))
            elif daemon.scheduler.core.counts()[CODE_OF_STATE[State(state)]]:
                rows = daemon.view.tasks(state=state, limit=20)["tasks"] if state in LIVE else []
                self._come(state, [row["placement"]["node"] for row in rows])
                self.hit = [row["id"] for row in rows]

    def _come(self, moment: str, where: list[str]) -> None:
        """The moment that some faults wait for, at these nodes."""
        for waiting in [waiting for waiting in self._moments if waiting[0] == moment]:
            self._moments.remove(waiting)

            def strike(call: Callable[[], None] = waiting[1]) -> None:
                self.where = where
                call()
                self.where = []

            self.loop.call_outside(strike)

    def tick(self) -> None:
        """Asked all the time: the ledger's clocks run while a daemon leads, all that it decided is let out, and who is to obey hears it."""
        now_s = self.loop.true_s
        daemon, process = self.daemon, self.daemon_process
        before_s, self._heard_since_s = self._heard_since_s, None
        if (
            daemon is None
            or process is None
            or not process.alive
            or process.frozen
            or daemon.turns._unreleased
            or not daemon.store.leads
        ):
            return
        self._heard_since_s = now_s
        for known in daemon.scheduler.books.cluster.by_name.values():
            if not known.up or known.silent:
                self.audit.ledger.closed(known.name)
        if before_s is not None:
            obeying = {node.name for node in self.nodes if self._obeys(node, process)}
            self.audit.ledger.time_passed(now_s - before_s, obeying)

    def _obeys(self, node: Node, daemon: Process) -> bool:
        """Whether nothing keeps this node from doing what it is told."""
        agent, network = self.agents[node.name], self.network
        cut = {(node.name, daemon.machine.name), (daemon.machine.name, node.name)} & network.blocked
        assert self.daemon is not None
        return (
            agent.alive
            and not agent.frozen
            and not cut
            and node.name not in network.dark
            and not node.disk_is_full
            and not node.stands_still(self.loop.true_s)
            and node.name in self.daemon.links.by_node
        )

    def meet(self, fault: str) -> None:
        """A fault strikes: note which states of tasks it meets."""
        if self.daemon is not None:
            for state, count in self.daemon.view.cluster()["tasks"].items():
                self.met[fault, state] += count > 0

    def judge(self) -> None:
        """What is counted and what is; only where nothing is under way that the auditor has not heard."""
        daemon, process = self.daemon, self.daemon_process
        if daemon is None or process is None or not process.alive or process.frozen or daemon.turns._unreleased:
            return
        view, metrics = daemon.view, daemon.metrics
        rows = _all_tasks(daemon, NOT_ENDED)
        now_s = self.loop.true_s
        self.audit.look_around(now_s)
        for node in self.nodes:
            since_s = max(node.dark_since_s, self.began_s)
            if node.name in self.network.dark and now_s - since_s > self.pace.gone_s:
                self.audit.gone(node.name, now_s - since_s, [row for row in rows if row["state"] in LIVE])
        self.audit.ledger.judge_counters(
            {
                "rows": rows,
                "tasks": view.cluster()["tasks"],
                "queues": view.queues(),
                "devices": view.devices(),
                "accepted": _value(metrics.tasks_accepted),
                "attempts": _value(metrics.attempts),
            }
        )

    def replayed_digest(self) -> int:
        """Of a scheduler rebuilt from what the server's disk holds."""
        from hetsched.store.frame import decode

        state = self.server.disk.state
        assert state.head is not None
        snapshot, after = None, 0
        if state.head.snapshots:
            manifest = state.head.snapshots[0]
            from hetsched.store.snapshot import decode_chunk

            parts = [
                decode_chunk(state.chunks[manifest.name, i], i, manifest.chunks, manifest.name)
                for i in range(manifest.chunks)
            ]
            snapshot, after = b"".join(parts), manifest.seq
        twin = Scheduler.restore(self.config, snapshot, epoch=state.head.epoch)
        for position, data in state.frames:
            if position.seq > after:
                twin.apply(decode(data, position.id)[2])
        return twin.digest()

    def close(self) -> None:
        self.loop.finish()
        shutil.rmtree(self.directory, ignore_errors=True)


def _value(counter: Any) -> int:
    """Over all labels."""
    return sum(int(sample.value) for sample in counter.collect()[0].samples if sample.name.endswith("_total"))


def _all_tasks(daemon: Daemon, state: str | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = daemon.view.tasks(limit=10_000, cursor=cursor, state=state)
        rows += page["tasks"]
        cursor = page["next"]
        if cursor is None:
            return rows


@contextlib.contextmanager
def simulated(seed: int, pace: Pace = DENSE, mutate: Callable[[], Callable[[], None]] | None = None) -> Iterator[World]:
    """A world in which hetsched's hands are replaced by simulated ones. `mutate` breaks the protocol on purpose; its answer mends it."""
    world = World(seed, pace)
    undo: list[Callable[[], None]] = []

    def put(place: Any, name: str, value: Any) -> None:
        old = getattr(place, name)
        undo.append(lambda: setattr(place, name, old))
        setattr(place, name, value)

    async def connect(self: Any) -> None:
        url, _ = self._peer.address()
        async with asyncio.timeout(10.0):
            end = await world.network.dial(url)
            await end.send("agent")
        try:
            await self._join(ClientSocket(end), url)
        finally:
            end.shut()

    release = Daemon._release

    def released(self: Daemon, taken: Any) -> None:
        for event in taken.turn.events:
            world.audit.event(event, leads=self is world.daemon)
        world.audit.ledger.turn_over()
        world.released(self)
        release(self, taken)

    random_before = random.getstate()
    random.seed(seed)
    undo.append(lambda: random.setstate(random_before))
    put(runner_module, "Spawner", kernel.Spawner)
    put(runner_module, "Shims", kernel.Shims)
    put(hunt_module, "survivors", kernel.survivors)
    put(hunt_module, "processes", kernel.processes)
    put(agent_module, "processes", kernel.processes)
    put(agent_module, "Devices", SimulatedDevices)
    put(measuring_module, "measure", kernel.measure)
    put(measuring_module, "load_average", lambda: 0.0)
    put(measuring_module, "memory_available_bytes", lambda: 64 << 30)
    put(link_module.Link, "_connect", connect)
    put(Daemon, "_release", released)
    put(journal_module, "HEALTH_EVERY_S", 5.0 * pace.scale)
    put(journal_module, "Tenure", SimulatedTenure)
    put(standby_module, "LOOK_S", 2.0 * pace.scale)
    put(agent_module, "_TIDY_LOOK_S", 15.0 * pace.scale)
    for place, name in ((files_module, "_write"), (Ledger, "write"), (Ledger, "replace")):
        put(place, name, kernel.disk_of(getattr(place, name)))
    undo.append(virtual_time(world.loop))
    clock = VirtualTime(world.loop)
    put(Clock.__init__, "__kwdefaults__", {"wall_ns": clock.time_ns, "monotonic_ns": clock.monotonic_ns})
    if mutate is not None:
        undo.append(mutate())
    logging.disable(logging.CRITICAL)
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield world
    finally:
        for call in reversed(undo):
            call()
        world.close()
        logging.disable(logging.NOTSET)
        if collecting:
            gc.enable()
