"""Bounded waiting in the protocol of the published studies: decided again until patience is over, then placed or dropped."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from hetsched.sim import simulate

NODES = "sn,cpu_milli,memory_mib,gpu,model\nbig,400000,1048576,20,T4\nlast,32000,131072,1,T4\n"
COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
NEVER = "never,1000,1024,30,1000,\n"
FULL = (
    "half,1000,1024,1,500,\n" * 40 + NEVER * 10
)  # after 50 capacity is priced: less than a half is of no use; `last` is free
WIDE = "wide,1000,1024,1,700,\n"
REST = "rest,1000,1024,1,250,\n"
PATIENT = ("policy.patience=0.005",)  # five arrivals


def decisions(folder: Path, tasks: str, *sets: str) -> list[tuple[int, str, int]]:
    """(sequence, action, tasks that had arrived)."""
    (folder / "nodes.csv").write_text(NODES)
    (folder / "tasks.csv").write_text(COLUMNS + tasks)
    paths = {"nodes": folder / "nodes.csv", "tasks": folder / "tasks.csv", "placements": folder / "p.csv"}
    assert simulate(out=io.StringIO(), sets=sets, **paths) == 0
    return [(int(row["seq"]), row["action"], int(row["arrived"])) for row in csv.DictReader((folder / "p.csv").open())]


@pytest.mark.parametrize(
    ("then", "sets", "arrived"),
    [
        (NEVER * 9, (), 51),
        (NEVER * 9, PATIENT, 56),
        (NEVER * 2, PATIENT, 53),
        (REST + NEVER * 9, PATIENT, 52),
    ],
    ids=["without patience", "at its bound", "when nobody comes any more", "as soon as it fits in well"],
)
def test_who_would_spoil_a_device_is_decided_again(
    tmp_path: Path, then: str, sets: tuple[str, ...], arrived: int
) -> None:
    assert [one for one in decisions(tmp_path, FULL + WIDE + then, *sets) if one[0] == 50] == [(50, "place", arrived)]


def test_who_waited_and_finds_the_place_taken_is_dropped_once(tmp_path: Path) -> None:
    taken = FULL + WIDE + "whole,1000,1024,1,1000,\n" + NEVER * 9
    assert [one for one in decisions(tmp_path, taken, *PATIENT) if one[0] >= 50][:2] == [
        (51, "place", 52),
        (52, "reject", 53),
    ]
    assert [one for one in decisions(tmp_path, taken, *PATIENT) if one[0] == 50] == [(50, "reject", 56)]


def test_the_same_file_gives_the_same_decisions(tmp_path: Path) -> None:
    tasks = FULL + (WIDE + NEVER + REST) * 5
    assert decisions(tmp_path, tasks, *PATIENT) == decisions(tmp_path, tasks, *PATIENT)
