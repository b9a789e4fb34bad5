"""The examples say what they mean: each is read by the same code that will read it in earnest."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.cli import task_files
from hetsched.model import Task, parse_submission
from hetsched.sim.read_scenario import load_scenario, read_scenario

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNTS = {"array.yaml": 100, "chain.yaml": 3, "gang.yaml": 4}


@pytest.mark.parametrize("name", COUNTS)
def test_task_files(name: str) -> None:
    submission = parse_submission(task_files.read(str(EXAMPLES / name)))
    assert [isinstance(item, Task) for item in submission.items] == [True] * COUNTS[name]


def test_the_scenario() -> None:
    scenario = read_scenario(load_scenario(EXAMPLES / "mixed.yaml"))
    assert [node.name for node in scenario.nodes] == ["a100-0", "a100-1", "tpu-0"]


def test_every_example_is_tried_here() -> None:
    names = {path.name for path in EXAMPLES.iterdir()}
    assert names == {
        *COUNTS,
        "mixed.yaml",
        "first-task.sh",
        "scorer_plugin",
    }  # the plug-in: tests/policy/test_plugins.py
