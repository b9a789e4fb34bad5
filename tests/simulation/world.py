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
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

import hetsched.agent.agent as agent_module
import hetsched.agent.hunt as hunt_module
import hetsched.agent.link as link_module
import hetsched.agent.runner as runner_module
import hetsched.store.journal as journal_module
from hetsched import wire
from hetsched.agent.agent import Agent
from hetsched.agent.attempts import Key
from hetsched.agent.main import agent_directory
from hetsched.config import Config, from_mapping
from hetsched.daemon.clock import Clock
from hetsched.daemon.daemon import Daemon
from hetsched.daemon.recover import recover
from hetsched.errors import HetschedError
from hetsched.model import DeviceSpec, NodeSpec, parse_submission
from hetsched.scheduler import Scheduler
from hetsched.scheduler.messages import Cancel, Submit
from hetsched.store.identity import Identity
from hetsched.store.journal import Journal
from tests.simulation import kernel
from tests.simulation.auditor import Auditor
from tests.simulation.clockwork import CURRENT, Machine, Process, VirtualLoop, VirtualTime, virtual_time
from tests.simulation.kernel import Node
from tests.simulation.network import End, Network
from tests.simulation.server import RemoteBackend, Server

DAEMON = "daemon"
CONFIG: dict[str, Any] = {
    "agent": {"lease": 10.0, "heartbeat": 3.0, "pull_every": 20.0, "allow_root": True, "default_user": ""},
    "store": {"snapshot_every": 120.0},
    "health": {"auto_cordon": False},
    "gang": {"repair": 20.0},
}
NODES = 3
GPUS = 4


class World:
    """`seed` of everything that is not a fault. Ends with `close`."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"world {seed}")
        self.loop = VirtualLoop()
        self.directory = Path(
            tempfile.mkdtemp(prefix="hetsched-simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        )
        self.audit = Auditor()
        self.network = Network(self.loop, random.Random(f"network {seed}"))
        self.config: Config = from_mapping(CONFIG, simulated=False)
        self.server = Server(
            self.loop, self.network, Machine("store"), random.Random(f"server {seed}"), self.audit.appended
        )
        self.nodes = [Node(f"n{i}", self.audit.truth, 1 + self.rng.uniform(-0.01, 0.01)) for i in range(NODES)]
        self.daemon_machines = [Machine("d0", 1 + self.rng.uniform(-0.01, 0.01)), Machine("d1")]
        self.desk = Machine("clients")
        self.daemon: Daemon | None = None
        self.daemon_process: Process | None = None
        self.agents: dict[str, Process] = {}
        self.turns = 0
        self.epochs_opened = 0

    # ------------------------------------------------------------------ daemon

    def start_daemon(self, machine: int = 0) -> None:
        process = Process(self.loop, self.daemon_machines[machine], "daemon")
        self.daemon_process = process
        process.at_death.append(lambda: self.network.leaves(DAEMON, process))
        process.run(self._watch(lambda: self._daemon_life(process, machine), process))

    async def _watch(self, life: Callable[[], Awaitable[None]], process: Process) -> None:
        """The supervisor's half: what ends by itself, or breaks."""
        try:
            with contextlib.suppress(HetschedError):  # a store lost, a leader deposed: what `main` ends with
                await life()
        finally:
            self.loop.call_outside(process.kill)

    async def _daemon_life(self, process: Process, machine: int) -> None:
        directory = self.directory / f"daemon{machine}"
        directory.mkdir(exist_ok=True)
        store = Journal(
            RemoteBackend(self.network), self.config.store, Identity(directory / "identity.json", "simulated")
        )
        try:
            scheduler, opened = await recover(self.config, store)
            daemon = Daemon(self.config, scheduler, store, cluster_id=opened.cluster_id)
            scheduler.core.check()
            self.epochs_opened += 1
            turning = asyncio.create_task(daemon.turns.run())
            daemon.expect_nodes()
            self.daemon = daemon
            self.network.listen(DAEMON, process, lambda end: self._serve(daemon, end))
            await asyncio.wait([turning, store.failed], return_when=asyncio.FIRST_COMPLETED)
            self.network.leaves(DAEMON, process)
            daemon.links.close()
            if turning.done():
                turning.result()
        finally:
            await store.close()

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
            await end.send((number, answer))

    async def _do(self, daemon: Daemon, verb: str, *args: Any) -> Any:
        """Thin, as the handlers of `hetsched.api` are."""
        match verb:
            case "submit":
                submission = parse_submission(json.loads(args[0]), daemon.task_defaults)
                reply = await daemon.submit(Submit(submission=submission, actor="client"), len(submission.items))
                return ("ok", reply.ids, reply.rejected)
            case "cancel":
                return ("ok", await daemon.ask(Cancel(ids=(args[0],), actor="client")))
            case "get":
                row = daemon.view.task(args[0])
                await daemon.settled()
                return ("ok", row["state"], len(row["attempts"]))
        raise AssertionError(verb)

    # ------------------------------------------------------------------ agents

    def start_agent(self, number: int) -> None:
        node = self.nodes[number]
        process = Process(self.loop, node, f"agent of {node.name}")
        self.agents[node.name] = process
        process.run(self._watch(lambda: self._agent_life(process, node), process))

    async def _agent_life(self, process: Process, node: Node) -> None:
        directory = agent_directory(self.directory, node.name)
        agent = SimulatedAgent(node, self.config, directory)
        process.at_death.append(agent.let_go)
        await agent.open()
        await agent.run()

    # ------------------------------------------------------------------ the end

    def states(self) -> dict[str, tuple[str, int]]:
        """Of all tasks that the daemon knows."""
        assert self.daemon is not None
        out: dict[str, tuple[str, int]] = {}
        cursor = None
        while True:
            page = self.daemon.view.tasks(limit=1000, cursor=cursor)
            out.update({row["id"]: (row["state"], len(row.get("attempts", ()))) for row in page["tasks"]})
            cursor = page["next"]
            if cursor is None:
                return out

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


class SimulatedAgent(Agent):
    """The real agent on a simulated machine."""

    def __init__(self, node: Node, config: Config, directory: Path) -> None:
        self._node = node
        super().__init__(node.name, config, directory, _Address(), None)  # type: ignore[arg-type]

    def order(self, message: Any) -> None:
        if isinstance(message, wire.Start):
            self._node.devices_of[Key(message.task, message.attempt)] = message.devices
        super().order(message)

    def let_go(self) -> None:
        """What the kernel does at the agent's death: descriptors, locks."""
        self._lease.close()
        self._identity.close()


class _Address:
    last_url = "simulated:"

    def find(self) -> tuple[str, str]:
        return "simulated:", "token"

    def leave(self, leader: str) -> None:
        """There is one daemon."""


class SimulatedDevices:
    """Stands for `agent.devices.Devices`."""

    def __init__(self, name: str, config: Config, directory: Path, fake: str | None) -> None:
        process = CURRENT.get()
        assert process is not None and isinstance(process.machine, Node)
        self._node = process.machine
        from hetsched.agent.isolation import visible_by_kind

        self.visible = {f"gpu-{i}": visible_by_kind("gpu", i) for i in range(GPUS)}

    async def open(self) -> None:
        await asyncio.sleep(0.01)

    def node(self) -> NodeSpec:
        devices = tuple(DeviceSpec(id=f"gpu-{i}", kind="gpu", model="A100", memory_bytes=40 << 30) for i in range(GPUS))
        return NodeSpec(
            name=self._node.name, cpu_milli=32_000, memory_bytes=128 << 30, devices=devices, boot_id=self._node.boot_id
        )

    def readings(self) -> tuple[wire.DeviceReading, ...]:
        return tuple(wire.DeviceReading(f"gpu-{i}", "healthy", utilization_percent=50.0) for i in range(GPUS))

    def report(self) -> wire.Report:
        return wire.Report(self.readings())

    async def run(self, push: Any, changed: Any) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        return None


class _Socket:
    """An `End` as aiohttp's client socket."""

    def __init__(self, end: End) -> None:
        self._end = end

    async def send_bytes(self, data: bytes) -> None:
        await self._end.send(data)

    async def receive(self) -> aiohttp.WSMessage:
        data = await self._end.receive()
        if data is None:
            return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)
        return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, data, None)


@contextlib.contextmanager
def simulated(seed: int, mutate: Callable[[], Callable[[], None]] | None = None) -> Iterator[World]:
    """A world in which hetsched's hands are replaced by simulated ones. `mutate` breaks the protocol on purpose; its answer mends it."""
    world = World(seed)
    undo: list[Callable[[], None]] = []

    def put(place: Any, name: str, value: Any) -> None:
        old = getattr(place, name)
        undo.append(lambda: setattr(place, name, old))
        setattr(place, name, value)

    async def connect(self: Any) -> None:
        async with asyncio.timeout(10.0):
            end = await world.network.dial(DAEMON)
            await end.send("agent")
        try:
            await self._join(_Socket(end), "simulated:")
        finally:
            end.shut()

    release = Daemon._release

    def released(self: Daemon, taken: Any) -> None:
        world.turns += 1
        for event in taken.turn.events:
            world.audit.event(event)
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
    put(link_module.Link, "_connect", connect)
    put(Daemon, "_release", released)
    put(journal_module, "HEALTH_EVERY_S", 5.0)
    undo.append(virtual_time(world.loop))
    clock = VirtualTime(world.loop)
    put(Clock.__init__, "__kwdefaults__", {"wall_ns": clock.time_ns, "monotonic_ns": clock.monotonic_ns})
    if mutate is not None:
        undo.append(mutate())
    logging.disable(logging.CRITICAL)
    collecting = gc.isenabled()
    try:
        yield world
    finally:
        for call in reversed(undo):
            call()
        world.close()
        logging.disable(logging.NOTSET)
        if collecting:
            gc.enable()
