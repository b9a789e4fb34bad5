"""Every fault that a storm can have: what it does to a real cluster, and how that is undone. Each is one call that returns when it is over.

Kills are kill -9; a freeze is SIGSTOP and SIGCONT; a cut wire holds what is sent (or one direction of it) and lets it come late or never;
disk and clock are told to misbehave (disk.c, clock.c). Long ones are longer than the lease, so that attempts are lost and begin again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.cluster import Cluster, Program, eventually

LEASE_S = 5.0
SHORT_S, LONG_S = (0.1, 3.0), (LEASE_S + 1, LEASE_S + 4)
SHIM = "hs-shim"
WHO = ("daemon", "server")
MOST_RESTARTS = 100


class Disk:
    """What the daemon's and its server's disk does: nothing, or what `mood` says."""

    def __init__(self, directory: Path) -> None:
        library = compiled("disk.c", directory)
        self._told = directory / "disk"
        self._synced = directory / "synced"
        self._synced.mkdir()
        self._root = directory / "data"
        self.env = {
            "LD_PRELOAD": str(library),
            "HETSCHED_DISK": str(self._told),
            "HETSCHED_DISK_ROOT": str(self._root),
            "HETSCHED_DISK_SYNCED": str(self._synced),
        }

    @contextlib.contextmanager
    def mood(self, mood: str) -> Iterator[None]:
        """`full`, `broken`, `slow MILLISECONDS`."""
        self._told.write_text(mood)
        try:
            yield
        finally:
            self._told.unlink()

    def lose_power(self, chance: random.Random) -> int:
        """Of every file of the journal server some of what was not synced is gone; how many bytes. Nobody may have them open."""
        lost = 0
        for path in (self._root / "valkey").rglob("*.aof"):
            about = path.stat()
            with contextlib.suppress(FileNotFoundError):
                surely = int((self._synced / str(about.st_ino)).read_text())
                keep = chance.randint(min(surely, about.st_size), about.st_size)
                os.truncate(path, keep)
                lost += about.st_size - keep
        return lost


class Clocks:
    """The wall clocks of the daemon and of its journal server, by how much they are wrong."""

    def __init__(self, directory: Path) -> None:
        library = compiled("clock.c", directory)
        self._offsets = directory / "clock"
        self._offsets.mkdir()
        for who in WHO:
            self.set(who, 0)
        self.env = {"LD_PRELOAD": str(library), "HETSCHED_CLOCK": str(self._offsets)}

    def set(self, who: str, wrong_s: float) -> None:
        """In place: those who look at it have it mapped."""
        handle = os.open(self._offsets / who, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(handle, round(wrong_s * 1e9).to_bytes(8, "little", signed=True), 0)
        os.close(handle)


def compiled(source: str, directory: Path) -> Path:
    """A library to preload; the test is skipped where there is no compiler."""
    library = directory / f"{source}.so"
    done = subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).with_name(source), "-ldl"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip(f"no C compiler for {source}: {done.stderr.strip()[:200]}")
    return library


class Weather:
    """The faults, on one cluster. `restarts`: of a daemon that ended by itself, by its exit code; a service manager would do them."""

    def __init__(
        self,
        cluster: Cluster,
        disk: Disk,
        clocks: Clocks,
        chance: random.Random,
        memory: Callable[[int], None] = lambda limit_bytes: None,
    ) -> None:
        """`memory` sets what the store's server may hold at most, 0 = as much as it likes."""
        self.cluster, self.disk, self.clocks, self.random = cluster, disk, clocks, chance
        self.memory = memory
        self.restarts: dict[int, int] = {}
        self.ready_s: list[float] = []  # from each start of the daemon until it said that it listens
        self.unsynced_bytes = 0  # that power cuts took

    def strike(self, fault: str) -> None:
        """One fault, from its beginning to its end."""
        self.keep()
        FAULTS[fault](self)
        self.keep()

    def keep(self) -> None:
        """What a service manager does: a daemon that ended by itself is started again."""
        daemon = self.cluster.daemon
        while not daemon.alive():
            assert daemon.process is not None
            code = daemon.process.returncode
            self.restarts[code] = self.restarts.get(code, 0) + 1
            assert sum(self.restarts.values()) < MOST_RESTARTS, (
                f"the daemon ends again and again: {self.restarts}\n{daemon.log()}"
            )
            with contextlib.suppress(AssertionError):
                daemon.start()

    def wait(self, length_s: float) -> None:
        """Nothing happens for so long, but that the daemon is kept."""
        until_s = time.monotonic() + length_s
        while (left_s := until_s - time.monotonic()) > 0:
            self.keep()
            time.sleep(min(left_s, 0.1))

    # ---- kills

    def kill_daemon(self) -> None:
        """Now and then once more while it starts."""
        if self.random.random() < 0.2:
            self.cluster.daemon.kill()
            self.cluster.daemon.begin()
            self._pause(0, 1)
        self._kill(self.cluster.daemon)

    def kill_agent(self) -> None:
        self._kill(self._agent())

    def kill_server(self) -> None:
        self._server().kill()

    def kill_daemon_and_server(self) -> None:
        server = self._server()
        self.cluster.daemon.kill()
        with contextlib.suppress(psutil.NoSuchProcess):
            server.kill()
        self._pause(0, 0.5)
        self._start(self.cluster.daemon)

    def cut_power(self) -> None:
        """Of the daemon's machine, most often while the disk is slow to sync."""
        server = self._server()
        with self.disk.mood(f"slow {self.random.choice((1, 60, 300))}"):
            self._pause(0, 0.6)
            self.cluster.daemon.kill()
            with contextlib.suppress(psutil.NoSuchProcess):
                server.kill()
                server.wait(10)
        self.unsynced_bytes += self.disk.lose_power(self.random)
        self._start(self.cluster.daemon)

    def kill_shim(self) -> None:
        """Of a task that runs, if one does."""
        shims = [process for process in psutil.process_iter(["name", "cmdline"]) if self._is_shim(process)]
        self.random.shuffle(shims)
        for shim in shims:
            with contextlib.suppress(psutil.NoSuchProcess):
                if shim.children():
                    shim.kill()
                    return

    def _is_shim(self, process: psutil.Process) -> bool:
        directory = str(self.cluster.directory)
        return process.info["name"] == SHIM and any(directory in word for word in process.info["cmdline"] or ())

    def _kill(self, program: Program) -> None:
        program.kill()
        self._pause(0, 0.5)
        self._start(program)

    def _start(self, program: Program) -> None:
        began_s = time.monotonic()
        program.start()
        if program is self.cluster.daemon:
            self.ready_s.append(time.monotonic() - began_s)

    # ---- freezes

    def freeze_daemon(self) -> None:
        self._freeze(self.cluster.daemon.pid)

    def freeze_server(self) -> None:
        self._freeze(self._server().pid)

    def freeze_agent(self) -> None:
        self._freeze(self._agent().pid)

    def freeze_agent_long(self) -> None:
        self._freeze(self._agent().pid, LONG_S)

    def freeze_daemon_long(self) -> None:
        self._freeze(self.cluster.daemon.pid, LONG_S)

    def _freeze(self, pid: int, length_s: tuple[float, float] = SHORT_S) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                self._pause(*length_s)
            finally:
                os.kill(pid, signal.SIGCONT)

    # ---- wires

    def cut(self) -> None:
        self._cut(("up", "down"))

    def cut_towards_daemon(self) -> None:
        self._cut(("up",))

    def cut_towards_agent(self) -> None:
        self._cut(("down",))

    def cut_long(self) -> None:
        self._cut(("up", "down"), LONG_S)

    def _cut(self, directions: tuple[str, ...], length_s: tuple[float, float] = SHORT_S) -> None:
        wire = self.random.choice(self.cluster.wires)
        wire.hold(*directions)
        try:
            self._pause(*length_s)
        finally:
            wire.heal(late=self.random.random() < 0.5)

    # ---- the disk

    def fill_disk(self) -> None:
        with self.disk.mood("full"):
            self._pause(0.2, 3)

    def break_disk(self) -> None:
        with self.disk.mood("broken"):
            self._pause(0.2, 2)

    def slow_disk(self) -> None:
        with self.disk.mood(f"slow {self.random.randint(50, 400)}"):
            self._pause(1, 4)

    # ---- clocks and memory

    def jump_clock(self) -> None:
        """Of the daemon, of its server or of both, and back; as often as not somebody dies meanwhile."""
        for who in self.random.choice((WHO, WHO[:1], WHO[1:])):
            self.clocks.set(who, self.random.choice((-1, 1)) * self.random.choice((2, 3600, 86_400)))
        self._pause(0.1, 1.5)
        self.random.choice((self.kill_daemon, self.kill_server, lambda: None, lambda: None))()
        for who in WHO:
            self.clocks.set(who, 0)

    def fill_memory(self) -> None:
        """The store's server has not a byte left, or a little more than what is asked to be kept free."""
        self.memory(self.random.choice((1, 3 << 20)))
        try:
            self._pause(0.2, 3)
        finally:
            self.memory(0)

    # ----

    def _agent(self) -> Program:
        return self.random.choice(self.cluster.agents)

    def _server(self) -> psutil.Process:
        found: psutil.Process = eventually(self.cluster.daemon.journal_server, why="a journal server")
        return found

    def _pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self.random.uniform(least_s, most_s))


FAULTS: dict[str, Callable[[Weather], None]] = {
    name: method
    for name, method in vars(Weather).items()
    if name.split("_")[0] in ("kill", "freeze", "cut", "fill", "break", "slow", "jump")
}
