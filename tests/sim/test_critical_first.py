"""The batch lane decides without the critical ones, and takes nothing that is kept for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.worlds import Run, task, world


def test_room_that_is_kept_for_a_critical_gang_is_nobody_elses_in_the_batch_lane(tmp_path: Path) -> None:
    """Of four devices two come free at 100, two at 200. `wide` needs all, `pair` would be in its way, `long` too, `short` not."""
    batch = {"qos": "production"}
    wide = task("wide", resources={"gpu": 2}, duration=300, gang={"id": "wide", "size": 2})
    pair = task("pair", resources={"gpu": 1}, duration=250, gang={"id": "pair", "size": 2})
    events = [
        {"at": 0, "submit": [task(f"for-{end}", resources={"gpu": 2}, duration=end) for end in (100, 200)]},
        {"at": 1, "submit": {"template": wide, "count": 2}},
        {"at": 2, "submit": {"template": pair, "count": 2}},
        {"at": 3, "submit": task("long", resources={"gpu": 2}, duration=150, **batch)},
        {"at": 4, "submit": task("short", resources={"gpu": 1}, duration=50, **batch)},
    ]
    run = Run(tmp_path, world(*events, until=700))
    placed_s = {event["task"]: event["t"] for event in run.of("placed")}
    assert placed_s["short"] == pytest.approx(100, abs=0.11)
    assert (placed_s["wide-0"], placed_s["wide-1"]) == (200, 200)
    assert (placed_s["pair-0"], placed_s["pair-1"]) == (500, 500)
    assert placed_s["long"] == pytest.approx(500, abs=0.11)
