"""One node's agent: all its parts put together, and the conversation with the daemon.

What arrives is handed on (`order`), what happens is said (`Link.send`); nothing here waits, and nothing here decides about attempts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import hetsched
from hetsched import wire
from hetsched.agent import delegation, records, retention
from hetsched.agent.address import Address
from hetsched.agent.attempts import Key
from hetsched.agent.devices import Devices
from hetsched.agent.identity import Identity
from hetsched.agent.link import Link
from hetsched.agent.logs import Logs
from hetsched.agent.measuring import Measuring
from hetsched.agent.runner import Runner
from hetsched.agent.shim import processes
from hetsched.agent.shim.lease import Lease
from hetsched.agent.spool import Spool
from hetsched.config import Config

log = logging.getLogger("hetsched.agent")

NOT_ENFORCED = "none: agent.enforce is false"

# Tidying looks at every attempt on disk: now and then, or when there are many new ones.
_TIDY_LOOK_S, _TIDY_AT_LEAST_S, _TIDY_ATTEMPTS = 15.0, 900.0, 1000


class Agent:
    """`directory`: this agent's own, already made. Raises ConfigError where another agent has it."""

    def __init__(self, name: str, config: Config, directory: Path, address: Address, fake: str | None) -> None:
        self._config = config
        self._address = address
        self._devices = Devices(name, config, directory, fake)
        self._identity = Identity(directory)  # from here on the directory is ours
        self._spool = Spool(directory)
        self._lease = Lease(str(directory / "lease"))
        cgroup = delegation.tasks_cgroup(name, directory)
        limited, said = delegation.controllers(cgroup) if config.agent.enforce else (frozenset(), NOT_ENFORCED)
        self._devices.limits = said
        site = records.Site(
            node=name,
            url=lambda: address.last_url,
            boot_id=processes.boot_id(),
            tasks=self._spool.root,
            lease=directory / "lease",
            cgroup=cgroup,
            controllers=limited,
            policy=config.agent,
            devices=self._devices.visible,
        )
        self.link = Link(self, self._lease)
        self.runner = Runner(site, self._spool, self._lease, self.link.send)
        self._measuring = Measuring(
            self.runner.attempts, site.cgroup, self._devices.readings, config.agent.measure_every
        )
        self._logs = Logs(self.runner.attempts, self._spool, self.link.send_and_wait)
        self._unsettled_before: set[wire.Ended] = set()
        self._settled_count = 0  # since the last tidying

    async def open(self) -> None:
        """Adopts the attempts of an earlier life, then finds the devices (a driver may take its time)."""
        await self.runner.open()
        await self._devices.open()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as works:
            works.create_task(self.link.run(), name="link")
            works.create_task(self._devices.run(self.link.send, self.link.reconnect), name="devices")
            works.create_task(self._measuring.run(self.link.send), name="measuring")
            works.create_task(self._tidy(), name="retention")

    async def close(self) -> None:
        """Lets go of everything. No task is stopped."""
        await self.runner.close()
        self._devices.close()
        self._spool.close()
        self._lease.close()
        self._identity.close()

    # ------------------------------------------------------------------ what the link asks

    def address(self) -> tuple[str, str]:
        return self._address.find()

    def left(self, leader: str) -> None:
        self._address.leave(leader)

    def hello(self) -> wire.Hello:
        """An agent without attempts belongs to no cluster yet: it may join another one."""
        attempts = self.runner.attempts.states()
        known = self._identity
        return wire.Hello(
            protocol=wire.PROTOCOL,
            node=self._devices.node(),
            attempts=attempts,
            readings=self._devices.readings(),
            highest_epoch=known.highest_epoch if attempts else 0,
            cluster=known.cluster if attempts else "",
            version=hetsched.__version__,
            instance=known.instance,
            cell=self._config.agent.cell,
        )

    def welcomed(self, welcome: wire.Welcome) -> str:
        holds = bool(self.runner.attempts.states())
        refusal = self._identity.refusal(welcome.cluster, welcome.epoch, holds_attempts=holds)
        if not refusal:
            self._identity.obey(welcome.cluster, welcome.epoch)
        return refusal

    def order(self, message: Any) -> None:
        match message:
            case wire.Start():
                self.runner.start(message)
            case wire.Stop():
                self.runner.stop(message)
            case wire.Settled(_, task, attempt):
                self._settled_count += 1
                self.runner.settle(Key(task, attempt))
            case wire.Pull():
                self.link.send(self._devices.report())
            case wire.ReadLog():
                self._logs.open(message)
            case wire.CloseLog(request):
                self._logs.close(request)

    def to_repeat(self) -> list[wire.Ended]:
        """Ends that were unsettled a heartbeat ago and still are: the rest is on its way."""
        before, now = self._unsettled_before, self.runner.attempts.unsettled()
        self._unsettled_before = set(now)
        return [ended for ended in now if ended in before]

    def parted(self) -> None:
        self._measuring.rejoined()
        self._logs.close_all()
        self._unsettled_before.clear()

    # ------------------------------------------------------------------ tidying

    async def _tidy(self) -> None:
        """Removes what retention does not keep."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(_TIDY_LOOK_S)
            if self._settled_count < _TIDY_ATTEMPTS and loop.time() - last < _TIDY_AT_LEAST_S:
                continue
            last, self._settled_count = loop.time(), 0
            kept = await asyncio.to_thread(retention.settled, self._spool, self._spool.entries())
            for one in retention.to_remove(kept, self._config.agent, time.time()):
                await asyncio.to_thread(self._spool.remove, self._spool.path(one.key))
                self.runner.forget(one.key)
