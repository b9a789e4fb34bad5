"""What a simulated task goes through: to the letter, with its times."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched.sim.engine import Engine
from hetsched.sim.read_scenario import read_scenario
from tests.sim.worlds import Run, task, world


def test_a_task_is_placed_runs_for_its_duration_and_succeeds(tmp_path: Path) -> None:
    run = Run(tmp_path, world({"at": 1, "submit": task("a")}))
    assert run.story("a") == [(1, "queued"), (1, "placed"), (1, "running"), (11, "succeeded")]
    assert run.of("placed")[0]["node"] == "n"


def test_the_batch_lane_waits_for_its_window(tmp_path: Path) -> None:
    config = {"batch": {"max_wait": 0.25, "size": 100}}
    run = Run(tmp_path, world({"at": 1, "submit": task("a", qos="production")}, config=config))
    assert run.story("a")[1:3] == [(1.25, "placed"), (1.25, "running")]


def test_without_a_duration_it_runs_until_the_end(tmp_path: Path) -> None:
    body = task("a")
    del body["duration"]
    run = Run(tmp_path, world({"at": 0, "submit": body}, until=50))
    assert run.story("a")[-1] == (0, "running")
    assert run.summary["running"] == 1


def test_a_failure_is_told_with_its_reason_and_retried(tmp_path: Path) -> None:
    run = Run(tmp_path, world({"at": 0, "submit": task("a")}, {"at": 3, "fail": {"task": "a", "reason": "exit 7"}}))
    assert [event for _, event in run.story("a")] == [
        *("queued", "placed", "running", "backoff"),
        *("queued", "placed", "running", "succeeded"),
    ]
    (backoff,) = run.of("backoff")
    assert backoff["reason"] == "exit 7"
    assert run.of("placed")[1]["attempt"] == 2
    assert run.of("placed")[1]["t"] == pytest.approx(3 + backoff["delay"])
    assert run.story("a")[-1][0] == pytest.approx(13 + backoff["delay"])  # without checkpoints, from the start


def test_a_failure_of_what_does_not_run_is_ignored(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        world({"at": 0, "fail": {"task": "a"}}, {"at": 1, "submit": task("a")}, {"at": 50, "fail": {"task": "a"}}),
    )
    assert run.summary["succeeded"] == 1


def test_over_its_time_limit_it_fails(tmp_path: Path) -> None:
    run = Run(tmp_path, world({"at": 0, "submit": task("a", time_limit=4)}))
    assert run.story("a")[-1] == (4, "failed")
    assert run.of("failed")[0]["reason"] == "time_limit"


def test_over_its_time_limit_it_fails_for_that_however_it_ends_in_its_grace(tmp_path: Path) -> None:
    body = task("a", time_limit=4, stop_time=10)
    run = Run(tmp_path, world({"at": 0, "submit": body}, {"at": 6, "fail": {"task": "a", "reason": "exit 1"}}))
    assert run.story("a")[-2:] == [(pytest.approx(4), "stopping"), (6, "failed")]
    assert run.of("failed")[0]["reason"] == "time_limit"


def test_a_node_that_nobody_hears_says_afterwards_that_it_was_the_time_limit(tmp_path: Path) -> None:
    body = task("a", time_limit=4, stop_time=10)
    silence = {"at": 3, "node_silent": {"node": "n", "for": 9}}
    run = Run(tmp_path, world({"at": 0, "submit": body}, silence, {"at": 6, "fail": {"task": "a", "reason": "exit 1"}}))
    assert run.of("failed")[0]["reason"] == "time_limit"
    assert not run.of("backoff")


@pytest.mark.parametrize(("stop_time", "grace", "ended"), [(None, 30, 5), (2, 30, 7), (9, 3, 8)])
def test_a_cancelled_task_stops_at_once_or_after_its_stop_time(
    tmp_path: Path, stop_time: float | None, grace: float, ended: float
) -> None:
    body = task("a", grace=grace, **({} if stop_time is None else {"stop_time": stop_time}))
    run = Run(tmp_path, world({"at": 0, "submit": body}, {"at": 5, "cancel": "a"}))
    assert run.story("a")[-1] == (ended, "cancelled")


@pytest.mark.parametrize(("checkpoint", "ended"), [(None, 18), (3, 12), (4, 14)])
def test_after_a_loss_it_goes_on_from_its_last_checkpoint(
    tmp_path: Path, checkpoint: float | None, ended: float
) -> None:
    body = task("a", **({} if checkpoint is None else {"checkpoint": checkpoint}))
    run = Run(tmp_path, world({"at": 0, "submit": body}, {"at": 7, "node_down": "n"}, {"at": 8, "node_up": "n"}))
    assert run.story("a")[-1] == (ended, "succeeded")


def test_ends_come_before_what_the_file_does_at_the_same_instant(tmp_path: Path) -> None:
    run = Run(tmp_path, world({"at": 0, "submit": task("a")}, {"at": 10, "cancel": "a"}))
    assert run.story("a")[-1] == (10, "succeeded")


def test_several_forms_in_one_submission(tmp_path: Path) -> None:
    array = {"template": task("s"), "count": 3}
    run = Run(tmp_path, world({"at": 0, "submit": [task("a"), array, {"template": task("b"), "tasks": [{"id": "c"}]}]}))
    assert [event["task"] for event in run.of("queued")] == ["a", "s-0", "s-1", "s-2", "c"]


def test_a_task_without_an_id_gets_one_and_is_run(tmp_path: Path) -> None:
    body = task("a")
    del body["id"]
    run = Run(tmp_path, world({"at": 0, "submit": body}))
    assert run.summary["succeeded"] == 1


def test_a_refused_task_harms_no_neighbour(tmp_path: Path) -> None:
    run = Run(tmp_path, world({"at": 0, "submit": task("bad", priorty=3)}, {"at": 0, "submit": task("good")}))
    (refusal,) = run.of("rejected")
    assert (refusal["task"], refusal["problem"]["errors"][0]["pointer"]) == ("bad", "/priorty")
    assert (run.code, run.summary["submitted"], run.summary["rejected"], run.summary["succeeded"]) == (0, 1, 1, 1)


def test_yaml_numbers_are_words_where_words_are_meant(tmp_path: Path) -> None:
    nodes = [{"name": "a", "cpu": 8, "labels": {"rack": 1}}, {"name": "b", "cpu": 8, "labels": {"rack": 2}}]
    run = Run(tmp_path, world({"at": 0, "submit": task("t", node_selector={"rack": [2]})}, nodes=nodes))
    assert run.of("placed")[0]["node"] == "b"


def test_utilization_follows_every_step_of_usage_and_ends_with_the_attempt(tmp_path: Path) -> None:
    """Of eight cores: two for 20 s, eight for 20 s, none for the rest of 80; the step at 50 s never comes."""
    steps = [{"cpu": 2}, {"at": 20, "cpu": 8}, {"at": 50, "cpu": 4}]
    events = {"at": 0, "submit": task("t", resources={"cpu": 8}, duration=40, usage=steps)}
    run = Run(tmp_path, world(events, until=80))
    assert run.summary["utilization"]["cpu"] == pytest.approx((2 * 20 + 8 * 20) / (8 * 80), abs=0.001)


def test_an_attempt_that_starts_at_the_zero_of_the_clock_teaches_its_run_time(tmp_path: Path) -> None:
    engine = Engine(read_scenario(world({"at": 0, "submit": task("t", kind="render", duration=12)})), ())
    engine.run()
    (profile,) = engine.scheduler.books.profiles.save()
    assert (profile.task_type, profile.times_ms) == ("render", [pytest.approx(12_000, abs=1)]), "0 stands for not yet"
