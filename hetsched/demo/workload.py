"""What the demo submits: tasks of every kind, made from a seed, so that every run asks for the same.

Most are lease-only and hold their placement for a second or less; `command` ones are real processes (worker.py). `EXPECTED` is
how a task must end; everything not named there succeeds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hetsched.demo import worker

QOS = ("critical", "production", "best_effort", "background")

# What one task asks for, and how often among a hundred.
_SHAPES: tuple[tuple[int, dict[str, Any]], ...] = (
    (56, {"cpu": 0.5}),
    (24, {"cpu": 1, "memory": "1Gi"}),
    (6, {"gpu": 0.25, "cpu": 0.5}),
    (4, {"gpu": 0.5, "cpu": 0.5}),
    (2, {"gpu": 1, "cpu": 2}),
    (1, {"gpu": 2.5, "cpu": 2}),
    (4, {"tpu": 1, "cpu": 0.5}),
    (3, {"tpu": 0.5, "cpu": 0.5}),
)

EXPECTED = {"fails-for-good": "failed", "after-failure": "skipped", "changed-my-mind": "cancelled"}


class Workload:
    """`directory`: where the processes write their lines."""

    def __init__(self, directory: Path, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._directory = directory
        self._made = 0

    def stream(self, count: int) -> list[dict[str, Any]]:
        """`count` lease-only tasks of every qos and shape in turn."""
        return [self._lease() for _ in range(count)]

    def _lease(self) -> dict[str, Any]:
        weights, shapes = zip(*_SHAPES, strict=True)
        self._made += 1
        return {
            "id": f"lease-{self._made}",
            "qos": QOS[self._made % 4],
            "resources": self._random.choices(shapes, weights)[0],
            "duration": round(self._random.uniform(0.2, 1.2), 2),
        }

    def processes(self, count: int) -> list[dict[str, Any]]:
        """`count` real processes, a few of them on devices."""
        return [self._process() for _ in range(count)]

    def _process(self) -> dict[str, Any]:
        self._made += 1
        chance = self._random.random()
        extra = {"gpu": 0.5} if chance < 0.2 else {"tpu": 1} if chance < 0.3 else {}
        return {
            **self._worker(f"process-{self._made}", self._random.uniform(0.5, 4)),
            "qos": QOS[self._made % 4],
            "resources": {"cpu": 1, "memory": "64Mi", **extra},
        }

    def array(self, count: int) -> dict[str, Any]:
        """One array job."""
        template = {"id": "sweep", "qos": "background", "resources": {"cpu": 0.5}, "duration": 0.5}
        return {"template": template, "count": count}

    def gang(self) -> dict[str, Any]:
        """Four members with two GPUs each, placed all or none."""
        template = {**self._worker("gang", 2), "resources": {"gpu": 2, "cpu": 4}, "gang": {"id": "gang", "size": 4}}
        return {"template": template, "count": 4}

    def chain(self, length: int = 5) -> list[dict[str, Any]]:
        """Each waits for the one before."""
        links = []
        for i in range(length):
            link = {**self._worker(f"chain-{i}", 0.5), "resources": {"cpu": 1}}
            links.append(link | ({"after": [f"chain-{i - 1}"]} if i else {}))
        return links

    def troubled(self) -> list[dict[str, Any]]:
        """One that fails once, one that fails for good and takes its dependent with it, one to be cancelled."""
        small = {"resources": {"cpu": 0.5}}
        return [
            {**self._worker("fails-once", 0.2, "fail-first"), **small},
            {**self._worker("fails-for-good", 0.2, "fail"), **small, "retries": 0},
            {**self._worker("after-failure", 0.2), **small, "after": ["fails-for-good"]},
            {**small, "id": "changed-my-mind", "duration": 600},
        ]

    def fillers(self, count: int, seconds: float) -> list[dict[str, Any]]:
        """Background leases of a whole GPU each: what a critical task drives away."""
        ask = {"resources": {"gpu": 1}, "qos": "background", "duration": seconds, "grace": 1}
        return [{**ask, "id": f"filler-{i}"} for i in range(count)]

    def urgent(self, number: int) -> dict[str, Any]:
        """Critical, two whole GPUs."""
        body = {**self._worker(f"urgent-{number}", 1), "qos": "critical", "resources": {"gpu": 2, "cpu": 2}}
        return body

    def _worker(self, task_id: str, seconds: float, *manner: str) -> dict[str, Any]:
        command = [sys.executable, "-IS", worker.__file__, str(self._directory), f"{seconds:.2f}", *manner]
        return {"id": task_id, "command": command, "grace": 2}


def is_fraction(body: dict[str, Any]) -> bool:
    """Whether it asks for a part of a device."""
    return any(kind in ("gpu", "tpu") and amount % 1 for kind, amount in body.get("resources", {}).items())


def processes_in(bodies: Iterator[Any] | list[Any]) -> list[dict[str, Any]]:
    """Those that are real processes."""
    return [body for body in bodies if body.get("command")]
