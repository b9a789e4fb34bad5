"""How fast a world lives: the same happenings, closer together or further apart.

`dense`: leases of 10 s, tasks of seconds, a fault a minute; waits that hetsched fixes itself (an answer of 10 s, a link's pause of 3 s) are as
long as a lease. `calm`: leases of a minute, tasks of minutes, a fault every four: leases are far longer than those waits, and every fault still
meets as many tasks. An hour of either counts as an hour; reports say which.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple


class Pace(NamedTuple):
    """`scale`: what lasts a second in `dense` lasts so long."""

    name: str
    scale: int
    fault_s: float

    def config(self, rng: random.Random) -> dict[str, Any]:
        """hetsched's, for such a world: leaders' leases are shorter or longer than those of agents."""
        scale = self.scale
        return {
            "agent": {
                "lease": 10.0 * scale,
                "heartbeat": 3.0 * scale,
                "pull_every": 20.0 * scale,
                "measure_every": 10.0 * scale,
                "allow_root": True,
                "log_attempts": 20,
                "default_user": "",
            },
            "store": {
                "snapshot_every": rng.choice((20.0, 120.0)) * scale,
                "lease": rng.choice((4.0, 6.0, 6.0, 15.0)) * scale,
            },
            "health": {"auto_cordon": False},
            "gang": {"repair": 20.0 * scale},
        }

    @property
    def look_s(self) -> float:
        """Between two looks of a shim that nobody nudges."""
        return 5.0 * self.scale

    @property
    def waking_s(self) -> float:
        """After a machine stood still: a shim's next look, the longest grace of any task, and a little."""
        return self.look_s + 10.0 * self.scale + 1.0

    @property
    def repair_s(self) -> float:
        """A gang's repair and a little, while a daemon leads and what it decides is let out."""
        return 30.0 * self.scale

    @property
    def stop_s(self) -> float:
        """From the order to stop until nothing lives, while everybody hears: the longest grace, shims that are born late and agents that are
        killed on the way, lines that are opened again."""
        return 10.0 * self.scale + self.birth_s + 50.0 * self.scale

    @property
    def birth_s(self) -> float:
        """The longest that a machine which pages takes from an order to the birth of its shim."""
        return 60.0 * self.scale

    @property
    def gone_s(self) -> float:
        """From a machine's last word until everybody knows that nothing lives there: lease, grace, margin, and a daemon that stands still."""
        return 150.0 * self.scale

    @property
    def longest_s(self) -> float:
        """Within which a daemon comes up: no fault keeps it or its store away for as long."""
        return 600.0 * self.scale


DENSE = Pace("dense", 1, 60.0)
CALM = Pace("calm", 6, 240.0)
PACES = {pace.name: pace for pace in (DENSE, CALM)}
