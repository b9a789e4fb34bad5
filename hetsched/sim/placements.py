"""`--placements`: every decision about a place, in the columns that the referee of the openb trace reads.

    seq,action,node,gpus,arrived     action: place, reject, move, evict, finish;  gpus: "0:1000;1:1000"

`seq` counts tasks in the order of submission from 0, `arrived` the tasks that had arrived when it was decided.
"""

from __future__ import annotations

from typing import TextIO

from hetsched.model import Task
from hetsched.scheduler.messages import Event

ENDS = ("succeeded", "failed", "cancelled", "expired", "backoff", "requeued")


class PlacementsFile:
    """Writes to `file` (None: nowhere)."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._number: dict[str, int] = {}
        self._arrived = 0
        self._held: dict[str, tuple[str, str]] = {}
        self._evicted: set[str] = set()
        if file is not None:
            file.write("seq,action,node,gpus,arrived\n")

    def submitted(self, task: Task, now_ns: int) -> None:
        if task.id is not None and task.id not in self._number:
            self._number[task.id] = self._arrived
            self._arrived += 1

    def happened(self, event: Event) -> None:
        if self._file is None or event.task is None:
            return
        if event.event == "placed":
            self._held[event.task] = (event.data["node"], _gpus(event.data["devices"]))
            self._write(event.task, "place", *self._held[event.task])
        elif event.event == "preempted":
            self._evicted.add(event.task)
        elif event.event == "rejected":
            self._reject(event.task)
        elif event.event in ENDS and event.task in self._held:
            action = "evict" if event.task in self._evicted else "finish"
            self._evicted.discard(event.task)
            self._write(event.task, action, *self._held.pop(event.task))

    def _reject(self, task: str) -> None:
        if task not in self._number:  # refused before it was accepted: it has arrived all the same
            self._number[task] = self._arrived
            self._arrived += 1
        self._write(task, "reject", "", "")

    def _write(self, task: str, action: str, node: str, gpus: str) -> None:
        if self._file is not None:
            self._file.write(f"{self._number[task]},{action},{node},{gpus},{self._arrived}\n")


def _gpus(devices: list[dict[str, object]]) -> str:
    """Numbers of GPUs; other kinds with their names."""
    return ";".join(f"{str(one['id']).removeprefix('gpu-')}:{one['share']}" for one in devices)
