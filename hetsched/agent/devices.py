"""This node's devices while the agent runs: described for the daemon, shown to tasks, read again and again, told when it matters.

Drivers may hang, so all looking is done in a worker thread; the link never waits for it (a Pull is answered with the latest look).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from hetsched import wire
from hetsched.agent.discovery.host import Host, discover_host, load_average, memory_available_bytes
from hetsched.agent.discovery.inventory import Inventory, describe_node
from hetsched.agent.discovery.registry import open_vendors
from hetsched.agent.discovery.watch import DeviceWatch
from hetsched.agent.fake import FakeProfileError, parse_fake
from hetsched.agent.isolation import Visible, through_own_mask, visible_by_kind
from hetsched.agent.shim.lease import now_ns
from hetsched.agent.symptoms import Thresholds
from hetsched.config import Config
from hetsched.errors import ConfigError
from hetsched.model import NodeSpec, Taint
from hetsched.quantity import cpu_milli

log = logging.getLogger("hetsched.agent")

_RESCAN_S = 60.0  # a driver that was loaded late, a card that was replaced
_FASTEST_LOOK_S = 0.2


class Devices:
    """What the agent of node `name` has. `directory`: its own, for ids that outlive a restart and for steering pretended devices."""

    def __init__(self, name: str, config: Config, directory: Path, fake: str | None) -> None:
        self._name = name
        self._config = config
        try:
            profile = None if fake is None else parse_fake(fake)
        except FakeProfileError as error:
            raise ConfigError(str(error)) from None
        host = discover_host()
        self._host: Host = host if profile is None else profile.host(host)
        vendors = open_vendors(profile, directory)
        self._inventory = Inventory(vendors, host.boot_id, directory / "devices.json")
        self._watch = DeviceWatch(self._inventory, Thresholds.of(config.health))
        self._look_s = max(_FASTEST_LOOK_S, min((vendor.period_s for vendor in vendors), default=_RESCAN_S))
        self._readings: tuple[wire.DeviceReading, ...] = ()
        self.limits = ""
        """What tasks are held to, for people."""
        self.visible: dict[str, Visible] = {}
        """Device id → how tasks are shown it. The same object for ever: records are made from it."""

    async def open(self) -> None:
        """The first look; takes as long as the drivers do."""
        await asyncio.to_thread(self._watch.rescan)
        self._show()
        self._readings = (await asyncio.to_thread(self._watch.observe, now_ns())).readings

    def node(self) -> NodeSpec:
        """As the daemon is told."""
        agent = self._config.agent
        return describe_node(
            self._name,
            self._inventory.devices,
            self._host,
            labels=agent.labels,
            taints=tuple(map(taint_of, agent.taints)),
            volumes=agent.volumes,
            reserve_cpu_milli=cpu_milli(agent.reserve_cpu),
            reserve_memory_bytes=agent.reserve_memory_bytes,
            limits=self.limits,
        )

    def readings(self) -> tuple[wire.DeviceReading, ...]:
        """The latest look at every device."""
        return self._readings

    def report(self) -> wire.Report:
        """The answer to a Pull."""
        return wire.Report(self.readings(), False, load_average(), memory_available_bytes())

    async def run(self, push: Callable[[wire.Report], None], changed: Callable[[], None]) -> None:
        """Looks for ever. `push` gets what cannot wait; `changed` is called when there are other devices than before."""
        loop = asyncio.get_running_loop()
        rescan_at = loop.time() + _RESCAN_S
        while True:
            await asyncio.sleep(self._look_s)
            if loop.time() >= rescan_at:
                rescan_at = loop.time() + _RESCAN_S
                if await asyncio.to_thread(self._watch.rescan):
                    log.warning("the devices of this node have changed")
                    self._show()
                    changed()
            seen = await asyncio.to_thread(self._watch.observe, now_ns())
            self._readings = seen.readings
            for change in seen.changes:
                log.warning("%s", change)
            if seen.push:
                push(wire.Report(seen.push, True, load_average(), memory_available_bytes()))

    def close(self) -> None:
        """Lets go of the drivers that still answer."""
        self._watch.close()
        self._inventory.close()

    def _show(self) -> None:
        self.visible.clear()
        self.visible.update(_visible(self._inventory, os.environ))


def _visible(inventory: Inventory, environ: Mapping[str, str]) -> dict[str, Visible]:
    """Vendors name their devices themselves and have obeyed the agent's own mask; pretended ones are counted inside of it."""
    named, counted = {}, {}
    for device, (variables, name) in inventory.visible().items():
        kind, _, index = device.rpartition("-")
        if variables:
            named[device] = Visible(variables, name)
        else:
            counted[device] = visible_by_kind(kind, int(index))
    return {**named, **through_own_mask(counted, environ)}


def taint_of(text: str) -> Taint:
    """ "dedicated=mix:NoSchedule" or "dedicated:NoSchedule". Raises ConfigError."""
    rest, colon, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    if not colon or not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise ConfigError(f'agent.taints: "{text}" must look like "KEY=VALUE:NoSchedule"')
    return Taint(key=key, value=value, effect=effect)
