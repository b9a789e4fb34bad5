"""When a node that says nothing counts as lost: the one clock that stands between silence and a second start of its tasks.

A node keeps its tasks running for `lease` after the last heartbeat that was acknowledged, then its shims stop them, which takes each
task's `grace`. Only after that, and a margin for clocks that run at different speeds, is nothing alive there any more.
After a restart of the daemon all that is known is that heartbeats were acknowledged until just before: counted from its start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MARGIN_SHARE = 0.05
MARGIN_S = 1.0
"""Margin = 1 s + 5 % of lease and grace: far above what two quartz clocks differ by, small against the lease."""


class Silences:
    """One timer per silent node. `lost(node)` is called when its time is over; times are of the loop's clock, in seconds."""

    def __init__(self, lease_s: float, grace_s: Callable[[str], float], lost: Callable[[str], None]) -> None:
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._lost = lost
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def begin(self, node: str, heard_s: float) -> None:
        """The node was last heard at `heard_s` and its link is gone."""
        self.end(node)
        loop = asyncio.get_running_loop()
        self._timers[node] = loop.call_at(max(loop.time(), heard_s + self.patience_s(node)), self._over, node)

    def end(self, node: str) -> None:
        """It is back, or known to be lost."""
        timer = self._timers.pop(node, None)
        if timer is not None:
            timer.cancel()

    def clear(self) -> None:
        """Forget all: the daemon stops, and stopping says nothing about the nodes."""
        for node in list(self._timers):
            self.end(node)

    def patience_s(self, node: str) -> float:
        """Seconds from its last acknowledged heartbeat until nothing can be alive there."""
        bound_s = self._lease_s + self._grace_s(node)
        return bound_s + MARGIN_S + MARGIN_SHARE * bound_s

    def _over(self, node: str) -> None:
        del self._timers[node]
        self._lost(node)
