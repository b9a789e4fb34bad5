"""How long something takes of the processor: what else runs on the machine does not count."""

from __future__ import annotations

import time


class Stopwatch:
    """`with` it around what is to be measured, not within itself. `seconds`: in all so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *exc: object) -> None:
        self.seconds += time.thread_time() - self._began
