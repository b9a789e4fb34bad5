"""Several cells on a real cluster of six servers: daemons, agents with pretended devices, real processes, and clients that never stop.

Promise: everything a client was told is remembered here, and every process leaves a line behind, so that what is lost, in two cells or run
twice is found by comparing, and not by trusting anybody.
"""

from __future__ import annotations

import itertools
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetsched.client import Client
from hetsched.errors import HetschedError
from tests.daemon.process import DaemonProcess
from tests.end_to_end.cluster import Agent, eventually
from tests.store.clustered import Cluster

PATIENCE_S = 60.0
ENDS = ("succeeded", "failed", "cancelled", "expired", "skipped")


class Cell:
    """One cell's daemon and its agent. `fake`: what the agent has."""

    def __init__(self, name: str, directory: Path, store: str, fake: str, **sets: Any) -> None:
        self.name = name
        self.directory = directory / name
        self.daemon = DaemonProcess(self.directory, store=store, server__name=name, store__cell=name, **sets)
        self.fake = fake
        self.agent: Agent | None = None

    def start(self, tokens: Path | None) -> None:
        """`tokens`: of a daemon that started before."""
        self.directory.mkdir()
        for name in ("token", "agent-token") if tokens is not None else ():
            shutil.copy(tokens / name, self.directory / name)  # type: ignore[operator]
        self.daemon.start()
        more = ["--set", f"agent.cell={self.name}"]
        self.agent = Agent(self.directory, f"node-{self.name}", self.daemon, self.fake, more)  # type: ignore[arg-type]
        self.agent.start()

    def strike(self) -> None:
        """kill -9 of the daemon; it is started again."""
        self.daemon.kill()
        time.sleep(random.random())
        self.daemon.start(PATIENCE_S)

    def close(self) -> None:
        if self.agent is not None and self.agent.alive():
            self.agent.kill()
        if self.daemon.process is not None:
            self.daemon.kill()


class Cells:
    """All of them. `fakes`: cell → what its agent has."""

    def __init__(self, directory: Path, fakes: dict[str, str], **sets: Any) -> None:
        self.servers = Cluster(directory)
        self.cells = {
            name: Cell(name, directory, self.servers.url, fake, store__durability="replicated", **sets)
            for name, fake in fakes.items()
        }
        self.lines = directory / "lines"
        self.lines.touch()
        self.lines.chmod(0o666)  # an agent that is root runs tasks as somebody else
        directory.chmod(0o711)
        self.acknowledged: dict[str, str] = {}  # task → cell that was asked
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count()

    def start(self) -> None:
        self.servers.start()
        tokens = None
        for cell in self.cells.values():
            cell.start(tokens)
            tokens = tokens or cell.directory
        eventually(self.all_heard, why="each cell has heard of all others, with their nodes")

    def all_heard(self) -> bool:
        """Whether each knows all, and of nodes of each."""
        rows = [cell.daemon.get("/v1/cells").json["cells"] for cell in self.cells.values()]
        return all(len(found) == len(self.cells) and all(row["nodes"] for row in found) for found in rows)

    def client(self, cell: Cell) -> Client:
        return Client(cell.daemon.url, cell.daemon.token, patience_s=PATIENCE_S, reach_s=PATIENCE_S)

    # ------------------------------------------------------------------ submitting

    def submit_always(self, body: Callable[[int], dict[str, Any]], pause_s: float) -> None:
        """A thread a cell, which submits one task after the other there."""
        for cell in self.cells.values():
            thread = threading.Thread(target=self._submit, args=(cell, body, pause_s))
            self._threads.append(thread)
            thread.start()

    def _submit(self, cell: Cell, body: Callable[[int], dict[str, Any]], pause_s: float) -> None:
        client = self.client(cell)
        while not self._stop.wait(pause_s):
            number = next(self._numbers)
            line = f'echo "$HETSCHED_TASK $HETSCHED_ATTEMPT" >> {self.lines}; sleep 0.1'
            task = {"id": f"{cell.name}-{number}", "command": ["sh", "-c", line], "retries": 0, **body(number)}
            try:
                self.acknowledged[str(client.submit(task)["id"])] = cell.name
            except HetschedError as error:
                self.failed.append(f"{task['id']}: {error}")

    def rest(self) -> None:
        """No more submissions."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    # ------------------------------------------------------------------ auditing

    def where(self, task: str) -> list[str]:
        """Cells that have it, as their daemons say."""
        answers = {name: cell.daemon.get(f"/v1/tasks/{task}") for name, cell in self.cells.items()}
        return [
            name for name, found in answers.items() if found.status == 200 and found.json.get("reason") != "in_cell"
        ]

    def audit(self) -> Counter[tuple[str, str]]:
        """At rest: (home, cell) → how many. AssertionError where one is lost, in two, has not ended well or was run twice."""
        clients = {name: self.client(cell) for name, cell in self.cells.items()}
        for task, home in self.acknowledged.items():
            found = eventually(
                lambda task=task, home=home: (
                    (seen := clients[home].task(task))["state"] in ENDS and seen  # type: ignore[misc]
                ),
                within_s=120,
                why=f"{task} has ended",
            )
            assert found["state"] == "succeeded", found
        ways: Counter[tuple[str, str]] = Counter()
        for task, home in self.acknowledged.items():
            having = self.where(task)
            assert len(having) == 1, f"{task}, asked of {home}, is in {having}"
            ways[home, having[0]] += 1
        ran = Counter(self.lines.read_text().split("\n")[:-1])
        twice = [line for line, times in ran.items() if times > 1]
        assert not twice, f"run twice: {twice}"
        missing = [task for task in self.acknowledged if f"{task} 1" not in ran]
        assert not missing, f"never run: {missing}"
        return ways

    def succeeded(self) -> int | None:
        """Tasks of all cells that have; None while anything waits, runs, or has ended otherwise."""
        counts: Counter[str] = Counter()
        for cell in self.cells.values():
            counts.update(cell.daemon.get("/v1/cluster").json["tasks"])
        return counts["succeeded"] if +counts == Counter(succeeded=counts["succeeded"]) else None

    def close(self) -> None:
        self.rest()
        for cell in self.cells.values():
            cell.close()
        self.servers.close()
