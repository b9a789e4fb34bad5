"""An agent for tests: says what it is told to say, over a real WebSocket. Starts are reported at once; nothing really runs."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import aiohttp

from hetsched import wire
from hetsched.model import parse_node
from tests.daemon.process import DaemonProcess


class TestAgent:
    """Joins as the node of `raw` (as in a scenario file). `running`: what it was told to start and has not ended."""

    __test__ = False

    def __init__(self, daemon: DaemonProcess, raw: dict[str, Any], *, obey: bool = True) -> None:
        self.daemon = daemon
        self.node = parse_node(raw)[0]
        self.obey = obey
        self.got: list[Any] = []
        self.running: dict[str, int] = {}
        self.ended: list[wire.Ended] = []
        self.logs: dict[str, bytes] = {}
        self.welcome: wire.Welcome | None = None
        self.patience_s = 5.0
        self.cell = ""

    async def __aenter__(self) -> TestAgent:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(
            f"http://127.0.0.1:{self.daemon.port}/v1/agents/connect",
            headers={"Authorization": f"Bearer {self.daemon.agent_token}"},
        )
        attempts = [wire.AttemptState(task, attempt, "running") for task, attempt in self.running.items()]
        attempts += [
            wire.AttemptState(e.task, e.attempt, "ended", e.succeeded, e.exit_code, e.reason) for e in self.ended
        ]
        readings = tuple(
            wire.DeviceReading(device.id, "healthy", utilization_percent=42.0) for device in self.node.devices
        )
        await self.say(wire.Hello(wire.PROTOCOL, self.node, tuple(attempts), readings, 0, "", "test", cell=self.cell))
        self._listening = asyncio.create_task(self._listen())
        try:
            await self.until(lambda: self.welcome, self.patience_s)
        except TimeoutError:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._listening.cancel()
        await self._socket.close()
        await self._session.close()

    def die(self) -> None:
        """As after kill -9: the kernel closes the connection, and nobody says good-bye."""
        self._socket.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def say(self, message: Any) -> None:
        await self._socket.send_bytes(wire.encode(message))

    async def end(self, task: str, *, succeeded: bool = True, reason: str = "") -> None:
        """The attempt is over."""
        ended = wire.Ended(task, self.running.pop(task), succeeded, 0 if succeeded else 1, reason)
        self.ended.append(ended)
        await self.say(ended)

    async def until(self, true: Any, timeout_s: float = 5.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not true():
                await asyncio.sleep(0.005)

    async def _listen(self) -> None:
        async for message in self._socket:
            order = wire.decode_from_daemon(message.data)
            self.got += order.each() if isinstance(order, wire.Starts | wire.SettledMany) else [order]
            if self.obey:
                await self._obey(order)

    async def _obey(self, order: Any) -> None:
        match order:
            case wire.Starts() | wire.SettledMany():
                for one in order.each():
                    await self._obey(one)
            case wire.Welcome():
                self.welcome = order
                await self.say(wire.Heartbeat(time.monotonic_ns()))  # it obeys this leader from now on
            case wire.Start() if order.task not in self.running:
                self.running[order.task] = order.attempt
                await self.say(wire.Started(order.task, order.attempt))
            case wire.Stop() if order.task in self.running:
                await self.end(order.task, succeeded=False, reason="stopped")
            case wire.Settled():
                self.ended = [e for e in self.ended if (e.task, e.attempt) != (order.task, order.attempt)]
            case wire.Pull():
                await self.say(wire.Report(()))
            case wire.ReadLog():
                await self._read_log(order)

    async def _read_log(self, order: wire.ReadLog) -> None:
        log = self.logs.get(order.task)
        if log is None:
            await self.say(wire.LogData(order.request, 0, b"", True, "unknown"))
            return
        data = log[order.offset : order.offset + order.limit_bytes]
        at_end = order.offset + len(data) >= len(log)
        await self.say(wire.LogData(order.request, order.offset, data, at_end))
