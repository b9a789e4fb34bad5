"""Workbenches for the agent's tests: a runner with real shims in this process, a daemon that speaks the protocol, an agent process.

Nothing here sleeps for a fixed time: `until` looks again and again and says what it waited for when it gives up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from hetsched import wire
from hetsched.agent import delegation
from hetsched.agent.attempts import Key
from hetsched.agent.isolation import Visible
from hetsched.agent.policy import Policy
from hetsched.agent.records import Site
from hetsched.agent.runner import Runner
from hetsched.agent.shim import processes
from hetsched.agent.shim.lease import Lease, now_ns
from hetsched.agent.spool import Spool, make_directory

SESSION, EPOCH = 7, 1
PATIENCE_S = 30.0  # of a machine that has much else to do


async def until(what: Callable[[], Any], saying: str = "") -> Any:
    """The first true value of `what`."""
    end = time.monotonic() + PATIENCE_S
    while not (value := what()):
        assert time.monotonic() < end, f"waited in vain for {saying or what}"
        await asyncio.sleep(0.01)
    return value


def order(
    task: str, *command: str, attempt: int = 1, session: int = SESSION, epoch: int = EPOCH, **more: Any
) -> wire.Start:
    """A Start; without `command` of an attempt that only holds its devices."""
    more.setdefault("devices", ())
    more.setdefault("grace_s", 5.0)
    return wire.Start(
        session=session,
        epoch=epoch,
        task=task,
        attempt=attempt,
        cpu_milli=1000,
        memory_bytes=0,
        command=command or None,
        **more,
    )


def stop(task: str, *, attempt: int = 1, grace_s: float = 5.0, reason: str = "cancelled") -> wire.Stop:
    return wire.Stop(SESSION, EPOCH, task, attempt, grace_s, reason)


def alive(pid: int) -> bool:
    """Zombies are dead."""
    return processes.start_time(pid) is not None


class Bench:
    """A runner, its directory, and what it said."""

    def __init__(
        self,
        directory: Path,
        *,
        cgroup: Path | None = None,
        controllers: frozenset[str] = frozenset(),
        lease_s: float = 600.0,
        policy: Policy = Policy(allow_root=True),  # noqa: B008 (frozen)
    ) -> None:
        self.directory = directory
        make_directory(directory / "tasks", 0o711)
        self.spool = Spool(directory)
        self.lease = Lease(str(directory / "lease"))
        self.lease.extend(now_ns() + int(lease_s * 1e9))
        self.said: list[Any] = []
        self.site = Site(
            node="bench",
            url=lambda: "http://127.0.0.1:1",
            boot_id=processes.boot_id(),
            tasks=self.spool.root,
            lease=directory / "lease",
            cgroup=cgroup,
            controllers=controllers,
            policy=policy,
            devices={
                f"gpu-{n}": Visible(("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"), f"GPU-{n}") for n in range(4)
            },
        )
        self.runner = Runner(self.site, self.spool, self.lease, self.said.append)

    def start(self, task: str, *command: str, **more: Any) -> None:
        self.runner.start(order(task, *command, **more))

    def stop(self, task: str, **more: Any) -> None:
        self.runner.stop(stop(task, **more))

    async def started(self, task: str) -> wire.Started:
        return await until(lambda: self._said(wire.Started, task), f"the start of {task}: {self.said}")

    async def ended(self, task: str) -> wire.Ended:
        return await until(lambda: self._said(wire.Ended, task), f"the end of {task}: {self.said}")

    async def run(self, task: str, *command: str, **more: Any) -> wire.Ended:
        """Start to end."""
        self.start(task, *command, **more)
        return await self.ended(task)

    def stream(self, task: str, name: str = "stdout", attempt: int = 1) -> str:
        return (self.spool.path(Key(task, attempt)) / name).read_text()

    async def shim_of(self, task: str) -> int:
        life = await until(lambda: self.spool.life(Key(task, 1)), f"the shim of {task}")
        return life.shim[0]

    async def file(self, path: Path) -> str:
        """What a task wrote there, once it has."""
        return await until(lambda: path.exists() and path.read_text(), f"{path}")

    def _said(self, kind: type, task: str) -> Any:
        return next((one for one in self.said if isinstance(one, kind) and one.task == task), None)

    def kill_all(self) -> None:
        """Nothing of a test may outlive it, whatever failed. Shims end with the last process they watch."""
        for path in self.spool.directories():
            for pid in processes.with_environment(f"HETSCHED_ATTEMPT_DIR={path}".encode()):
                processes.send(pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def open_bench(directory: Path, **more: Any) -> AsyncIterator[Bench]:
    directory.chmod(0o711)
    bench = Bench(directory, **more)
    await bench.runner.open()
    try:
        yield bench
        bench.runner.attempts.check()
    finally:
        await bench.runner.close()
        bench.kill_all()


class Daemon:
    """Speaks `hetsched.wire` as a daemon does, and does what the test says. `heard`: every message, Hellos too."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.heard: list[Any] = []
        self.session = SESSION - 1
        self.epoch = EPOCH
        self.cluster = "c1"
        self.lease_s, self.heartbeat_s = 30.0, 0.1
        self.acknowledges = True
        self.settles = True
        self.refusal = ""
        self.socket: web.WebSocketResponse | None = None
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def open(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/agents/connect", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        (self.data_dir / "agent-token").write_text("secret\n")
        (self.data_dir / "url").write_text(f"http://127.0.0.1:{self._port}\n")

    async def close(self) -> None:
        if self.socket is not None:
            await self.socket.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def send(self, message: Any) -> None:
        assert self.socket is not None
        await self.socket.send_bytes(wire.encode(message))

    async def hear(self, kind: type, **fields: Any) -> Any:
        """The first message of that kind with those fields."""

        def look() -> Any:
            return next(iter(self.all(kind, **fields)), None)

        return await until(look, f"{kind.__name__} {fields}, heard {self.heard}")

    def all(self, kind: type, **fields: Any) -> list[Any]:
        return [
            one
            for one in self.heard
            if isinstance(one, kind) and all(getattr(one, name) == value for name, value in fields.items())
        ]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer secret":
            return web.Response(status=401)
        self.socket = socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            for said in _one_by_one(wire.decode_from_agent(message.data)):
                await self._on(said, socket)
        return socket

    async def _on(self, message: Any, socket: web.WebSocketResponse) -> None:
        if isinstance(message, wire.Hello):
            self.session += 1
            answer = wire.Refused(self.refusal) if self.refusal else self._welcome()
            await socket.send_bytes(wire.encode(answer))
        elif isinstance(message, wire.Heartbeat) and self.acknowledges:
            await socket.send_bytes(wire.encode(wire.HeartbeatSeen(message.sent_ns)))
        elif isinstance(message, wire.Ended) and self.settles:
            await socket.send_bytes(wire.encode(wire.Settled(self.session, message.task, message.attempt)))
        self.heard.append(message)

    def _welcome(self) -> wire.Welcome:
        return wire.Welcome(self.session, self.epoch, self.cluster, self.lease_s, self.heartbeat_s)


def _one_by_one(message: Any) -> Iterator[Any]:
    match message:
        case wire.StartedMany(tasks, attempts):
            yield from (wire.Started(*key) for key in wire.attempts_in(tasks, attempts))
        case wire.SucceededMany(tasks, attempts):
            yield from (wire.Ended(*key, True, 0) for key in wire.attempts_in(tasks, attempts))
        case _:
            yield message


class AgentProcess:
    """`hetsched agent` as a process of its own, to be killed."""

    def __init__(
        self, data_dir: Path, name: str = "n1", env: dict[str, str] | None = None, fake: str = "gpu:A100:4"
    ) -> None:
        program = (
            "import sys, logging; from pathlib import Path; logging.basicConfig(level=20)\n"
            "from hetsched.config import load; from hetsched.agent.main import main\n"
            "sys.exit(main(data_dir=Path(sys.argv[1]), config=load(None, ['agent.allow_root=true']), name=sys.argv[2], fake=sys.argv[3]))"
        )
        self.data_dir = data_dir
        self.log = data_dir / "agent.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(data_dir), name, fake],
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    async def gone(self) -> int:
        """Its exit code."""
        await until(lambda: self._process.poll() is not None, "the agent's end")
        return self._process.returncode

    async def kill(self) -> None:
        self.send(signal.SIGKILL)
        await self.gone()


@contextlib.contextmanager
def agents(data_dir: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Starts agent processes; afterwards they and all that they started are gone."""
    begun: list[AgentProcess] = []

    def begin(**more: Any) -> AgentProcess:
        begun.append(AgentProcess(data_dir, **more))
        return begun[-1]

    try:
        yield begin
    finally:
        for agent in begun:
            if agent._process.poll() is None:
                agent.send(signal.SIGKILL)
                agent._process.wait()
        for directory in data_dir.glob("agent/*/tasks/*"):
            for pid in processes.with_environment(f"HETSCHED_ATTEMPT_DIR={directory}".encode()):
                processes.send(pid, signal.SIGKILL)


def own_cgroup(directory: Path) -> Path | None:
    """One delegated to this process, if there is any."""
    return delegation.tasks_cgroup("bench", directory)
