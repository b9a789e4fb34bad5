"""What Google's `tpu-info` prints: the table of memory and duty cycle, in plain and in box-drawing style.

The numbers exist only while some program holds the chips; before, the table is missing or says N/A, and nothing is known.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

import msgspec

from hetsched.agent.discovery.catalogue import GIB

_TIMEOUT_S = 10.0
_EVERY_S = 5.0  # it starts a Python and asks every runtime over gRPC: not more often than the daemon pulls


class TpuUsage(msgspec.Struct, frozen=True):
    """One row. `chip` is the tool's own number, good for nothing but order. Percent of time that the chip was busy."""

    chip: str
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    duty_percent: float | None

    @staticmethod
    def merged(rows: Sequence[TpuUsage]) -> TpuUsage:
        """The cores of one chip as one: memories add up, the busier core counts."""
        used = [row.memory_used_bytes for row in rows if row.memory_used_bytes is not None]
        total = [row.memory_total_bytes for row in rows if row.memory_total_bytes is not None]
        duty = [row.duty_percent for row in rows if row.duty_percent is not None]
        return TpuUsage(
            rows[0].chip, sum(used) if used else None, sum(total) if total else None, max(duty) if duty else None
        )


def parse_tpu_info(text: str) -> list[TpuUsage]:
    """The rows of the table with the column "HBM Usage", in the tool's order; [] when there is none."""
    rows: list[TpuUsage] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"[|│┃]", line)]
        if len(cells) < 5:
            inside = inside and bool(set(line) & set("-─━═┼╇"))
        elif "HBM Usage" in cells[2]:
            inside = True
        elif inside and re.search(r"\d", cells[1]):
            rows.append(TpuUsage(cells[1], *_memory(cells[2]), _percent(cells[3])))
    return rows


def open_tpu_info(clock: Callable[[], float] = time.monotonic) -> Callable[[], str | None] | None:
    """A caller of the tool that remembers its answer for a few seconds; None when the tool is not installed."""
    path = shutil.which("tpu-info")
    if path is None:
        return None
    last: tuple[float, str | None] = (-_EVERY_S, None)

    def call() -> str | None:
        nonlocal last
        now_s = clock()
        if now_s - last[0] >= _EVERY_S:
            last = (now_s, _run(path))
        return last[1]

    return call


def _run(path: str) -> str | None:
    try:
        done = subprocess.run([path], capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def _memory(text: str) -> tuple[int | None, int | None]:
    """ "17.26 GiB / 31.25 GiB" → bytes, bytes."""
    found = re.fullmatch(r"([\d.]+) GiB / ([\d.]+) GiB", text)
    return (int(float(found[1]) * GIB), int(float(found[2]) * GIB)) if found else (None, None)


def _percent(text: str) -> float | None:
    found = re.fullmatch(r"([\d.]+)\s*%", text)
    return float(found[1]) if found else None
