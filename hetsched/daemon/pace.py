"""How many placements a turn may make: as many as it can within TURN_S of processor time.

A turn is what everybody waits for meanwhile, urgent tasks, heartbeats and questions among them; and only IN_FLIGHT turns wait for the disk at
once. So a fixed number of placements a turn is a bound on placements a second wherever the disk is slow, 150,000 with 1,024 and 27 ms.
"""

from __future__ import annotations

TURN_S = 0.004
FEWEST, MOST = 1024, 32_768


class Pace:
    """`most`: placements in the next turn."""

    def __init__(self) -> None:
        self.most = FEWEST

    def turned(self, cpu_s: float, *, is_cut: bool) -> None:
        """A turn took so long; `is_cut`: more could have been placed. At most twice as many in the next one, at least half."""
        if cpu_s > TURN_S:
            self.most = max(FEWEST, self.most // 2)
        elif is_cut and 2 * cpu_s <= TURN_S:
            self.most = min(MOST, 2 * self.most)
