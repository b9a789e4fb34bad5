"""How late the event loop comes to what is due: whatever holds it longer than a turn should is seen here, whoever it was.

A timer looks at itself after a turn, ten times a second at most; while nothing happens there is none, and nothing polls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LOOK_S = 0.1


class Lag:
    """`observe` is told by how many seconds each look came too late."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._is_looking = False

    def stir(self) -> None:
        """Something happens: look soon."""
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look, time.monotonic() + LOOK_S)

    def _look(self, due_s: float) -> None:
        self._is_looking = False
        self._observe(max(0.0, time.monotonic() - due_s))
