"""Machines that run tasks: shims and processes without the operating system, and the table of what really lives.

A shim here does what `hetsched.agent.shim` does, over the same files: claims the attempt, begins the task, obeys `stop`, the lease and
the time limit, writes the end into its `life` when all of it is dead. It outlives its agent. Killed, it takes the task's main process
along, and the spawner ends what that had forked; where the spawner was killed too, that lives on until somebody hunts it. `Truth` knows
every process, and tells the auditor.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hetsched.agent.attempts import Key
from hetsched.agent.hunt import Marks
from hetsched.agent.measuring import Total
from hetsched.agent.records import Record
from hetsched.agent.shim import lease
from hetsched.agent.spawner import Ended, News, Started, Unclear
from hetsched.agent.spool import key_of
from tests.simulation.clockwork import CURRENT, Bell, Machine, Process
from tests.simulation.pace import Pace

BIRTH_S = 0.003
"""From an order to a shim until that is there."""


class Run:
    """A task's process. `devices`: (id, share in thousandths). `ends_s`: true time of its own end, `None` = when told."""

    def __init__(self, machine: Node, key: Key, devices: tuple[tuple[str, int], ...], pid: int, forked: bool) -> None:
        self.machine = machine
        self.key = key
        self.devices = devices
        self.pid = pid
        self.forked = forked
        self.alive = True
        self.orphan = False  # its shim is dead

    def counts(self, now_s: float) -> bool:
        """Whether anybody is there who could have ended it: not on a machine that stands still, nor where shim and spawner were killed and the
        agent, who is to hunt what they leave, is dead or frozen too (or has just come back)."""
        return not (self.machine.stands_still(now_s) or (self.orphan and self.machine.is_unwatched(now_s)))

    def __repr__(self) -> str:
        return f"{self.key.task}#{self.key.attempt} on {self.machine.name}"


class Truth:
    """All task processes of all machines."""

    def __init__(self, begun: Callable[[Run, float], None]) -> None:
        self.runs: dict[int, Run] = {}
        self.ever: set[Key] = set()
        self.own_ends: dict[Key, int] = {}  # of those that ended by themselves, and it is on disk
        self.pids = itertools.count(100)  # no two processes share one, on whichever machine
        self._begun = begun

    def begin(self, run: Run, now_s: float) -> None:
        self._begun(run, now_s)
        self.runs[run.pid] = run
        self.ever.add(run.key)

    def end(self, run: Run) -> None:
        run.alive = False
        self.runs.pop(run.pid, None)


class Node(Machine):
    """A machine with devices. `devices_of`: what an attempt was given, noted when its agent was told."""

    def __init__(self, name: str, truth: Truth, rate: float, pace: Pace) -> None:
        super().__init__(name, rate)
        self.truth = truth
        self.pace = pace
        self.boots = 1
        self.shims: dict[int, Shim] = {}
        self.devices_of: dict[Key, tuple[tuple[str, int], ...]] = {}
        self.sick: dict[str, str] = {}  # device → its health, where that is not good
        self.disk_is_full = False
        self.birth_s = BIRTH_S
        self.dark_since_s = 0.0
        self.agent: Process | None = None
        self.held: Callable[[], list[Key]] = list  # what its agent takes to be alive
        self.still_until_s = float("-inf")  # true time

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def stands_still(self, now_s: float) -> bool:
        """Or has just woken up: what runs here does nothing, or is about to be ended, and no lease can change that."""
        return now_s < self.still_until_s + self.pace.waking_s

    def stand_still(self, until_s: float) -> None:
        """Nothing here does anything until then; if told so again meanwhile, until the later moment."""
        self.still_until_s = max(self.still_until_s, until_s)
        for process in self.processes:
            process.freeze()

    def wake(self, now_s: float) -> None:
        """Unless it has been told to stand still for longer."""
        if now_s >= self.still_until_s:
            for process in [process for process in self.processes if process.frozen]:
                process.thaw()

    def is_unwatched(self, now_s: float) -> bool:
        """No agent looks after what runs here, or it has had no time to."""
        agent = self.agent
        return agent is None or not agent.alive or agent.frozen or now_s < agent.began_s + self.pace.waking_s

    def lose_power(self) -> None:
        """Nothing lives here any more; the disk stays."""
        for run in [run for run in self.truth.runs.values() if run.machine is self]:
            self.truth.end(run)
        for process in list(self.processes):
            process.kill()
        self.shims.clear()
        self.boots += 1
        self.still_until_s = float("-inf")


class Shim:
    """One attempt's shim. `gone` is called when it is no more, however that happened."""

    def __init__(self, node: Node, tasks: Path, number: int, record: Record, tell: Callable[[News], None]) -> None:
        self.node = node
        self.directory = tasks / record.name
        self.pid = next(node.truth.pids)
        self.gone: list[Callable[[], None]] = []
        self.run_of_task: Run | None = None
        self.is_alone = False  # its spawner dies with it
        self._number = number
        self._record = record
        self._tell = tell
        self._lease = os.open(tasks.parent / "lease", os.O_RDONLY)
        process = CURRENT.get()
        assert process is not None
        self.process = Process(process.loop, node, f"shim of {record.name}")
        self.process.at_death.append(self._died)
        self._nudged = Bell(process.loop)
        node.shims[self.pid] = self
        self.process.run(self._live())

    def nudge(self) -> None:
        if self.process.alive:
            self._nudged.ring()

    async def _live(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            await self._work()
        self.process.loop.call_outside(self.process.kill)

    async def _work(self) -> None:
        if self.node.disk_is_full:
            self._tell(Ended(self._number, False, None, "cannot_start: No space left on device", True))
            return
        try:
            self.directory.mkdir()
        except FileExistsError:
            self._tell(Unclear(self._number))
            return
        life = self.directory / "life"
        life.write_text(f"{self.directory.name} {self.pid} 1\n")
        if self._is_outdated():
            life.unlink()
            self.directory.rmdir()
            self._tell(Unclear(self._number))
            return
        await asyncio.sleep(0.002)
        end = await self._run(life)
        code = -1 if end.exit_code is None else end.exit_code
        while self.node.disk_is_full:
            await asyncio.sleep(1.0)
        with life.open("a") as file:
            file.write(f"ended {end.succeeded:d} {code} 0 0.0 {end.reason}\n")
        if end.exit_code is not None and (key := key_of(self._record.name)) is not None:
            self.node.truth.own_ends[key] = end.exit_code
        self._tell(end)

    async def _run(self, life: Path) -> Ended:
        loop, record = self.process.loop, self._record
        why = self._why(None)
        if why is not None or self._is_outdated():
            return Ended(self._number, False, None, why[0] if why else "lease", False)
        _, seconds, code, stubborn, forks = record.argv
        key = key_of(record.name)
        assert key is not None
        run = Run(self.node, key, self.node.devices_of.get(key, ()), next(self.node.truth.pids), forks == "forks")
        self.run_of_task = run
        self.node.truth.begin(run, loop.true_s)
        if not self.node.disk_is_full:
            with life.open("a") as file:
                file.write(f"started {run.pid} 0.0\n")
        self._tell(Started(self._number, (self.pid, 1), run.pid, 0.0))
        begun_s = loop.time()
        limit_s = None if record.time_limit_s is None else begun_s + record.time_limit_s
        end_s, reason, kill_s = begun_s + float(seconds), "", None
        while True:
            now_s = loop.time()
            if now_s >= min(end_s, kill_s or end_s):
                break
            why = self._why(limit_s)
            if why is not None and kill_s is None:
                reason = why[0]
                kill_s = now_s + (why[1] if stubborn == "stubborn" else min(why[1], 0.05))
            wakes = [end_s, now_s + self.node.pace.look_s]
            wakes += [lease.read_deadline(self._lease) / 1e9, limit_s or end_s] if kill_s is None else [kill_s]
            wake_s = min(wakes)
            await self._nudged.wait(max(0.001, wake_s - now_s))
        self.node.truth.end(run)
        if reason:
            return Ended(self._number, False, None, reason, False)
        return Ended(self._number, code == "0", int(code), "" if code == "0" else f"exit {code}", False)

    def _is_outdated(self) -> bool:
        return int.from_bytes(os.pread(self._lease, 8, 16), "little") != self._record.generation

    def _why(self, limit_s: float | None) -> tuple[str, float] | None:
        with contextlib.suppress(FileNotFoundError):
            grace_ms, reason = (self.directory / "stop").read_text().split(" ", 1)
            return reason, int(grace_ms) / 1000
        if lease.now_ns() >= lease.read_deadline(self._lease):
            return "lease", self._record.grace_s
        if limit_s is not None and self.process.loop.time() >= limit_s:
            return "time_limit", self._record.grace_s
        return None

    def _died(self) -> None:
        os.close(self._lease)
        self.node.shims.pop(self.pid, None)
        run = self.run_of_task
        if run is not None:
            run.orphan = True
        if run is not None and run.alive and not (run.forked and self.is_alone):
            self.node.truth.end(run)
        for call in self.gone:
            call()
        self._tell(Unclear(self._number))  # nothing, to who has heard the end


# ---------------------------------------------------------------------- in the place of the agent's hands


def _node() -> Node:
    process = CURRENT.get()
    assert process is not None and isinstance(process.machine, Node)
    return process.machine


class Spawner:
    """Stands for `hetsched.agent.spawner.Spawner`: an order that was given is obeyed, whatever becomes of the agent."""

    def __init__(
        self,
        tasks: Path,
        lease: Path,
        errors: Path,
        descriptors: tuple[int, int],
        heard: Callable[[list[News]], None],
    ) -> None:
        self.errors = errors
        self.pid = 1
        self._tasks = tasks
        self._heard = heard
        process = CURRENT.get()
        assert process is not None
        self._agent = process
        self._node = _node()
        self._closed = False

    def ask(self, order: int, record: Record) -> None:
        boots, node = self._node.boots, self._node

        def begin() -> None:
            if node.boots == boots:
                helper = Process(self._agent.loop, node, "spawner")
                helper.context.run(Shim, node, self._tasks, order, record, self._told)
                helper.kill()

        self._agent.loop.call_outside(begin, after_s=node.birth_s)

    def known(self, order: int) -> None:
        pass

    def close(self) -> None:
        self._closed = True

    def _told(self, news: News) -> None:
        if not self._closed and self._agent.alive:
            self._agent.loop.call_soon(self._heard, [news], context=self._agent.context.copy())


class Shims:
    """Stands for `hetsched.agent.watching.Shims`."""

    def __init__(self, gone: Callable[[Key], None]) -> None:
        self._gone = gone
        self._watched: dict[Key, Shim] = {}
        process = CURRENT.get()
        assert process is not None
        self._agent = process

    def __contains__(self, key: Key) -> bool:
        return key in self._watched

    def watch(self, key: Key, pid: int, started: int) -> bool:
        if key in self._watched:
            return True
        shim = _node().shims.get(pid)
        if shim is None or not shim.process.alive:
            return False
        self._watched[key] = shim
        shim.gone.append(lambda: self._ended(key))
        return True

    def nudge(self, key: Key) -> None:
        shim = self._watched.get(key)
        if shim is not None:
            shim.nudge()

    def release(self, key: Key) -> None:
        self._watched.pop(key, None)

    def close(self) -> None:
        self._watched.clear()

    def _ended(self, key: Key) -> None:
        if self._agent.alive:
            self._agent.loop.call_soon(self._tell, key, context=self._agent.context.copy())

    def _tell(self, key: Key) -> None:
        if self._watched.pop(key, None) is not None:
            self._gone(key)


def survivors(marks: Marks) -> list[int]:
    """Stands for `hunt.survivors`."""
    node = _node()
    return sorted(run.pid for run in node.truth.runs.values() if run.machine is node and run.key == marks.key)


def _send(pid: int, number: int) -> None:
    run = _node().truth.runs.get(pid)
    if run is not None:
        run.machine.truth.end(run)


def disk_of(write: Callable[..., None]) -> Callable[..., None]:
    """A function that writes, on a disk that may be full."""

    def guarded(*args: Any, **options: Any) -> None:
        process = CURRENT.get()
        if process is not None and isinstance(process.machine, Node) and process.machine.disk_is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*args, **options)

    return guarded


def measure(pids: Mapping[Key, int], cgroup: Path | None) -> dict[Key, Total]:
    """Stands for `measuring.measure`: a busy core and a GiB for each that lives."""
    process = CURRENT.get()
    assert process is not None
    now_ns = round(process.loop.time() * 1e9)
    return {key: Total(now_ns, 1 << 30) for key, pid in pids.items() if pid in _node().truth.runs}


processes = SimpleNamespace(send=_send, boot_id=lambda: _node().boot_id)
