"""What the demo knows at this moment, for whoever draws it: filled by two threads, read by the view.

One follows the event stream (and joins it again after the daemon was killed), one asks for totals, nodes and devices every second
and checks the device ledger as it does so.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from hetsched.client import Client
from hetsched.demo.ledger import Ledger
from hetsched.errors import Gone, HetschedError

_ASK_EVERY_S = 1.0
_TOLD = {
    "preempted",
    "requeued",
    "backoff",
    "failed",
    "skipped",
    "expired",
    "node_down",
    "node_up",
    "node_silent",
    "device",
}


class Board:
    """`act`: what the script does now. `submitted`: acknowledged tasks. `events`: counted by name.
    `notes`: the demo's own lines; `story`: these and the events worth a line."""

    def __init__(self, client: Client, impatient: Client) -> None:
        self.began_s = time.monotonic()
        self.act = "starting"
        self.submitted = 0
        self.events: Counter[str] = Counter()
        self.story: deque[str] = deque(maxlen=100)
        self.notes: list[str] = []
        self.cluster: dict[str, Any] = {}
        self.nodes: list[dict[str, Any]] = []
        self.daemon_answers = False
        self.ledger = Ledger(impatient)
        self._client, self._impatient = client, impatient
        self._stop = threading.Event()
        self._threads = [self._thread(self._follow), self._thread(self._ask)]

    def start(self) -> None:
        """Begin to look."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """The asking thread ends; the following one sleeps in its stream and goes with the program."""
        self._stop.set()
        self._threads[1].join(timeout=5)

    def tell(self, text: str) -> None:
        """A line of the demo's own."""
        line = f"{self.elapsed_s:5.1f} s  {text}"
        self.notes.append(line)
        self.story.append(line)

    @property
    def elapsed_s(self) -> float:
        """Since the start."""
        return time.monotonic() - self.began_s

    @property
    def ended(self) -> int:
        """Tasks in a terminal state, as last heard."""
        counts = self.cluster.get("tasks", {})
        return sum(counts.get(state, 0) for state in ("succeeded", "failed", "cancelled", "expired", "skipped"))

    def _thread(self, run: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=run, name=f"demo {run.__name__}", daemon=True)

    # ------------------------------------------------------------------

    def _follow(self) -> None:
        since: int | None = 0
        while not self._stop.is_set():
            try:
                for event in self._client.events(since):
                    self._hear(event)
                    if self._stop.is_set():
                        return
            except Gone:
                since = None  # a restarted daemon keeps only its own events
            except (HetschedError, OSError):
                time.sleep(0.2)

    def _hear(self, event: dict[str, Any]) -> None:
        name = event["event"]
        self.events[name] += 1
        if name in _TOLD:
            self.story.append(f"{self.elapsed_s:5.1f} s  {_sentence(event)}")

    def _ask(self) -> None:
        while not self._stop.wait(_ASK_EVERY_S):
            try:
                self.cluster = self._impatient.cluster()
                self.nodes = self._impatient.nodes()["nodes"]
                self.ledger.check()
                self.daemon_answers = True
            except HetschedError:
                self.daemon_answers = False


def _sentence(event: dict[str, Any]) -> str:
    subject = event.get("task") or event.get("node") or ""
    attempt = f" (attempt {event['attempt']})" if event.get("attempt", 1) > 1 else ""
    more = [f"{word} {event[word]}" for word in ("by", "reason", "device", "health") if event.get(word)]
    return f"{event['event']:<10} {subject}{attempt} {' '.join(more)}".rstrip()
