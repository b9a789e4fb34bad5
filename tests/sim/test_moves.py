"""Moves, seen from outside: who makes room for something larger and goes on elsewhere at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.worlds import Run, world

QUADS = [{"name": f"quad-{n}", "cpu": 8, "devices": [{"kind": "gpu", "count": 4}]} for n in range(3)]


def scattered(count: int, **more: Any) -> dict[str, Any]:
    body = {"id": "small", "qos": "best_effort", "resources": {"gpu": 1}, "duration": 500, "grace": 0, **more}
    return {"at": 0, "submit": {"template": body, "count": count}}


def config(moves: str, **more: Any) -> dict[str, Any]:
    return {"policy": {"preset": "spread"}, "preemption": {"consolidate": moves, **more}, "batch": {"max_wait": 0.05}}


def large(qos: str, gpu: int = 4) -> dict[str, Any]:
    return {"at": 100, "submit": {"id": "large", "qos": qos, "resources": {"gpu": gpu}, "duration": 50}}


@pytest.mark.parametrize(
    ("moves", "qos", "reasons"),
    [
        ("off", "production", [None] * 2),
        ("lower", "production", ["consolidate"] * 2),
        ("lower", "best_effort", []),
        ("equal", "best_effort", ["consolidate"] * 2),
    ],
)
def test_what_is_configured_is_moved(tmp_path: Path, moves: str, qos: str, reasons: list[str | None]) -> None:
    run = Run(tmp_path, world(scattered(6), large(qos), nodes=QUADS, until=2000, config=config(moves)))
    gone = run.of("preempted")
    assert [event.get("reason") for event in gone] == reasons
    assert {event["by"] for event in gone} <= {"large"}
    again = {event["task"]: event["t"] for event in run.of("placed") if event["attempt"] == 2}
    assert set(again) == {event["task"] for event in gone} and all(t <= 100.2 for t in again.values())
    assert run.summary["preemptions"] == len(reasons) and run.summary["succeeded"] == 7


def test_a_gang_of_the_same_level_is_let_in_by_moving_and_nothing_moves_back(tmp_path: Path) -> None:
    crew = {
        "id": "crew",
        "qos": "best_effort",
        "resources": {"gpu": 2},
        "gang": {"id": "crew", "size": 2},
        "duration": 50,
    }
    crew["topology"] = {"same": "node", "required": True}
    events = [scattered(6), {"at": 100, "submit": {"template": crew, "count": 2}}]
    run = Run(tmp_path, world(*events, nodes=QUADS, until=2000, config=config("equal")))
    assert len(run.of("preempted")) == 2 and {event["t"] for event in run.of("preempted")} == {100.05}
    assert run.summary["succeeded"] == 8


def test_what_is_as_large_as_the_newcomer_is_not_moved_for_it(tmp_path: Path) -> None:
    wide = {"id": "wide", "qos": "best_effort", "resources": {"gpu": 1, "cpu": 8}, "duration": 50}
    events = [scattered(2, resources={"gpu": 1.5, "cpu": 1}), {"at": 9, "submit": wide}]
    run = Run(tmp_path, world(*events, nodes=QUADS[:2], until=90, config=config("equal")))
    assert run.of("preempted") == []
