"""`speeds:`: the same work takes its time by where it runs, and the scheduler is not told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sim.worlds import Run, task, world

NODES = [
    {"name": "old", "cpu": 8, "devices": [{"kind": "gpu", "model": "T4", "count": 4}]},
    {"name": "mixed", "cpu": 8, "devices": [{"kind": "gpu", "model": m, "count": 1} for m in ("A10", "T4", "H100")]},
    {"name": "plain", "cpu": 64},
]
SPEEDS = {
    "render": {"T4": 0.25, "A10": 0.5},
    "train": {"T4": {1: 1, "4": 2.5}},
    "*": {"cpu": 0.1},
}


def ran_s(tmp_path: Path, *on: str, resources: dict[str, Any], **more: Any) -> float:
    """How long a task of ten seconds runs on a node."""
    body = task("t", resources=resources, **more)
    nodes = [node for node in NODES if node["name"] in on]
    run = Run(tmp_path, world({"at": 0, "submit": body}, nodes=nodes, speeds=SPEEDS))
    assert run.code == 0
    return float(run.story("t")[-1][0])


@pytest.mark.parametrize(
    ("kind", "on", "resources", "seconds"),
    [
        ("render", "old", {"gpu": 1}, 40),
        ("render", "old", {"gpu": 0.5}, 40),
        ("render", "mixed", {"gpu": 3}, 40),  # the slowest sets the pace
        ("render", "plain", {"cpu": 1}, 10),  # kinds that are named have nothing from "*"
        ("other", "plain", {"cpu": 1}, 100),
        ("other", "old", {"gpu": 1}, 10),
        ("train", "old", {"gpu": 1}, 10),
        ("train", "old", {"gpu": 3}, 10),  # the next smaller number that is named
        ("train", "old", {"gpu": 4}, 4),
    ],
)
def test_a_duration_is_stated_for_speed_one(
    tmp_path: Path, kind: str, on: str, resources: dict[str, Any], seconds: float
) -> None:
    assert ran_s(tmp_path, on, kind=kind, resources=resources) == seconds


def test_a_time_limit_is_of_the_clock(tmp_path: Path) -> None:
    assert ran_s(tmp_path, "old", kind="render", resources={"gpu": 1}, time_limit=15) == 15


def test_checkpoints_secure_work_not_time(tmp_path: Path) -> None:
    body = task("t", kind="render", qos="background", resources={"gpu": 4}, checkpoint=5, duration=20)
    urgent = task("u", kind="other", resources={"gpu": 4}, duration=1)
    events = {"at": 0, "submit": body}, {"at": 30, "submit": urgent}
    run = Run(tmp_path, world(*events, nodes=NODES[:1], speeds=SPEEDS, config={"batch": {"max_wait": 0}}, until=1000))
    # 30 s at a quarter are 7.5 s of work, 5 of them kept: 15 are left, which take 60 s from 31 on.
    assert run.story("t")[-1] == (91, "succeeded")


@pytest.mark.parametrize(
    ("speeds", "complaint"),
    [
        ([], "speeds: must be a mapping"),
        ({"render": 2}, "speeds.render: must be a mapping"),
        ({"render": {"T4": 0}}, "speeds.render.T4: must be a factor"),
        ({"render": {"T4": {}}}, "speeds.render.T4: needs"),
        ({"render": {"T4": {0: 1}}}, "speeds.render.T4: must be a factor, or"),
        ({"render": {"T4": {2: True}}}, "speeds.render.T4.2: must be a factor"),
    ],
)
def test_what_is_no_speed_refuses_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], speeds: Any, complaint: str
) -> None:
    assert Run(tmp_path, world(speeds=speeds)).code == 4
    assert complaint in capsys.readouterr().err
