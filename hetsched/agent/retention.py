"""What is kept of ended attempts, and for how long: by age, by number and by size, the oldest go first.

Only attempts whose end the daemon has on disk are ever removed. What is removed is forgotten whole; its log is then "gone".
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from hetsched.agent.attempts import Key
from hetsched.agent.spool import Entry, Spool
from hetsched.config import Agent


class Kept(msgspec.Struct, frozen=True):
    """A settled attempt: when it was settled (seconds), what it occupies on disk."""

    key: Key
    settled_at: float
    size_bytes: int


def to_remove(kept: list[Kept], rules: Agent, now: float) -> list[Kept]:
    """Which have to go. Pure."""
    newest_first = sorted(kept, key=lambda one: one.settled_at, reverse=True)
    gone, size_bytes = [], 0
    for number, one in enumerate(newest_first):
        size_bytes += one.size_bytes
        old = now - one.settled_at > rules.log_retention
        if old or number >= rules.log_attempts or size_bytes > rules.log_total_bytes:
            gone.append(one)
    return gone


def settled(spool: Spool, entries: list[Entry]) -> list[Kept]:
    """Those of `entries` that may be removed. Blocks."""
    return [
        Kept(entry.key, entry.settled_at, 0 if _is_silent(entry) else _size_bytes(spool.path(entry.key)))
        for entry in entries
        if entry.settled_at
    ]


def _is_silent(entry: Entry) -> bool:
    return entry.ended is not None and entry.ended.silent


def _size_bytes(path: Path) -> int:
    """Blocks on disk, so that holes and hard links of the task's own making are counted as what they take."""
    total = 0
    for directory, _, names in os.walk(path, onerror=None, followlinks=False):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                continue
    return total
