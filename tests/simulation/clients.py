"""Clients who submit, ask again until they know, cancel, and look; and the mix of tasks that they bring."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from tests.simulation.auditor import TERMINAL
from tests.simulation.clockwork import Process
from tests.simulation.world import DAEMON, World


class Lost(Exception):
    """No answer: what was asked may or may not have happened."""


class Client:
    """One client process. `rate_s`: mean time between two wishes."""

    def __init__(self, world: World, name: str, seed: str, rate_s: float) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(seed)
        self.rate_s = rate_s
        self.process = Process(world.loop, world.desk, name)
        self.open: list[str] = []  # accepted and not known to have ended
        self._sent: list[tuple[list[str], str]] = []
        self.stopping = False
        self._count = 0
        self._end: Any = None
        self._number = 0
        self.process.run(self._live())

    async def _live(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.rng.expovariate(1 / self.rate_s))
            roll = self.rng.random()
            if roll < 0.55 or not self.open:
                await self._submit()
            elif roll < 0.65:
                await self._cancel(self.rng.choice(self.open))
            elif roll < 0.72:
                await self._insist(*self.rng.choice(self._sent))
            else:
                await self._look(self.rng.choice(self.open))

    async def _submit(self) -> None:
        ids, body = self._wish()
        self._sent.append((ids, body))
        await self._insist(ids, body)
        self.open += [task for task in ids if task in self.world.audit.acknowledged]

    def _wish(self) -> tuple[list[str], str]:
        rng = self.rng
        self._count += 1
        ident = f"{self.name}-{self._count}"
        seconds = rng.choice((1, 5, 20, 60, 120))
        code = "0" if rng.random() < 0.9 else "1"
        argv = ["sim", str(seconds), code, rng.choice(("polite", "polite", "stubborn")), rng.choice(("alone", "forks"))]
        task: dict[str, Any] = {
            "id": ident,
            "command": argv,
            "grace": rng.choice((1, 5, 10)),
            "retries": 2,
            "qos": rng.choices(("critical", "production", "best_effort", "background"), (1, 4, 3, 2))[0],
            "resources": {"cpu": 1, "gpu": rng.choice((0.5, 1, 1, 2, 3))},
        }
        if rng.random() < 0.1:
            task["time_limit"] = 10
        if rng.random() < 0.08:  # a lease-only task
            del task["command"]
            task["duration"] = seconds
        roll = rng.random()
        if roll < 0.12:
            size = rng.choice((2, 3))
            members = [f"{ident}-{i}" for i in range(size)]
            tasks = [{**task, "id": member, "gang": {"id": f"g-{ident}", "size": size}} for member in members]
            return members, json.dumps(tasks)
        if roll < 0.2:
            ids = [f"{ident}-{i}" for i in range(5)]
            return ids, json.dumps({"template": task, "count": 5})
        if roll < 0.3 and self.open:
            task["after"] = [{"id": rng.choice(self.open), "when": rng.choice(("succeeded", "ended"))}]
        return [ident], json.dumps(task)

    async def _submit_call(self, ids: list[str], body: str) -> None:
        answer = await self._ask("submit", body)
        if answer[0] == "problem":
            if answer[1] in (429, 503):
                raise Lost
            self.world.audit.refused.update(ids)
            return
        refused = {index for index, _ in answer[2]}
        for index, task in enumerate(ids):
            if index in refused:
                self.world.audit.refused.add(task)
            else:
                self.world.audit.told_accepted(task, body)

    async def _cancel(self, task: str) -> None:
        try:
            await self._ask("cancel", task)
        except Lost:
            return

    async def _look(self, task: str) -> None:
        try:
            answer = await self._ask("get", task)
        except Lost:
            return
        if answer[0] == "problem":
            if answer[1] == 404:
                self.world.audit.told_unknown(task)
            return
        _, state, attempts = answer
        self.world.audit.told_state(task, state, attempts)
        if state in TERMINAL and task in self.open:
            self.open.remove(task)

    async def _insist(self, ids: list[str], body: str) -> None:
        """Until there is an answer: the same ids, the same body."""
        while True:
            try:
                await self._submit_call(ids, body)
                return
            except Lost:
                await asyncio.sleep(self.rng.uniform(0.5, 3.0))

    async def _ask(self, *words: Any) -> Any:
        self._number += 1
        number = self._number
        try:
            async with asyncio.timeout(5.0):
                if self._end is None:
                    self._end = await self.world.network.dial(DAEMON)
                await self._end.send((number, *words))
                while True:
                    got = await self._end.receive()
                    if got is None:
                        raise Lost
                    if got[0] == number:
                        return got[1]
        except (OSError, TimeoutError, Lost):
            if self._end is not None:
                self._end.shut()
                self._end = None
            raise Lost from None
