"""Machines that run tasks: shims and processes without the operating system, and the table of what really lives.

A shim here does what `hetsched.agent.shim` does, over the same files: claims the attempt, begins the task, obeys stop.json, the lease and
the time limit, writes exit.json when all of it is dead. It outlives its agent. Killed, it takes the task's main process along; what that
had forked lives on until somebody hunts it. `Truth` knows every process, and tells the auditor.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hetsched.agent.attempts import Key
from hetsched.agent.shim import files, lease
from hetsched.agent.spool import Found
from tests.simulation.clockwork import CURRENT, Machine, Process

LOOK_S = 5.0


class Run:
    """A task's process. `devices`: (id, share in thousandths). `ends_s`: true time of its own end, `None` = when told."""

    def __init__(self, machine: Node, key: Key, devices: tuple[tuple[str, int], ...], pid: int, forked: bool) -> None:
        self.machine = machine
        self.key = key
        self.devices = devices
        self.pid = pid
        self.forked = forked
        self.alive = True

    def __repr__(self) -> str:
        return f"{self.key.task}#{self.key.attempt} on {self.machine.name}"


class Truth:
    """All task processes of all machines."""

    def __init__(self, begun: Callable[[Run, float], None]) -> None:
        self.runs: dict[int, Run] = {}
        self.ever: set[Key] = set()
        self.pids = itertools.count(100)  # no two processes share one, on whichever machine
        self._begun = begun

    def begin(self, run: Run, now_s: float) -> None:
        self._begun(run, now_s)
        self.runs[run.pid] = run
        self.ever.add(run.key)

    def end(self, run: Run) -> None:
        run.alive = False
        self.runs.pop(run.pid, None)


WAKING_S = LOOK_S + 10.0 + 1.0
"""After standing still: the shims' next look, the longest grace of any task here, and a little."""


class Node(Machine):
    """A machine with devices. `devices_of`: what an attempt was given, noted when its agent was told."""

    def __init__(self, name: str, truth: Truth, rate: float) -> None:
        super().__init__(name, rate)
        self.truth = truth
        self.boots = 1
        self.shims: dict[int, Shim] = {}
        self.devices_of: dict[Key, tuple[tuple[str, int], ...]] = {}
        self.woke_s = float("-inf")  # true time; inf: it stands still now

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def stands_still(self, now_s: float) -> bool:
        """Or has just woken up: what runs here does nothing, or is about to be ended, and no lease can change that."""
        return now_s < self.woke_s + WAKING_S

    def lose_power(self) -> None:
        """Nothing lives here any more; the disk stays."""
        for run in [run for run in self.truth.runs.values() if run.machine is self]:
            self.truth.end(run)
        for process in list(self.processes):
            process.kill()
        self.shims.clear()
        self.boots += 1


class Shim:
    """One attempt's shim. `gone` is called when it is no more, however that happened."""

    def __init__(self, node: Node, directory: Path, tell: Callable[[dict[str, Any]], None]) -> None:
        self.node = node
        self.directory = directory
        self.pid = next(node.truth.pids)
        self.gone: list[Callable[[], None]] = []
        self.run_of_task: Run | None = None
        self._tell = tell
        process = CURRENT.get()
        assert process is not None
        self.process = Process(process.loop, node, f"shim of {directory.name}")
        self.process.at_death.append(self._died)
        self._nudged = asyncio.Event()
        node.shims[self.pid] = self
        self.process.run(self._live())

    def nudge(self) -> None:
        if self.process.alive:
            self._nudged.set()

    async def _live(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            handle = files.open_directory(str(self.directory))
            try:
                await self._work(handle)
            finally:
                os.close(handle)
        self.process.loop.call_outside(self.process.kill)

    async def _work(self, handle: int) -> None:
        name = self.directory.name
        record = files.read_whole(handle, "attempt.json")
        assert record is not None, "the agent writes the record before it gives the order"
        if not files.create_whole(handle, "shim.pid", {"pid": self.pid, "start_time": 1, "name": name}):
            self._tell({"key": name, "event": "claimed"})
            return
        await asyncio.sleep(0.002)
        outcome = await self._run(handle, record)
        while True:
            try:
                files.write_whole(handle, "exit.json", {**outcome, "ended_at": 0.0}, durable=True)
                break
            except FileNotFoundError:
                return
            except OSError:
                await asyncio.sleep(1.0)
        self._tell({"key": name, "event": "ended"})

    async def _run(self, handle: int, record: dict[str, Any]) -> dict[str, Any]:
        loop, lease_file = self.process.loop, os.open(record["lease"], os.O_RDONLY)
        try:
            why = self._why(handle, record, lease_file, None)
            if why is not None:
                return {"succeeded": False, "exit_code": None, "reason": why[0]}
            _, seconds, code, stubborn, forks = record["argv"]
            key = Key(record["task"], record["attempt"])
            run = Run(self.node, key, self.node.devices_of.get(key, ()), next(self.node.truth.pids), forks == "forks")
            self.run_of_task = run
            self.node.truth.begin(run, loop.true_s)
            content = {"pid": run.pid, "start_time": 1, "started_at": 0.0}
            files.write_whole(handle, "started.json", content, durable=False)
            self._tell(
                {
                    "key": self.directory.name,
                    "event": "started",
                    "shim": self.pid,
                    "shim_start_time": 1,
                    "pid": run.pid,
                    "at": 0.0,
                }
            )
            begun_s = loop.time()
            limit_s = None if record["time_limit_s"] is None else begun_s + record["time_limit_s"]
            end_s, reason, kill_s = begun_s + float(seconds), "", None
            while True:
                now_s = loop.time()
                if now_s >= min(end_s, kill_s or end_s):
                    break
                why = self._why(handle, record, lease_file, limit_s)
                if why is not None and kill_s is None:
                    reason = why[0]
                    kill_s = now_s + (why[1] if stubborn == "stubborn" else min(why[1], 0.05))
                wakes = [end_s, now_s + LOOK_S]
                wakes += [lease.read_deadline(lease_file) / 1e9, limit_s or end_s] if kill_s is None else [kill_s]
                wake_s = min(wakes)
                self._nudged.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.001, wake_s - now_s)):
                        await self._nudged.wait()
            self.node.truth.end(run)
            if reason:
                return {"succeeded": False, "exit_code": None, "reason": reason}
            return {"succeeded": code == "0", "exit_code": int(code), "reason": "" if code == "0" else f"exit {code}"}
        finally:
            os.close(lease_file)

    def _why(
        self, handle: int, record: dict[str, Any], lease_file: int, limit_s: float | None
    ) -> tuple[str, float] | None:
        stop = files.read_whole(handle, "stop.json")
        if stop is not None:
            return stop["reason"], stop["grace_s"]
        if lease.now_ns() >= lease.read_deadline(lease_file):
            return "lease", record["grace_s"]
        if limit_s is not None and self.process.loop.time() >= limit_s:
            return "time_limit", record["grace_s"]
        return None

    def _died(self) -> None:
        self.node.shims.pop(self.pid, None)
        run = self.run_of_task
        if run is not None and run.alive and not run.forked:
            self.node.truth.end(run)  # the main process dies with its shim; what it forked does not
        for call in self.gone:
            call()


# ---------------------------------------------------------------------- in the place of the agent's hands


def _node() -> Node:
    process = CURRENT.get()
    assert process is not None and isinstance(process.machine, Node)
    return process.machine


class Nursery:
    """Stands for `hetsched.agent.nursery.Nursery`: an order that was given is obeyed, whatever becomes of the agent."""

    def __init__(self, errors: Path, descriptors: tuple[int, int], heard: Callable[[dict[str, Any]], None]) -> None:
        self.errors = errors
        self.pid = 1
        self._heard = heard
        process = CURRENT.get()
        assert process is not None
        self._agent = process
        self._node = _node()
        self._closed = False

    def ask(self, attempt_directory: Path) -> None:
        boots, node = self._node.boots, self._node

        def begin() -> None:
            if node.boots == boots:
                helper = Process(self._agent.loop, node, "nursery")
                helper.context.run(Shim, node, attempt_directory, self._told)
                helper.kill()

        self._agent.loop.call_outside(begin, after_s=0.003)

    def close(self) -> None:
        self._closed = True

    def _told(self, message: dict[str, Any]) -> None:
        if not self._closed and self._agent.alive:
            self._agent.loop.call_soon(self._heard, message, context=self._agent.context.copy())


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

    def close(self) -> None:
        self._watched.clear()

    def _ended(self, key: Key) -> None:
        if self._agent.alive:
            self._agent.loop.call_soon(self._tell, key, context=self._agent.context.copy())

    def _tell(self, key: Key) -> None:
        if self._watched.pop(key, None) is not None:
            self._gone(key)


def survivors(found: Found, directory: Path) -> list[int]:
    """Stands for `hunt.survivors`."""
    node = _node()
    return sorted(run.pid for run in node.truth.runs.values() if run.machine is node and run.key == found.key)


def _send(pid: int, number: int) -> None:
    run = _node().truth.runs.get(pid)
    if run is not None:
        run.machine.truth.end(run)


processes = SimpleNamespace(send=_send, boot_id=lambda: _node().boot_id)
