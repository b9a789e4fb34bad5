"""Who is stopped for whom, seen from outside: never more than needed, and what is held is held until the victim's end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.worlds import Run, task, world

TWO_NODES = [
    {"name": name, "cpu": 8, "devices": [{"kind": "gpu", "count": count}]} for name, count in (("a", 1), ("b", 2))
]


def soft(ident: str, **more: Any) -> dict[str, Any]:
    return {"id": ident, "qos": "background", "resources": {"gpu": 1}, "duration": 1000, **more}


def test_what_a_gang_leaves_on_other_nodes_spares_the_next_victim(tmp_path: Path) -> None:
    """The gang goes as a whole for the first; the second takes what the gang leaves behind instead of stopping anybody."""
    herd = {"template": soft("g", gang={"id": "g", "size": 2}, node_selector={}), "count": 2}
    events = [
        {"at": 0, "submit": soft("old")},
        {"at": 50, "submit": herd},
        {"at": 60, "submit": [task("first", resources={"gpu": 1}), task("second", resources={"gpu": 1})]},
    ]
    run = Run(tmp_path, world(*events, nodes=TWO_NODES, until=65))
    assert [event["task"] for event in run.of("preempted")] == ["g-0", "g-1"]
    placed = {event["task"]: event["t"] for event in run.of("placed")}
    assert (placed["first"], placed["second"]) == (60, 60)


@pytest.mark.parametrize("stop_time", [2, 40])
def test_the_preemptor_waits_for_the_last_victim_and_at_most_its_grace(tmp_path: Path, stop_time: float) -> None:
    events = [
        {"at": 0, "submit": [soft(f"v{n}", stop_time=stop_time, grace=30) for n in range(3)]},
        {"at": 10, "submit": task("boss", resources={"gpu": 2})},
    ]
    run = Run(tmp_path, world(*events, nodes=TWO_NODES, until=100))
    assert len(run.of("preempted")) == 2
    assert {event["t"] for event in run.of("requeued")} == {10 + min(stop_time, 30)}
    assert (10 + min(stop_time, 30), "placed") in run.story("boss")


def test_a_victim_queues_again_at_once_in_its_old_place(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": [soft("v0"), soft("v1"), soft("v2")]},
        {"at": 1, "submit": soft("later")},
        {"at": 10, "submit": task("boss", resources={"gpu": 1})},
    ]
    run = Run(tmp_path, world(*events, nodes=TWO_NODES, until=30))
    (victim,) = [event["task"] for event in run.of("preempted")]
    assert [event["task"] for event in run.of("placed")][3:] == ["boss", victim]


def test_nobody_is_stopped_in_vain(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": [soft("v0"), soft("v1"), soft("v2")]},
        {"at": 1, "submit": task("huge", resources={"gpu": 3})},
    ]
    assert Run(tmp_path, world(*events, nodes=TWO_NODES, until=30)).of("preempted") == []


def test_critical_work_is_never_a_victim(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": [task(f"c{n}", resources={"gpu": 1}, duration=50) for n in range(3)]},
        {"at": 1, "submit": task("late", resources={"gpu": 1})},
    ]
    run = Run(tmp_path, world(*events, nodes=TWO_NODES))
    assert run.of("preempted") == []
    assert run.story("late")[1][0] == 50
