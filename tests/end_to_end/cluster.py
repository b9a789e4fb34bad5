"""A whole cluster of real processes on this machine: a daemon with its journal server, agents with pretended devices, their tasks.

Promises: everything lives below one directory; whatever a test kills can be started again in its place; at the end no process is left,
tasks and shims included (they are found by the directory in their environment or command line).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from hetsched.client import Client
from tests.end_to_end.wire import Wire

PATIENCE_S = 30.0
PROGRAM = [sys.executable, "-m", "hetsched"]
FAKE = "gpu:A100:4,cpu:16,memory:64Gi"
# The suite's own machine names a daemon perhaps; these must not find it.
FOREIGN = ("HETSCHED_URL", "HETSCHED_TOKEN", "HETSCHED_DATA", "NOTIFY_SOCKET", "CUDA_VISIBLE_DEVICES")


def eventually(what: Callable[[], Any], *, within_s: float = PATIENCE_S, every_s: float = 0.05, why: str = "") -> Any:
    """The first true value of `what`; AssertionError after `within_s`. An exception counts as not yet."""
    deadline = time.monotonic() + within_s
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = what()
            if last:
                return last
        except AssertionError:
            raise
        except Exception as error:
            last = error
        time.sleep(every_s)
    raise AssertionError(f"not within {within_s:g} s: {why or what}; last seen: {last!r}")


class Program:
    """One process of ours, with its log; started, killed and started again."""

    def __init__(self, name: str, directory: Path, arguments: list[str], env: dict[str, str] | None = None) -> None:
        self.name, self.directory = name, directory
        self._arguments, self.env = arguments, env or {}
        self.log_path = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self.process is None or self.process.poll() is not None, f"{self.name} runs already"
        env = {name: value for name, value in os.environ.items() if name not in FOREIGN} | self.env
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, *self._arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=env,
                cwd=self.directory,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and its body is buried; children live on as the kernel lets them."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, *, within_s: float = PATIENCE_S) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(within_s)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self, lines: int = 30) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Daemon(Program):
    """`hetsched serve` on a port of its own that it keeps over restarts."""

    def __init__(self, directory: Path, sets: list[str], env: dict[str, str] | None = None) -> None:
        self.data = directory / "data"
        self._sets = sets
        self._port = 0
        super().__init__("daemon", directory, [], env)

    def begin(self) -> None:
        """Start it and wait for nothing."""
        self._arguments = ["serve", "--data", str(self.data), "--listen", f"127.0.0.1:{self._port}"]
        self._arguments += [part for text in self._sets for part in ("--set", text)]
        super().start()

    def start(self) -> None:
        said = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.begin()
        self._port = int(self._listening(said).rsplit(":", 1)[1])

    def _listening(self, said: int) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for line in self.log_path.read_bytes()[said:].decode(errors="replace").splitlines():
                if line.startswith("listening on "):
                    return line.removeprefix("listening on ").strip()
            if not self.alive():
                break
            time.sleep(0.02)
        raise AssertionError(f"the daemon does not listen:\n{self.log()}")

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    @property
    def agent_token(self) -> str:
        return (self.data / "agent-token").read_text().strip()

    def journal_server(self) -> psutil.Process | None:
        """The embedded server's process, if it runs."""
        for child in psutil.Process(self.pid).children():
            if "valkey" in child.name() or "redis" in child.name():
                return child
        return None


class Agent(Program):
    """`hetsched agent` with pretended devices and a data directory of its own."""

    def __init__(
        self, directory: Path, name: str, daemon: Daemon, fake: str = FAKE, more: Sequence[str] = (), url: str = ""
    ) -> None:
        self.data = directory / name
        arguments = [
            "agent",
            "--server",
            url or daemon.url,
            "--name",
            name,
            "--data",
            str(self.data),
            "--fake",
            fake,
            *more,
        ]
        super().__init__(name, directory, arguments, {"HETSCHED_TOKEN": daemon.agent_token})


class Cluster:
    """Daemon, agents and a client that waits out restarts. `wires`: one an agent, if there are to be some that can be held."""

    def __init__(
        self, directory: Path, *, agents: int, fake: str, sets: list[str], wired: bool, env: dict[str, str]
    ) -> None:
        self.directory = directory
        self.daemon = Daemon(directory, sets, env)
        self.daemon.start()
        self.wires = [Wire(lambda: self.daemon.port) for _ in range(agents)] if wired else []
        urls = [f"http://127.0.0.1:{wire.port}" for wire in self.wires] or [self.daemon.url] * agents
        self.agents = [Agent(directory, f"n{number}", self.daemon, fake, url=url) for number, url in enumerate(urls)]
        for agent in self.agents:
            agent.start()
        self.client = Client(self.daemon.url, self.daemon.token, patience_s=60, reach_s=60)
        self.connected(agents)

    def connected(self, agents: int) -> None:
        """Waits until so many agents are connected."""
        eventually(lambda: self.client.cluster()["agents_connected"] >= agents, why=f"{agents} agents connected")

    def submit(self, *command: str, **fields: Any) -> str:
        """One task, durable; its id."""
        resources = fields.pop("resources", {"cpu": 1})
        body = {**({"command": list(command)} if command else {}), "resources": resources, **fields}
        return str(self.client.submit(body)["id"])

    def state(self, task: str) -> str:
        return str(self.client.task(task)["state"])

    def until(self, task: str, *states: str, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The task once it is in one of the states."""

        def arrived() -> dict[str, Any] | None:
            found = self.client.task(task)
            return found if found["state"] in states else None

        try:
            found: dict[str, Any] = eventually(arrived, within_s=within_s, why=f"{task} is {' or '.join(states)}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.client.explain(task)}\n{self.logs()}") from None
        return found

    def output(self, task: str, stream: str = "stdout") -> str:
        return b"".join(self.client.logs(task, stream=stream)).decode()

    def logs(self) -> str:
        """The last lines of everybody, for a failed assertion."""
        return "\n".join(f"--- {program.name}\n{program.log()}" for program in (self.daemon, *self.agents))

    def close(self) -> None:
        """Ends everything, tasks and shims included."""
        for wire in self.wires:
            wire.close()
        for program in (*self.agents, self.daemon):
            if program.alive():
                program.process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
        for program in (*self.agents, self.daemon):
            try:
                program.stop(within_s=10)
            except subprocess.TimeoutExpired:
                program.kill()
        for pid in leftovers(self.directory):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def leftovers(directory: Path) -> Iterator[int]:
    """Processes whose command line, working directory or environment names the directory."""
    needle = str(directory)
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid():
                continue
            named = [*process.cmdline(), process.cwd(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(text and text.startswith(needle) for text in named):
            yield process.pid


@contextmanager
def running(
    directory: Path,
    *,
    agents: int = 1,
    fake: str = FAKE,
    sets: list[str] | None = None,
    wired: bool = False,
    env: dict[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster for the length of a block. `wired`: agents reach the daemon through wires that can be held; `env`: the daemon's besides."""
    cluster = Cluster(directory, agents=agents, fake=fake, sets=sets or [], wired=wired, env=env or {})
    try:
        yield cluster
    finally:
        cluster.close()
