"""What must or would like to stay together, through the whole scheduler: boards, racks, lost nodes, mixed models, and what people are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.worlds import Run, task, world

SIDES = [{"kind": "gpu", "count": 2, "numa": side, "nvlink": f"island{side}", "pcie": side} for side in (0, 1)]
SCATTERED = [
    {"kind": "gpu", "numa": 0, "nvlink": "a", "pcie": "a"},
    {"kind": "gpu", "numa": 1, "nvlink": "b", "pcie": "b"},
]


def node(name: str, devices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"name": name, "cpu": 32, "memory": "64Gi", "devices": devices, **more}


def pair(ident: str, same: str, *, required: bool, **more: Any) -> dict[str, Any]:
    return task(
        ident, resources={"gpu": 2, "cpu": 1}, topology={"same": same, "required": required}, duration=100, **more
    )


def where(run: Run, ident: str) -> list[tuple[float, str, list[str]]]:
    """(t, node, devices) of every placement."""
    return [
        (event["t"], event["node"], [device["id"] for device in event.get("devices", [])])
        for event in run.of("placed")
        if event["task"] == ident
    ]


@pytest.mark.parametrize("same", ["numa", "nvlink", "pcie"])
def test_a_required_pair_waits_for_an_island_and_a_wished_one_does_not(same: str, tmp_path: Path) -> None:
    one = {"gpu": 1, "cpu": 1}
    run = Run(
        tmp_path,
        world(
            {"at": 0, "submit": task("short", resources=one, duration=50)},
            {"at": 1, "submit": task("other", resources=one, topology={"same": same}, duration=500, models=[])},
            {"at": 2, "submit": task("side", resources={"gpu": 1, "cpu": 1}, duration=500)},
            {"at": 3, "submit": pair("must", same, required=True)},
            {"at": 60, "submit": pair("would", same, required=False)},
            nodes=[node("n", SIDES)],
        ),
    )
    assert where(run, "short") == [(0, "n", ["gpu-0"])]
    assert where(run, "other") == [(1, "n", ["gpu-1"])]
    assert where(run, "side") == [(2, "n", ["gpu-2"])]
    assert where(run, "must")[0][0] > 400, "gpu-0 and gpu-3 are free from 50 on, on two islands"
    assert where(run, "would") == [(60, "n", ["gpu-0", "gpu-3"])]


def test_a_lost_node_sends_a_pair_to_another_island_whole(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        world(
            {"at": 0, "submit": pair("must", "numa", required=True)},
            {"at": 10, "node_down": "first"},
            {"at": 20, "node_up": "first"},
            {"at": 21, "device": {"node": "second", "device": "gpu-0", "health": "failed"}},
            nodes=[node("first", SIDES), node("second", SIDES), node("third", SCATTERED)],
        ),
    )
    assert [(at, place) for at, place, _ in where(run, "must")] == [(0, "first"), (10, "second"), (21, "first")]
    assert all(devices in (["gpu-0", "gpu-1"], ["gpu-2", "gpu-3"]) for _, _, devices in where(run, "must"))


def test_a_gang_with_a_wish_keeps_to_a_rack_and_returns_to_one(tmp_path: Path) -> None:
    gpus = [{"kind": "gpu", "count": 2}]
    racks = [node(f"{rack}{at}", gpus, labels={"rack": rack}) for at in range(2) for rack in ("a", "b")]
    members = {
        "template": task(
            "m", resources={"gpu": 1}, gang={"id": "g", "size": 4}, topology={"same": "rack"}, duration=300
        ),
        "count": 4,
    }
    run = Run(
        tmp_path,
        world({"at": 0, "submit": members}, {"at": 50, "node_down": "a1"}, nodes=racks, config={"gang": {"repair": 0}}),
    )
    first = {place[0] for ident in range(4) for at, place, _ in where(run, f"m-{ident}")[:1]}
    assert first == {"a"}, "a0 and a1, though b0 comes before a1"
    last = {where(run, f"m-{ident}")[-1][1] for ident in range(4)}
    assert len({place[0] for place in last}) <= 2
    assert run.summary["succeeded"] == 4


@pytest.mark.parametrize("required", [True, False])
def test_a_gang_that_names_islands_goes_to_one_board_and_there_to_one_island(required: bool, tmp_path: Path) -> None:
    quads = [{"kind": "gpu", "count": 4, "nvlink": island} for island in ("left", "right")]
    template = task("m", resources={"gpu": 1, "cpu": 1}, gang={"id": "g", "size": 4}, duration=100)
    run = Run(
        tmp_path,
        world(
            {"at": 0, "submit": task("small", resources={"gpu": 1, "cpu": 1}, duration=500)},
            {
                "at": 1,
                "submit": {"template": {**template, "topology": {"same": "nvlink", "required": required}}, "count": 4},
            },
            nodes=[node("a", [{"kind": "gpu", "count": 3, "nvlink": "x"}]), node("b", quads)],
        ),
    )
    places = [where(run, f"m-{at}")[0] for at in range(4)]
    assert {place for _, place, _ in places} == {"b"}
    assert len({int(devices[0][-1]) // 4 for _, _, devices in places}) == 1


def test_a_pattern_takes_the_fastest_device_of_a_mixed_board(tmp_path: Path) -> None:
    mixed = [{"kind": "gpu", "model": model} for model in ("T4", "V100", "H100")]
    events = [
        {"at": at, "submit": task(f"t{at}", pattern="matrix-heavy", resources={"gpu": 1, "cpu": 1}, duration=100)}
        for at in range(3)
    ]
    run = Run(tmp_path, world(*events, nodes=[node("n", mixed)]), policy="affinity")
    assert [where(run, f"t{at}")[0][2] for at in range(3)] == [["gpu-2"], ["gpu-1"], ["gpu-0"]]
