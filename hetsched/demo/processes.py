"""The programs of the demo: one daemon with its embedded store, and agents that pretend to have devices. All real processes.

Promise: whatever this started, and whatever that started in turn, is gone after `close`: found by the demo's directory, which
stands in its environment or into which it writes, and ended by process id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from hetsched.client import Client

# Short, so that the demo can show within a minute what takes a quarter of one in earnest.
_SETTINGS = ("agent.lease=6", "agent.heartbeat=1", "agent.pull_every=5")
_START_S = 30.0
_MARK = "HETSCHED_DEMO"


class Profile(NamedTuple):
    """A node to pretend."""

    name: str
    fake: str


PROFILES = (
    Profile("a100", "gpu:A100:8:40Gi,cpu:64,memory:512Gi"),
    Profile("h100", "gpu:H100:8:80Gi,cpu:64,memory:512Gi"),
    Profile("tpu", "tpu:v5e:16,gpu:L4:4:24Gi,cpu:64,memory:256Gi"),
    Profile("cpu", "cpu:96,memory:256Gi"),
)


class DemoFault(Exception):
    """Something that the demo started does not do what it must."""


class Processes:
    """`directory`: made and emptied by the caller."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "d"
        self.url = ""
        self._daemon: subprocess.Popen[str] | None = None
        self._agents: dict[str, subprocess.Popen[str]] = {}
        (directory / "logs").mkdir(parents=True, exist_ok=True)

    def start_daemon(self) -> None:
        """Returns once it listens; the second time on the same port."""
        listen = self.url.removeprefix("http://") or "127.0.0.1:0"
        words = ["serve", "--data", str(self.data), "--listen", listen]
        for setting in _SETTINGS:
            words += ["--set", setting]
        self._daemon = self._start("daemon", words, stdout=subprocess.PIPE)
        self.url = self._listening(self._daemon)

    def _listening(self, daemon: subprocess.Popen[str]) -> str:
        assert daemon.stdout is not None
        for line in daemon.stdout:
            if line.startswith("listening on "):
                return line.removeprefix("listening on ").strip()
        raise DemoFault(f"the daemon ended with code {daemon.wait()} before it listened:\n{self.last_lines('daemon')}")

    def client(self) -> Client:
        """Patient enough to outlive a restart of the daemon."""
        token = (self.data / "token").read_text().strip()
        return Client(self.url, token, patience_s=_START_S, reach_s=_START_S, timeout_s=_START_S)

    def impatient_client(self) -> Client:
        """For looking: no answer is an answer too."""
        token = (self.data / "token").read_text().strip()
        return Client(self.url, token, patience_s=0.0, reach_s=0.0, timeout_s=5.0)

    def start_agent(self, profile: Profile) -> None:
        """Returns at once; the node appears when it has joined."""
        words = ["agent", "--name", profile.name, "--data", str(self.data), "--fake", profile.fake]
        words += ["--set", "agent.allow_root=true"]  # whoever runs the demo runs its tasks, which are the demo's own
        self._agents[profile.name] = self._start(f"agent-{profile.name}", words)

    def kill_daemon(self) -> int:
        """-9; its process id."""
        assert self._daemon is not None
        return _kill(self._daemon)

    def kill_agent(self, name: str) -> int:
        """-9; its process id. What it started lives on."""
        return _kill(self._agents.pop(name))

    def check(self) -> None:
        """Raises DemoFault if something ended that nobody has killed."""
        for name, program in [("daemon", self._daemon), *((f"agent-{n}", p) for n, p in self._agents.items())]:
            if program is not None and program.poll() not in (None, -signal.SIGKILL):
                raise DemoFault(f"{name} ended with code {program.returncode}:\n{self.last_lines(name)}")

    def close(self) -> None:
        """Ends everything: first by asking, then whatever is left."""
        programs = [*self._agents.values(), *([self._daemon] if self._daemon else [])]
        for program in programs:
            if program.poll() is None:
                program.terminate()
        deadline = time.monotonic() + 5
        for program in programs:
            try:
                program.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
        self._kill_strays()

    def _kill_strays(self) -> None:
        strays = [process for process in psutil.process_iter() if self._ours(process)]
        for process in strays:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(strays, timeout=3)

    def _ours(self, process: psutil.Process) -> bool:
        """It carries our mark, or writes into our directory (shims, tasks and the store have environments of their own)."""
        if process.pid == os.getpid():
            return False
        mark = str(self.directory)
        try:
            if process.environ().get(_MARK) == mark:
                return True
            return any(f.path.startswith(mark) and f.mode != "r" for f in process.open_files())
        except (psutil.Error, OSError):
            return False

    def last_lines(self, name: str, count: int = 15) -> str:
        """Of what a program said."""
        try:
            text = (self.directory / "logs" / f"{name}.log").read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(f"  {line}" for line in text.splitlines()[-count:])

    def _start(self, name: str, words: list[str], *, stdout: int | None = None) -> subprocess.Popen[str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HETSCHED_")}
        with open(self.directory / "logs" / f"{name}.log", "a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "hetsched", *words],
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                env={**clean, _MARK: str(self.directory)},
                start_new_session=True,  # Ctrl-C is for the demo, which then ends them in order
                text=True,
            )


def _kill(program: subprocess.Popen[str]) -> int:
    program.kill()
    program.wait()
    return program.pid
