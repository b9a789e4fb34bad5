"""Waiting for tasks, with progress on stderr: a line that rewrites itself on a terminal, else one line a change."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from hetsched.cli import exits
from hetsched.cli.logs import copy_attempt
from hetsched.cli.output import emit_json, note, one_line
from hetsched.cli.parser import Usage, add_reading, client_of, seconds
from hetsched.cli.table import Command
from hetsched.client import ENDED, Client
from hetsched.errors import NotFound

_POLL_S = 0.2


class Progress:
    """Tells how far the waiting is. `total`: tasks waited for."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._ended = 0
        self._last = ""
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()

    def waiting(self, task: dict[str, Any]) -> None:
        """A look at a task that has not ended."""
        where = (task.get("placement") or {}).get("node")
        text = f"{task['id']} {task['state']}" + (f" on {where}" if where else "")
        self._say(text if self._total == 1 else f"{self._ended} of {self._total} ended; {text}")

    def ended(self, task: dict[str, Any]) -> None:
        """A task that has ended; told only where it did not succeed, or is the only one."""
        self._ended += 1
        if self._total == 1 or task["state"] != "succeeded":
            reason = task.get("reason")
            self._line(f"{task['id']} {task['state']}" + (f": {reason}" if reason else ""))

    def close(self) -> None:
        """Leaves the terminal's line empty."""
        if self._terminal and self._last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _say(self, text: str) -> None:
        text = one_line(text)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text}  {time.monotonic() - self._began:.0f} s")
            sys.stderr.flush()
        elif text != self._last:
            note(text)
        self._last = text

    def _line(self, text: str) -> None:
        self.close()
        note(text)


def wait_for(client: Client, ids: list[str], timeout_s: float | None) -> list[dict[str, Any]]:
    """Until all have ended; their last states, in order."""
    progress = Progress(len(ids))
    try:
        return client.wait(ids, timeout_s=timeout_s, ended=progress.ended, waiting=progress.waiting)
    finally:
        progress.close()


def follow_to_end(client: Client, ids: list[str], timeout_s: float | None) -> list[dict[str, Any]]:
    """Copies what the attempts of the one task write, in their order, until it has ended."""
    (task_id,) = ids
    progress = Progress(1)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    copied = 0
    while True:
        task = client.task(task_id)
        started = [a["attempt"] for a in task.get("attempts", ()) if a.get("started_at") and a["attempt"] > copied]
        for attempt in started:
            copy_attempt(client, task_id, attempt)
            copied = attempt
        if task["state"] in ENDED and not started:
            progress.ended(task)
            return [task]
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"{task_id} is still {task['state']}")
        if not started:
            time.sleep(_POLL_S)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--label", metavar="K=V", help="or for all tasks with this label")
    parser.add_argument("--timeout", type=seconds, metavar="TIME", help="give up after this long (exit code 6)")
    add_reading(parser)


def _wait(options: argparse.Namespace) -> int:
    client = client_of(options)
    tasks = wait_for(client, _waited_for(client, options), options.timeout)
    if options.json:
        emit_json({"tasks": tasks})
    return exits.OK if all(task["state"] == "succeeded" for task in tasks) else exits.TASK_FAILED


def _waited_for(client: Client, options: argparse.Namespace) -> list[str]:
    if bool(options.ids) == bool(options.label):
        raise Usage("wait for what? give an ID, or --label K=V")
    ids = options.ids or [task["id"] for task in client.tasks(label=options.label)]
    if not ids:
        raise NotFound(f"no task has the label {options.label}")
    return list(ids)


COMMANDS = {"wait": Command(_arguments, _wait)}
