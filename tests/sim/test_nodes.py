"""What a scenario does to nodes: lost at an instant, silent until the lease is over, drained, sick."""

from __future__ import annotations

from pathlib import Path

from tests.sim.worlds import Run, task, world

LEASE = {"config": {"agent": {"lease": 20, "heartbeat": 5}}}


def test_a_lost_node_gives_its_tasks_back_at_the_same_instant(tmp_path: Path) -> None:
    run = Run(tmp_path, world({"at": 0, "submit": task("a")}, {"at": 4, "node_down": "n"}, {"at": 9, "node_up": "n"}))
    assert (4, "requeued") in run.story("a")
    assert [event["t"] for event in run.of("node_down")] == [4]
    assert [event["t"] for event in run.of("node_up")] == [9]
    assert run.story("a")[-1] == (19, "succeeded")


def test_a_silent_node_is_lost_when_its_lease_is_over(tmp_path: Path) -> None:
    run = Run(
        tmp_path, world({"at": 0, "submit": task("a", duration=100)}, {"at": 5, "node_silent": "n"}, until=60, **LEASE)
    )
    assert [event["t"] for event in run.of("node_down")] == [25]
    assert (25, "requeued") in run.story("a")


def test_a_node_that_speaks_again_in_time_has_lost_nothing(tmp_path: Path) -> None:
    silent = {"at": 5, "node_silent": {"node": "n", "for": 10}}
    run = Run(tmp_path, world({"at": 0, "submit": task("a", duration=40)}, silent, **LEASE))
    assert run.story("a") == [(0, "queued"), (0, "placed"), (0, "running"), (40, "succeeded")]
    assert run.of("node_down") == []


def test_what_ended_in_the_silence_is_told_afterwards(tmp_path: Path) -> None:
    silent = {"at": 5, "node_silent": {"node": "n", "for": 10}}
    run = Run(tmp_path, world({"at": 0, "submit": task("a", duration=8)}, silent, **LEASE))
    assert run.story("a")[-1] == (15, "succeeded")


def test_what_ended_in_a_silence_that_was_too_long_is_done_again(tmp_path: Path) -> None:
    silent = {"at": 5, "node_silent": {"node": "n", "for": 50}}
    run = Run(tmp_path, world({"at": 0, "submit": task("a", duration=8)}, silent, **LEASE))
    assert run.story("a")[-1] == (63, "succeeded")
    assert [event["attempt"] for event in run.of("placed")] == [1, 2]


def test_nothing_is_placed_on_a_silent_node(tmp_path: Path) -> None:
    events = ({"at": 1, "node_silent": {"node": "n", "for": 9}}, {"at": 2, "submit": task("a")})
    assert Run(tmp_path, world(*events, **LEASE)).story("a")[1] == (10, "placed")


def test_a_drained_node_finishes_and_takes_nothing_new(tmp_path: Path) -> None:
    events = (
        {"at": 0, "submit": task("a")},
        {"at": 1, "drain": "n"},
        {"at": 2, "submit": task("b")},
        {"at": 30, "uncordon": "n"},
    )
    run = Run(tmp_path, world(*events))
    assert run.story("a")[-1] == (10, "succeeded")
    assert run.story("b")[1] == (30, "placed")
    assert [event["event"] for event in run.events if event["event"].startswith("node_d")] == ["node_drain"]


def test_a_failed_device_is_told_and_gives_its_task_back(tmp_path: Path) -> None:
    sick = {"at": 2, "device": {"node": "n", "device": "gpu-0", "health": "failed"}}
    body = task("a", resources={"gpu": 4})
    run = Run(tmp_path, world({"at": 0, "submit": body}, sick, until=20))
    assert [(event["device"], event["health"]) for event in run.of("device")] == [("gpu-0", "failed")]
    assert (2, "requeued") in run.story("a")
