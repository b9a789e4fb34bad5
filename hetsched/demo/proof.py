"""What the processes themselves wrote, judged: no task twice at once, and each succeeded one has a whole life.

Lines are `NANOSECONDS WORD TASK ATTEMPT PID` on the machine's monotonic clock, appended by worker.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    at_ns: int
    word: str
    task: str
    attempt: int
    pid: int


def read(path: Path) -> list[Line]:
    """In order of time."""
    try:
        texts = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted(Line(int(w[0]), w[1], w[2], int(w[3]), int(w[4])) for w in (text.split() for text in texts))


def twice(lines: Iterable[Line]) -> list[str]:
    """Tasks of which two processes lived at once: one found the other's lock, or started an attempt that had been started."""
    found = set()
    seen: set[tuple[str, int]] = set()
    for line in lines:
        if line.word == "twice" or (line.word == "start" and (line.task, line.attempt) in seen):
            found.add(line.task)
        if line.word == "start":
            seen.add((line.task, line.attempt))
    return sorted(found)


def unfinished(lines: Iterable[Line], succeeded: Iterable[str]) -> list[str]:
    """Tasks said to have succeeded whose last process never came to its end, or never was."""
    last: dict[str, Line] = {}
    for line in lines:
        last[line.task] = line
    return sorted(task for task in succeeded if task not in last or last[task].word != "end")
