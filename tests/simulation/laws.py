"""The words of the laws: states in which tasks live and end, and what is raised where a law is broken."""

from __future__ import annotations

TERMINAL = ("succeeded", "failed", "cancelled", "expired", "skipped")
LIVE = ("placed", "running", "stopping")
RANK = {"held": 0, "queued": 0, "backoff": 0, "placed": 1, "running": 2, "stopping": 3, **dict.fromkeys(TERMINAL, 9)}


class Violation(AssertionError):
    """`law`: which promise is broken."""

    def __init__(self, law: str, sentence: str) -> None:
        super().__init__(f"{law}: {sentence}")
        self.law = law
