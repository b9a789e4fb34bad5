"""The real agent on a simulated machine: where its hands on devices and the network are replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from hetsched import wire
from hetsched.agent.agent import Agent
from hetsched.agent.attempts import Key
from hetsched.agent.isolation import visible_by_kind
from hetsched.config import Config
from hetsched.model import DeviceSpec, NodeSpec
from tests.simulation.clockwork import CURRENT
from tests.simulation.kernel import Node
from tests.simulation.network import End

GPUS = 4
DAEMONS = ("d0", "d1")
"""Machines of daemons, and their addresses."""


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
    """Both daemons, in turn."""

    last_url = "simulated:"

    def __init__(self) -> None:
        self._tries = 0

    def find(self) -> tuple[str, str]:
        return DAEMONS[self._tries % len(DAEMONS)], "token"

    def leave(self, leader: str) -> None:
        self._tries += 1


class SimulatedDevices:
    """Stands for `agent.devices.Devices`."""

    def __init__(self, name: str, config: Config, directory: Path, fake: str | None) -> None:
        process = CURRENT.get()
        assert process is not None and isinstance(process.machine, Node)
        self._node = process.machine
        self.visible = {f"gpu-{i}": visible_by_kind("gpu", i) for i in range(GPUS)}

    async def open(self) -> None:
        await asyncio.sleep(0.01)

    def node(self) -> NodeSpec:
        devices = tuple(DeviceSpec(id=f"gpu-{i}", kind="gpu", model="A100", memory_bytes=40 << 30) for i in range(GPUS))
        return NodeSpec(
            name=self._node.name, cpu_milli=32_000, memory_bytes=128 << 30, devices=devices, boot_id=self._node.boot_id
        )

    def readings(self) -> tuple[wire.DeviceReading, ...]:
        sick = self._node.sick
        return tuple(
            wire.DeviceReading(f"gpu-{i}", sick.get(f"gpu-{i}", "healthy"), utilization_percent=50.0)
            for i in range(GPUS)
        )

    def report(self) -> wire.Report:
        return wire.Report(self.readings())

    async def run(self, push: Any, changed: Any) -> None:
        told = dict(self._node.sick)
        while True:
            await asyncio.sleep(self._node.pace.look_s)
            if told != self._node.sick:
                told = dict(self._node.sick)
                push(self.report())

    def close(self) -> None:
        return None


class ClientSocket:
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
