"""Files that cannot be run are refused with their place; the command line's exit codes keep to the contract."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from hetsched.sim import simulate
from tests.sim.worlds import Run, task, world


@pytest.mark.parametrize(
    ("scenario", "code", "says"),
    [
        ("a: [", 2, "not YAML"),
        ("- 1", 2, "must be a mapping"),
        ("", 2, "must be a mapping"),
        ("{", 2, "not YAML"),
        (world({"at": 0, "cancel": "nobody"}), 2, "nobody"),
        (world({"at": 0, "fail": {"task": "nobody"}}), 2, "nobody"),
        (world({"at": 0, "node_down": "x"}), 2, "no node"),
        (world({"at": 0, "device": {"node": "n", "device": "gpu-9", "health": "failed"}}), 2, "gpu-9"),
        (world(evnts=[]), 4, 'did you mean "events"'),
        (world({"at": 0, "submti": {}}), 4, 'did you mean "submit"'),
        (world({"submit": {}}), 4, "events[0]"),
        (world({"at": -1, "drain": "n"}), 4, "events[0].at"),
        (world({"at": 0, "drain": "n", "cordon": "n"}), 4, "exactly one"),
        (world({"at": 0, "device": {"node": "n", "device": "gpu-0", "health": "ill"}}), 4, "health"),
        (world({"at": 0, "device": 3}), 4, "mapping"),
        (world(seed="x"), 4, "seed"),
        (world(until=-1), 4, "until"),
        (world(start="noon"), 4, "start"),
        (world(config={"bach": {}}), 4, "did you mean batch"),
        (world(nodes=[{"name": "a", "cpu": -1}]), 4, "/nodes/0/cpu"),
        (world(nodes=[{"name": "a"}, {"name": "a"}]), 4, "twice"),
        (world(nodes={}), 4, "nodes"),
        (world(nodes=[{"name": "a", "cpu": -1}]), 4, "refused: /nodes/0/cpu: must not be negative\n"),
        (world(nodes=[{"name": "a", "cpu": -1, "memory": "x"}]), 4, "must not be negative (and 1 more)"),
        (world(queues=[{"name": "q"}, {"name": "q"}]), 4, "q is there twice"),
        (world(queues=[{"name": "q", "weight": 0}]), 4, "/queues/0/weight"),
    ],
)
def test_a_file_that_cannot_be_run_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scenario: Any, code: int, says: str
) -> None:
    assert Run(tmp_path, scenario).code == code
    assert says in capsys.readouterr().err


def test_options_that_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(None, nodes=tmp_path / "n.csv") == 2
    assert simulate(tmp_path / "absent.yaml") == 2
    assert "cannot read" in capsys.readouterr().err


def test_a_preset_that_does_not_exist_is_the_command_line_s_fault(tmp_path: Path) -> None:
    assert Run(tmp_path, world(), policy="best").code == 2


def test_a_whole_submission_that_is_no_submission_is_refused_in_the_run(tmp_path: Path) -> None:
    array = {"template": task("s"), "count": 0}
    run = Run(tmp_path, world({"at": 0, "submit": array}, {"at": 0, "submit": 3}, {"at": 0, "submit": task("a")}))
    assert [event.get("task") for event in run.of("rejected")] == ["s", None]
    assert run.summary["succeeded"] == 1


def test_the_summary_for_people_has_a_line_a_thing(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "nodes: [{name: n, cpu: 4}]\nevents: [{at: 0, submit: {id: a, resources: {cpu: 1}, duration: 1}}]\n"
    )
    out = io.StringIO()
    assert simulate(tmp_path / "s.yaml", out=out) == 0
    assert "succeeded             1\n" in out.getvalue()


def test_moments_are_counted_from_the_start_of_the_scenario(tmp_path: Path) -> None:
    body = task("late", deadline="2026-01-01T00:00:05Z", on_deadline="expire", resources={"cpu": 99})
    run = Run(tmp_path, world({"at": 0, "submit": body}, start="2026-01-01T00:00:00Z"))
    assert run.story("late") == [(0, "queued"), (5, "expired")]
