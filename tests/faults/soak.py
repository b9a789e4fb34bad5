"""What a process holds over time, and whether that is level: looks every so often, and the slope through them.

The slope is Theil and Sen's: the median of the slopes between all pairs of looks, which a few peaks do not move.
"""

from __future__ import annotations

import contextlib
import statistics
import time
import urllib.request
from collections import defaultdict
from typing import Any

import psutil

from tests.end_to_end.cluster import Cluster


class Looks:
    """What the parts of a cluster held at each look: (part, what) → [(seconds, amount)]. A part that was started anew begins anew."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._began_s = time.monotonic()
        self.held: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        self._pids: dict[str, int] = {}

    def look(self) -> None:
        """Once, at everybody who lives."""
        now_s = time.monotonic() - self._began_s
        daemon = self._cluster.daemon
        self._at("daemon", daemon.pid, now_s)
        for agent in self._cluster.agents:
            self._at(agent.name, agent.pid, now_s)
        if (server := daemon.journal_server()) is not None:
            self._at("server", server.pid, now_s)
        for name, amount in self._told().items():
            self.held["daemon", name].append((now_s, amount))

    def _at(self, part: str, pid: int, now_s: float) -> None:
        if self._pids.setdefault(part, pid) != pid:
            for key in [key for key in self.held if key[0] == part]:
                del self.held[key]
            self._pids[part] = pid
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                found = {
                    "rss": process.memory_info().rss,
                    "descriptors": process.num_fds(),
                    "threads": process.num_threads(),
                }
        except psutil.NoSuchProcess:
            return
        for name, amount in found.items():
            self.held[part, name].append((now_s, float(amount)))

    def _told(self) -> dict[str, float]:
        text = ""
        wanted = {"hetsched_loop_tasks": "loop tasks", "hetsched_journal_memory_bytes": "journal memory"}
        asked = urllib.request.Request(
            self._cluster.daemon.url + "/metrics", headers={"Authorization": f"Bearer {self._cluster.daemon.token}"}
        )
        with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=5) as answer:
            text = answer.read().decode()
        lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
        return {wanted[name]: float(amount) for name, amount in lines if name in wanted}


def slope(looks: list[tuple[float, float]]) -> float:
    """Per second; 0 for fewer than two looks."""
    pairs = [
        (later - amount) / (at - since)
        for number, (since, amount) in enumerate(looks)
        for at, later in looks[number + 1 :]
        if at > since
    ]
    return statistics.median(pairs) if pairs else 0.0


BOUNDS = {"rss": 0.08, "descriptors": 0.10, "threads": 0.10, "loop tasks": 0.25, "journal memory": 0.25}
"""By how much of its median an amount may grow over the second half of a soak, by its slope; and always by the least below."""

LEAST = {"rss": 3 << 20, "descriptors": 4, "threads": 2, "loop tasks": 6, "journal memory": 4 << 20}


def verdict(held: dict[tuple[str, str], list[tuple[float, float]]]) -> tuple[list[str], list[str]]:
    """(a line for each amount, those that grow)."""
    lines, grows = [], []
    for (part, name), looks in sorted(held.items()):
        half = looks[len(looks) // 2 :]
        if len(half) < 8:
            continue
        length_s = half[-1][0] - half[0][0]
        middle = statistics.median(amount for _, amount in half)
        growth = slope(half) * length_s
        bound = max(BOUNDS[name] * middle, LEAST[name])
        line = f"| {part} | {name} | {_human(name, middle)} | {_human(name, growth)} in {length_s:.0f} s | {_human(name, bound)} |"
        lines.append(line)
        if growth > bound:
            grows.append(line)
    return lines, grows


def _human(name: str, amount: Any) -> str:
    return f"{amount / (1 << 20):.1f} MiB" if name in ("rss", "journal memory") else f"{amount:.1f}"
