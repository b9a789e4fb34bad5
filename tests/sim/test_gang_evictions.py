"""Gangs that evict, seen from outside: whole or not at all, for nobody too much, and the hole is kept until the last victim's end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.worlds import Run, world

PAIRS = [{"name": f"pair-{n}", "cpu": 8, "devices": [{"kind": "gpu", "count": 2}]} for n in range(2)]


def soft(ident: str, count: int, **more: Any) -> dict[str, Any]:
    body = {"id": ident, "qos": "background", "resources": {"gpu": 1}, "duration": 1000, "grace": 0, **more}
    return {"template": body, "count": count}


def gang(ident: str, size: int, **more: Any) -> dict[str, Any]:
    body = {
        "id": ident,
        "qos": "critical",
        "resources": {"gpu": 1},
        "duration": 50,
        "gang": {"id": ident, "size": size},
    }
    return {"template": body | more, "count": size}


def at(run: Run, event: str) -> dict[str, float]:
    """When it happened to each task, first."""
    found: dict[str, float] = {}
    for one in run.of(event):
        found.setdefault(one["task"], one["t"])
    return found


def test_a_critical_gang_goes_at_once_through_the_immediate_lane(tmp_path: Path) -> None:
    events = [{"at": 0, "submit": soft("v", 4)}, {"at": 10, "submit": gang("crew", 3)}]
    run = Run(tmp_path, world(*events, nodes=PAIRS, until=40))
    assert len(run.of("preempted")) == 3
    crew = [event for event in run.of("placed") if event["task"].startswith("crew")]
    assert {(event["t"], event["lane"]) for event in crew} == {(10, "immediate")} and len(crew) == 3


@pytest.mark.parametrize(("stop_time", "ends"), [(5, 15), (40, 40)])
def test_the_hole_is_kept_until_the_last_victim_is_gone_and_then_all_start(
    tmp_path: Path, stop_time: float, ends: float
) -> None:
    events = [
        {"at": 0, "submit": soft("quick", 2, grace=0)},
        {"at": 0, "submit": soft("slow", 2, grace=30, stop_time=stop_time)},
        {"at": 9, "submit": soft("opportunist", 1, duration=5)},
        {"at": 10, "submit": gang("crew", 4)},
    ]
    run = Run(tmp_path, world(*events, nodes=PAIRS, until=60))
    placed = at(run, "placed")
    assert [placed[f"crew-{n}"] for n in range(4)] == [ends] * 4
    assert "opportunist-0" not in placed


def test_nobody_is_stopped_for_a_gang_that_would_not_fit_whole(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": soft("rock", 1, preemptible=False)},
        {"at": 0, "submit": soft("v", 3)},
        {"at": 10, "submit": gang("crew", 4)},
        {"at": 20, "submit": gang("wide", 2, resources={"gpu": 2})},
    ]
    assert Run(tmp_path, world(*events, nodes=PAIRS, until=60)).of("preempted") == []


def test_of_two_gangs_only_one_finds_victims_and_nobody_is_stopped_twice(tmp_path: Path) -> None:
    events = [{"at": 0, "submit": soft("v", 4)}, {"at": 10, "submit": [gang("one", 3), gang("two", 3)]}]
    run = Run(tmp_path, world(*events, nodes=PAIRS, until=200))
    placed = at(run, "placed")
    assert {placed[f"one-{n}"] for n in range(3)} == {10}
    assert {placed[f"two-{n}"] for n in range(3)} == {60}
    assert len([event for event in run.of("preempted") if event["t"] == 10]) == 3


def test_a_node_lost_under_a_claim_gives_it_up_and_the_gang_claims_anew(tmp_path: Path) -> None:
    """Those who were told to go on the other node are waited for first, then two more have to go."""
    nodes = [{"name": f"pair-{n}", "cpu": 8, "devices": [{"kind": "gpu", "count": 2}]} for n in range(3)]
    events = [
        {"at": 0, "submit": soft("v", 6, grace=20, stop_time=20)},
        {"at": 10, "submit": gang("crew", 4)},
        {"at": 15, "node_down": "pair-0"},
    ]
    run = Run(tmp_path, world(*events, nodes=nodes, until=200))
    placed = at(run, "placed")
    assert len({placed[f"crew-{n}"] for n in range(4)}) == 1 and placed["crew-0"] == 50


def test_a_gang_kept_to_a_rack_clears_the_cheapest_rack_only(tmp_path: Path) -> None:
    nodes = [
        {"name": f"r{rack}-{n}", "cpu": 8, "labels": {"rack": f"r{rack}"}, "devices": [{"kind": "gpu", "count": 2}]}
        for rack in range(3)
        for n in range(2)
    ]
    events = [
        {"at": 0, "submit": soft("v", 12)},
        {"at": 5, "cancel": "v-6"},
        {"at": 10, "submit": gang("crew", 4, topology={"same": "rack", "required": True})},
    ]
    run = Run(tmp_path, world(*events, nodes=nodes, until=40))
    home = {event["task"]: event["node"].split("-")[0] for event in run.of("placed")}
    assert len({home[f"crew-{n}"] for n in range(4)}) == 1
    assert len(run.of("preempted")) == 3
    assert {home[event["task"]] for event in run.of("preempted")} == {home["crew-0"]} == {home["v-6"]}


def test_checkpoints_choose_the_victims_of_a_gang(tmp_path: Path) -> None:
    events = [
        {"at": 0, "submit": soft("bold", 2)},
        {"at": 0, "submit": soft("wary", 2, checkpoint=10)},
        {"at": 101, "submit": gang("crew", 2)},
    ]
    run = Run(tmp_path, world(*events, nodes=PAIRS, until=140))
    assert {event["task"] for event in run.of("preempted")} == {"wary-0", "wary-1"}
