"""The first parts of devices on an empty cluster: whatever their sizes, they fill a device before they begin another, so that who comes for
all the others finds them whole."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.sim.worlds import Run, world

SIZES = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
PAIRS = [(one, other) for one in SIZES for other in SIZES if one + other <= 1]


def parts_of_one(draw: random.Random) -> list[float]:
    """Sizes that one device holds together."""
    parts: list[float] = []
    while len(parts) < 2 or draw.random() < 0.5:
        fitting = [size for size in SIZES if sum(parts) + size <= 1]
        if not fitting:
            return parts if len(parts) > 1 else parts_of_one(draw)
        parts.append(draw.choice(fitting))
    return parts


def box(name: str, kind: str, count: int, cpu: int) -> dict[str, Any]:
    return {"name": name, "cpu": cpu, "memory": "128Gi", "devices": [{"kind": kind, "model": "X", "count": count}]}


def submitted(at: float, ident: str, **resources: float) -> dict[str, Any]:
    return {"at": at, "submit": {"id": ident, "resources": resources, "duration": 500}}


@pytest.mark.parametrize("count", [2, 4, 8])
def test_who_comes_for_all_other_devices_finds_them_whole(tmp_path: Path, count: int) -> None:
    late = []
    for one, other in PAIRS:
        events = [submitted(0, "one", cpu=1, gpu=one), submitted(1, "other", cpu=1, gpu=other)]
        run = Run(
            tmp_path,
            world(*events, submitted(2, "wide", cpu=4, gpu=count - 1), nodes=[box("box", "gpu", count, 32)], until=100),
        )
        if "placed" not in [event for _, event in run.story("wide")]:
            late.append((one, other))
    assert late == []


@pytest.mark.parametrize("seed", range(40))
def test_parts_that_one_device_holds_begin_no_other_whatever_nodes_there_are(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    kind, count, cpu = draw.choice(("gpu", "tpu", "npu")), draw.choice((2, 4, 8)), draw.choice((1, 2, 4))
    nodes = [box(f"box{at}", kind, count, draw.choice((16, 32, 64))) for at in range(draw.choice((1, 2, 3)))]
    events = [submitted(at, f"part{at}", **{"cpu": cpu, kind: size}) for at, size in enumerate(parts_of_one(draw))]
    run = Run(tmp_path, world(*events, nodes=nodes, until=100))
    assert len({(event["node"], event["devices"][0]["id"]) for event in run.of("placed")}) == 1
    assert len(run.of("placed")) == len(events)
