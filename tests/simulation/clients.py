"""Clients who submit, ask again until they know, cancel, and look; and the mix of tasks that they bring."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import Any

from tests.simulation.agents import DAEMONS
from tests.simulation.clockwork import Process
from tests.simulation.laws import TERMINAL
from tests.simulation.world import World

MOST_WAITING = 24
"""Queued tasks at which clients bring no more: enough that everybody waits for somebody, and few enough that a world comes to rest soon."""


class Lost(Exception):
    """No answer: what was asked may or may not have happened."""


class Client:
    """One client process, with a wish every so often. `watches`: it asks for nothing and looks at what others have just asked for."""

    def __init__(self, world: World, name: str, seed: str, *, watches: bool = False) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(seed)
        self.scale = world.pace.scale
        self.stirred = asyncio.Event()
        self._hurries_until_s = 0.0
        self.process = Process(world.loop, world.desk, name)
        self.open: list[str] = []  # accepted and not known to have ended
        self._sent: list[tuple[list[str], str, str]] = []  # ids, body, Idempotency-Key
        self.stopping = False
        self._leases: list[str] = []  # that this client has to finish
        self._count = 0
        self._end: Any = None
        self._number = 0
        self._tries = 0
        self._epoch = 0  # the highest that it has heard
        self._life = self.process.run(self._watch() if watches else self._live())

    @property
    def is_done(self) -> bool:
        """It was told to stop and has got all its answers."""
        return self._life.done()

    async def _live(self) -> None:
        while not self.stopping:
            await self._pause(40.0, 2.5)
            roll = self.rng.random()
            if self.world.hit and self.rng.random() < 0.3:
                await self._cancel(self.world.hit.pop())
            elif self._leases and roll > 0.7:
                await self._finish(self.rng.choice(self._leases))
            elif not self.open or (roll < 0.55 and self.world.waiting < MOST_WAITING * (1 + self._rushes)):
                await self._submit()
            elif roll < 0.65:
                await self._cancel(self.open[-1] if self.rng.random() < 0.5 else self.rng.choice(self.open))
            elif roll < 0.72:
                await self._insist(*self.rng.choice(self._sent))
            else:
                await self._look(self.rng.choice(self.open))
        while self._leases:
            await asyncio.sleep(self.scale)
            await self._finish(self.rng.choice(self._leases))

    @property
    def _rushes(self) -> bool:
        """Everybody brings long and urgent work now, more than there is room for."""
        return self.world.loop.true_s < self.world.rush_until_s

    def stir(self) -> None:
        """Something has just gone wrong: that is when wishes tell most."""
        self._hurries_until_s = self.world.loop.true_s + 8.0 * self.scale
        self.stirred.set()

    async def _pause(self, mean_s: float, hurried_s: float) -> None:
        if self.world.loop.true_s >= self._hurries_until_s:
            self.stirred.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.rng.expovariate(1 / mean_s) * self.scale):
                    await self.stirred.wait()
                    await asyncio.sleep(self.rng.expovariate(1 / hurried_s) * self.scale)
        else:
            await asyncio.sleep(self.rng.expovariate(1 / hurried_s) * self.scale)

    async def _watch(self) -> None:
        while not self.stopping:
            await self._pause(20.0, 0.5)
            if self.world.spoken_of:
                await self._look(self.rng.choice(self.world.spoken_of))

    async def _submit(self) -> None:
        ids, body, key = self._wish()
        self.world.audit.wished(ids, body)
        self._sent.append((ids, body, key))
        accepted = await self._insist(ids, body, key)
        self.open += accepted
        if "command" not in body and "duration" not in body:
            self._leases += accepted

    def _wish(self) -> tuple[list[str], str, str]:
        """(ids, body, Idempotency-Key): ids of its own choice, or a key."""
        rng = self.rng
        self._count += 1
        ident = f"{self.name}-{self._count}"
        seconds = rng.choice((1, 5, 20, 60, 120)) * self.scale
        code = "0" if rng.random() < 0.9 else "1"
        argv = ["sim", str(seconds), code, rng.choice(("polite", "polite", "stubborn")), rng.choice(("alone", "forks"))]
        gpus = rng.choice((0.5, 1, 1, 2, 3))
        task: dict[str, Any] = {
            "id": ident,
            "name": f"gpu {gpus} cpu 1",
            "command": argv,
            "grace": rng.choice((1, 5, 10)) * self.scale,
            "retries": 2,
            "queue": rng.choice(("default", "blue", "green")),
            "qos": rng.choices(("critical", "production", "best_effort", "background"), (1, 4, 3, 2))[0],
            "resources": {"cpu": 1, "gpu": gpus},
        }
        if rng.random() < 0.1:
            task["time_limit"] = 10 * self.scale
        if self._rushes:
            task["qos"], argv[1] = "critical", str(300 * self.scale)
        if rng.random() < 0.08:
            task["deadline"], task["on_deadline"] = rng.choice((5, 30)) * self.scale, "expire"
        if rng.random() < 0.08:  # a lease-only task
            del task["command"]
            if rng.random() < 0.5:
                task["duration"] = seconds
        roll = rng.random()
        if roll < 0.12:
            size = rng.choice((2, 3))
            members = [f"{ident}-{i}" for i in range(size)]
            if rng.random() < 0.5:
                task["resources"]["gpu"], task["name"] = 1, "gpu 1 cpu 1"
                argv[1] = str(400 * self.scale)
            tasks = [{**task, "id": member, "gang": {"id": f"g-{ident}", "size": size}} for member in members]
            return members, json.dumps(tasks), ""
        if roll < 0.2:
            ids = [f"{ident}-{i}" for i in range(5)]
            return ids, json.dumps({"template": task, "count": 5}), ""
        if roll < 0.28:
            del task["id"]
            return [], json.dumps([task, task]), ident
        if roll < 0.38 and self.open:
            task["after"] = [{"id": rng.choice(self.open), "when": rng.choice(("succeeded", "ended"))}]
        return [ident], json.dumps(task), ""

    async def _submit_call(self, ids: list[str], body: str, key: str) -> list[str]:
        """What was accepted."""
        audit = self.world.audit
        answer = await self._ask("submit", body, key)
        if answer[0] == "problem":
            if answer[1] in (429, 503):
                raise Lost
            for task in ids:
                audit.told_refused(task, answer[2])
            return []
        _, told, rejected = answer
        for index, problem in rejected:
            audit.told_refused(ids[index] if ids else f"{key} [{index}]", str(problem))
        accepted = [task for task in told if task is not None]
        if key:
            audit.told_key(key, tuple(told))
        for task in accepted:
            audit.told_accepted(task, body, self._epoch, self.world.loop.true_s)
        return accepted

    async def _cancel(self, task: str) -> None:
        self.world.spoken_of.append(task)
        try:
            await self._ask("cancel", task)
        except Lost:
            return

    async def _look(self, task: str) -> str:
        """Its state; "" where nobody tells."""
        asked_s = self.world.loop.true_s
        try:
            answer = await self._ask("get", task)
        except Lost:
            return ""
        if answer[0] == "problem":
            if answer[1] == 404:
                self.world.audit.told_unknown(self.name, task, self._epoch, asked_s, self.world.loop.true_s)
            return ""
        _, state, attempts = answer
        self.world.audit.told_state(self.name, task, state, attempts)
        if state in TERMINAL and task in self.open:
            self.open.remove(task)
        return str(state)

    async def _finish(self, task: str) -> None:
        """The work under a lease is done."""
        answer = await self._look(task)
        if answer in TERMINAL:
            self._leases.remove(task)
        elif answer in ("placed", "running"):
            with contextlib.suppress(Lost):
                await self._ask("finish", task, self.world.audit.seen[self.name, task][0])

    async def _insist(self, ids: list[str], body: str, key: str) -> list[str]:
        """Until there is an answer: the same ids or the same key, the same body."""
        if ids:
            self.world.spoken_of.append(self.rng.choice(ids))
        while True:
            try:
                return await self._submit_call(ids, body, key)
            except Lost:
                await asyncio.sleep(self.rng.uniform(0.5, 3.0) * self.scale)

    async def _ask(self, *words: Any) -> Any:
        self._number += 1
        number = self._number
        try:
            async with asyncio.timeout(5.0):
                if self._end is None:
                    self._end = await self.world.network.dial(DAEMONS[self._tries % len(DAEMONS)])
                await self._end.send((number, *words))
                while True:
                    got = await self._end.receive()
                    if got is None:
                        raise Lost
                    if got[0] == number:
                        if got[2] < self._epoch:  # as `hetsched.client` does
                            raise Lost
                        self._epoch = got[2]
                        return got[1]
        except (OSError, TimeoutError, Lost):
            self._tries += 1
            if self._end is not None:
                self._end.shut()
                self._end = None
            raise Lost from None
