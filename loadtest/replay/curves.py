"""Two charts of a replay, both sides in each: devices in use from hour to hour, and the waits of the smallest and the largest jobs, sorted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.plot import Points, lines

SIDES = ("ours", "plain")
SIZES = ("1", "8", ">8")
PER_DAY = 24


def draw_curves(folder: Path, out: Mapping[str, Any]) -> None:
    """Write `replay-in-use.svg` and `replay-waits.svg` of what `compared` returned."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = [name for name in SIDES if name in out]
    load = f"{100 * out['load']:.0f} % load"
    in_use = {name: _by_quarter_day(out[name]["hours"]) for name in sides}
    title = f"GPUs in use, {load}, dashed: all there are"
    most = 100 * (out["devices"] // 100 + 1)
    chart = lines(title, "days", "GPUs", in_use, least=0, most=most, mark=out["devices"])
    (folder / "replay-in-use.svg").write_text(chart)
    waits = {f"{size} GPU, {name}": _sorted(out[name], size) for size in SIZES for name in sides}
    longest = max(hours for points in waits.values() for _, hours in points)
    title = f"Waits of the jobs of a size, sorted, {load}"
    chart = lines(title, "% of the jobs of that size", "hours", waits, least=0, most=10 * (longest // 10 + 1))
    (folder / "replay-waits.svg").write_text(chart)


def _by_quarter_day(hours: list[float]) -> Points:
    step = PER_DAY // 4
    return [
        ((at + step / 2) / PER_DAY, sum(hours[at : at + step]) / len(hours[at : at + step]))
        for at in range(0, len(hours), step)
    ]


def _sorted(told: Mapping[str, Any], size: str) -> Points:
    """Percent of the jobs, and the hours that so many wait at most."""
    found = told["classes"]["size"].get(size)
    return [(0.0, 0.0)] if found is None else [(float(at), wait / 3600) for at, wait in enumerate(found["percentiles"])]
