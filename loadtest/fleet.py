"""The simulated fleet: one process that is many agents. They speak the real protocol and pretend to run lease-only tasks.

Promises: every order is obeyed as a real agent would (started at once, ended after `duration_s`, ends repeated until settled, stops
reported, reconnects with its whole state), nothing is executed, nothing is written to disk. Each node keeps its own ledger of device
shares and counts every order that would hand out more than a whole device or start an attempt twice: a scheduler that is fast
because it is wrong does not pass.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import aiohttp
import numpy as np
import uvloop
from numpy.typing import NDArray

from hetsched import wire
from hetsched.model import NodeSpec
from hetsched.model.ids import Ids
from loadtest.ledger import Batch, Begun, Names, Shares, batch_of, batch_of_one, joined
from loadtest.nodes import fleet_of

RECONNECT_S = 0.5
REPEAT_S = 5.0  # an end that was not settled is told again
BREATH_S = 0.002  # what is to be said within it is said together


class FleetPlan(NamedTuple):
    """`url` of the daemon; `result`: file for the counts."""

    url: str
    token: str
    run: str
    nodes: int
    result: Path


class Counts:
    """What the fleet as a whole has seen."""

    def __init__(self) -> None:
        self.started = self.ended = self.stopped = self.reconnects = 0
        self.started_twice = self.overcommitted = 0
        self.refused = ""


class Fleet:
    """What all nodes share. `plan.run` begins the ids of the run's tasks."""

    def __init__(self, plan: FleetPlan) -> None:
        self.plan = plan
        self.counts = Counts()
        self.names = Names(plan.run)
        self.begun = Begun()


class FakeAgent:
    """One node: its attempts, its ledger, its link."""

    def __init__(self, fleet: Fleet, spec: NodeSpec) -> None:
        self._fleet, self._plan, self._spec, self._counts = fleet, fleet.plan, spec, fleet.counts
        self._devices = [device.id for device in spec.devices]
        self._shares = Shares(len(spec.devices))
        self._running: dict[int, Batch] = {}
        self._numbers = itertools.count()
        self._over: list[Batch] = []  # ended, to be told with the next breath
        self._began: list[Batch] = []
        self._untold: dict[Ids, tuple[float, wire.SucceededMany]] = {}  # told and not settled yet, with when
        self._failed: dict[tuple[str, int], wire.Ended] = {}
        self._epoch, self._cluster, self._session = 0, "", 0
        self._outbox: list[wire.Message] = []
        self._more = asyncio.Event()

    async def run(self, http: aiohttp.ClientSession, welcomed: asyncio.Semaphore) -> None:
        """Connects, and again whenever the link breaks, until cancelled."""
        headers = {"Authorization": f"Bearer {self._plan.token}"}
        url = f"{self._plan.url}/v1/agents/connect"
        while True:
            try:
                async with http.ws_connect(url, headers=headers, max_msg_size=0, compress=0) as socket:
                    await self._serve(socket, welcomed)
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                pass
            self._counts.reconnects += 1
            await asyncio.sleep(RECONNECT_S)

    async def _serve(self, socket: aiohttp.ClientWebSocketResponse, welcomed: asyncio.Semaphore) -> None:
        await socket.send_bytes(wire.encode(self._hello()))
        self._outbox.clear()
        tasks: list[asyncio.Task[None]] = []
        try:
            async for frame in socket:
                if frame.type != aiohttp.WSMsgType.BINARY:
                    continue
                message = wire.decode_from_daemon(frame.data)
                if isinstance(message, wire.Welcome):
                    self._session, self._epoch, self._cluster = message.session, message.epoch, message.cluster
                    tasks = [
                        asyncio.create_task(self._write(socket)),
                        asyncio.create_task(self._beat(message.heartbeat_s)),
                    ]
                    welcomed.release()
                else:
                    self._obey(message)
        finally:
            for task in tasks:
                task.cancel()

    def _hello(self) -> wire.Hello:
        running = [state for batch in [*self._running.values(), *self._over] for state in _states(batch)]
        ended = [
            wire.AttemptState(task, attempt, "ended", True, 0)
            for _, told in self._untold.values()
            for task, attempt in wire.attempts_in(told.tasks, told.attempts)
        ]
        failed = [
            wire.AttemptState(end.task, end.attempt, "ended", False, None, end.reason) for end in self._failed.values()
        ]
        return wire.Hello(
            protocol=wire.PROTOCOL,
            node=self._spec,
            attempts=(*running, *ended, *failed),
            readings=self._readings(),
            highest_epoch=self._epoch,
            cluster=self._cluster,
            version="loadtest",
        )

    def _readings(self) -> tuple[wire.DeviceReading, ...]:
        return tuple(wire.DeviceReading(device.id, "healthy") for device in self._spec.devices)

    # ---- what it says

    def _say(self, message: wire.Message) -> None:
        self._outbox.append(message)
        self._more.set()

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._more.set()
        while True:
            await self._more.wait()
            await asyncio.sleep(BREATH_S)
            self._more.clear()
            for message in self._breath():
                await socket.send_bytes(wire.encode(message))

    def _breath(self) -> list[wire.Message]:
        """All that is to be said, what is alike in columns."""
        said, self._outbox = self._outbox, []
        if self._began:
            said.append(wire.StartedMany(*joined(self._began)))
            self._began = []
        if self._over:
            told = wire.SucceededMany(*joined(self._over))
            self._over = []
            self._untold[told.tasks] = time.monotonic(), told
            said.append(told)
        return said

    async def _beat(self, every_s: float) -> None:
        while True:
            self._say(wire.Heartbeat(time.monotonic_ns()))
            await asyncio.sleep(every_s)
            late_s = time.monotonic() - REPEAT_S
            for ids, (told_s, told) in list(self._untold.items()):
                if told_s < late_s:
                    self._untold[ids] = time.monotonic(), told
                    self._say(told)
            for end in self._failed.values():
                self._say(end)

    # ---- orders

    def _obey(self, message: wire.FromDaemon) -> None:
        match message:
            case wire.Starts() if message.session == self._session:
                batch, likes = batch_of(message, self._fleet.names)
                self._start(batch, [(order.duration_s, likes == at) for at, order in enumerate(message.likes)])
            case wire.Start() if message.session == self._session:
                batch = batch_of_one(message, self._devices, self._fleet.names)
                self._start(batch, [(message.duration_s, np.ones(1, bool))])
            case wire.Stop() if message.session == self._session:
                self._stop(message)
            case wire.SettledMany():
                self._settle(message)
            case wire.Settled():
                if self._failed.pop((message.task, message.attempt), None) is None:
                    self._settle(wire.SettledMany(message.session, *wire.columns([(message.task, message.attempt)])))
            case wire.Pull():
                self._say(wire.Report(readings=self._readings()))
            case wire.ReadLog():
                self._say(wire.LogData(message.request, message.offset, b"", True))
            case wire.Refused():
                self._counts.refused = message.reason
            case _:
                pass

    def _start(self, batch: Batch, groups: list[tuple[float | None, NDArray[np.bool_]]]) -> None:
        again = self._fleet.begun.begin(batch.keys, batch.attempts)
        if again.any():
            new = np.flatnonzero(~again)
            self._told_again(batch.part(np.flatnonzero(again)))
            if not new.size:
                return
            batch = batch.part(new)
            groups = [(duration_s, chosen[new]) for duration_s, chosen in groups]
        self._counts.started += len(batch)
        self._counts.overcommitted += self._shares.take(batch)
        self._began.append(batch)
        self._more.set()
        for duration_s, chosen in groups:
            if at := np.flatnonzero(chosen).size:
                part = batch if at == len(batch) else batch.part(np.flatnonzero(chosen))
                number = next(self._numbers)
                self._running[number] = part
                if duration_s is not None:
                    asyncio.get_running_loop().call_later(duration_s, self._end, number)

    def _told_again(self, batch: Batch) -> None:
        """After a reconnection that is no fault, if it is here."""
        here = [each.keys for each in [*self._running.values(), *self._over]]
        here += [self._fleet.names.keys(ids) for ids in self._untold]
        here += [self._fleet.names.keys(Ids.of([task])) for task, _ in self._failed]
        known = np.isin(batch.keys, np.concatenate(here)) if here else np.zeros(len(batch), bool)
        self._counts.started_twice += int((~known).sum())

    def _stop(self, order: wire.Stop) -> None:
        (key,) = self._fleet.names.keys(Ids.of([order.task])).tolist()
        for number, batch in self._running.items():
            parted = batch.without(key, order.attempt)
            if parted is not None:
                self._running[number], stopped = parted
                self._shares.give(stopped)
                self._counts.stopped += 1
                self._counts.ended += 1
                end = wire.Ended(order.task, order.attempt, False, None, order.reason)
                self._failed[order.task, order.attempt] = end
                self._say(end)
                return

    def _end(self, number: int) -> None:
        batch = self._running.pop(number)
        if len(batch):
            self._counts.ended += len(batch)
            self._shares.give(batch)
            self._over.append(batch)
            self._more.set()

    def _settle(self, settled: wire.SettledMany) -> None:
        """Mostly the daemon settles just what it was told together."""
        if self._untold.pop(settled.tasks, None) is not None:
            return
        gone = set(wire.attempts_in(settled.tasks, settled.attempts))
        for ids, (told_s, told) in list(self._untold.items()):
            left = [each for each in wire.attempts_in(told.tasks, told.attempts) if each not in gone]
            if len(left) < len(told.tasks):
                del self._untold[ids]
                if left:
                    again = wire.SucceededMany(*wire.columns(left))
                    self._untold[again.tasks] = told_s, again


def _states(batch: Batch) -> list[wire.AttemptState]:
    attempts = batch.attempts.tolist()
    return [
        wire.AttemptState(task, attempt, "running") for task, attempt in zip(batch.ids.each(), attempts, strict=True)
    ]


async def _run(fleet: Fleet, ready: Event, stop: Event) -> None:
    plan = fleet.plan
    welcomed = asyncio.Semaphore(0)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        agents = [FakeAgent(fleet, spec) for spec in fleet_of(plan.nodes, plan.run)]
        tasks = [asyncio.create_task(agent.run(http, welcomed)) for agent in agents]
        for _ in agents:
            await welcomed.acquire()
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run_fleet(plan: FleetPlan, ready: Event, stop: Event) -> None:
    """The process: `ready` is set when every node was welcomed; the counts are in `plan.result` after `stop`."""
    fleet = Fleet(plan)
    gc.freeze()
    uvloop.run(_run(fleet, ready, stop))
    plan.result.write_text(json.dumps(vars(fleet.counts)))
