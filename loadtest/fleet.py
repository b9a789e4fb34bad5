"""The simulated fleet: one process that is many agents. They speak the real protocol and pretend to run lease-only tasks.

Promises: every order is obeyed as a real agent would (started at once, ended after `duration_s`, ends repeated until settled, stops
reported, reconnects with its whole state), nothing is executed, nothing is written to disk. Each node keeps its own ledger of device
shares and counts every order that would hand out more than a whole device or start an attempt twice: a scheduler that is fast
because it is wrong does not pass.
"""

from __future__ import annotations

import asyncio
import json
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import aiohttp
import uvloop

from hetsched import wire
from hetsched.model import NodeSpec
from loadtest.nodes import fleet_of

RECONNECT_S = 0.5
REPEAT_S = 5.0  # an end that was not settled is told again
WHOLE = 1000  # thousandths of a device


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


class FakeAgent:
    """One node: its attempts, its ledger, its link."""

    def __init__(self, plan: FleetPlan, spec: NodeSpec, counts: Counts) -> None:
        self._plan, self._spec, self._counts = plan, spec, counts
        self._running: dict[tuple[str, int], wire.Start] = {}
        self._unsettled: dict[tuple[str, int], wire.Ended] = {}
        self._seen: set[tuple[str, int]] = set()
        self._used_milli: dict[str, int] = {}
        self._epoch, self._cluster, self._session = 0, "", 0
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._outbox: asyncio.Queue[wire.Message] = asyncio.Queue()

    async def run(self, http: aiohttp.ClientSession, welcomed: asyncio.Semaphore) -> None:
        """Connects, and again whenever the link breaks, until cancelled."""
        headers = {"Authorization": f"Bearer {self._plan.token}"}
        url = f"{self._plan.url}/v1/agents/connect"
        while True:
            try:
                async with http.ws_connect(url, headers=headers, max_msg_size=0) as socket:
                    await self._serve(socket, welcomed)
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                pass
            self._counts.reconnects += 1
            await asyncio.sleep(RECONNECT_S)

    async def _serve(self, socket: aiohttp.ClientWebSocketResponse, welcomed: asyncio.Semaphore) -> None:
        await socket.send_bytes(wire.encode(self._hello()))
        self._outbox = asyncio.Queue()
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
        running = [wire.AttemptState(task, attempt, "running") for task, attempt in self._running]
        ended = [
            wire.AttemptState(end.task, end.attempt, "ended", end.succeeded, end.exit_code, end.reason)
            for end in self._unsettled.values()
        ]
        return wire.Hello(
            protocol=wire.PROTOCOL,
            node=self._spec,
            attempts=(*running, *ended),
            readings=self._readings(),
            highest_epoch=self._epoch,
            cluster=self._cluster,
            version="loadtest",
        )

    def _readings(self) -> tuple[wire.DeviceReading, ...]:
        return tuple(wire.DeviceReading(device.id, "healthy") for device in self._spec.devices)

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            said = [await self._outbox.get()]
            while not self._outbox.empty():
                said.append(self._outbox.get_nowait())
            for message in wire.together(said):
                await socket.send_bytes(wire.encode(message))

    async def _beat(self, every_s: float) -> None:
        rounds_per_repeat = max(1, round(REPEAT_S / every_s))
        beat = 0
        while True:
            self._outbox.put_nowait(wire.Heartbeat(time.monotonic_ns()))
            await asyncio.sleep(every_s)
            beat += 1
            if beat % rounds_per_repeat == 0:
                for end in self._unsettled.values():
                    self._outbox.put_nowait(end)

    # ---- orders

    def _obey(self, message: wire.FromDaemon) -> None:
        match message:
            case wire.Starts() | wire.SettledMany():
                for one in message.each():
                    self._obey(one)
            case wire.Start() if message.session == self._session:
                self._start(message)
            case wire.Stop() if message.session == self._session:
                self._stop(message)
            case wire.Settled():
                self._unsettled.pop((message.task, message.attempt), None)
            case wire.Pull():
                self._outbox.put_nowait(wire.Report(readings=self._readings()))
            case wire.ReadLog():
                self._outbox.put_nowait(wire.LogData(message.request, message.offset, b"", True))
            case wire.Refused():
                self._counts.refused = message.reason
            case _:
                pass

    def _start(self, order: wire.Start) -> None:
        key = (order.task, order.attempt)
        if key in self._running or key in self._unsettled:
            return  # told again after a reconnect: idempotent
        self._counts.started_twice += key in self._seen
        self._seen.add(key)
        self._counts.started += 1
        self._running[key] = order
        for device, share_milli in order.devices:
            self._used_milli[device] = self._used_milli.get(device, 0) + share_milli
            self._counts.overcommitted += self._used_milli[device] > WHOLE
        self._outbox.put_nowait(wire.Started(order.task, order.attempt, 0))
        if order.duration_s is not None:
            asyncio.get_running_loop().call_later(order.duration_s, self._end, key, True, "")

    def _stop(self, order: wire.Stop) -> None:
        if (order.task, order.attempt) in self._running:
            self._counts.stopped += 1
            self._end((order.task, order.attempt), False, order.reason)

    def _end(self, key: tuple[str, int], succeeded: bool, reason: str) -> None:
        order = self._running.pop(key, None)
        if order is None:
            return
        self._counts.ended += 1
        for device, share_milli in order.devices:
            self._used_milli[device] -= share_milli
        end = wire.Ended(order.task, order.attempt, succeeded, 0 if succeeded else None, reason)
        self._unsettled[key] = end
        self._outbox.put_nowait(end)


async def _run(plan: FleetPlan, ready: Event, stop: Event, counts: Counts) -> None:
    welcomed = asyncio.Semaphore(0)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        agents = [FakeAgent(plan, spec, counts) for spec in fleet_of(plan.nodes, plan.run)]
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
    counts = Counts()
    uvloop.run(_run(plan, ready, stop, counts))
    plan.result.write_text(json.dumps(vars(counts)))
