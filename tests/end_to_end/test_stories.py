"""Stories of tasks on a real cluster: daemon, journal server, agents and processes, over HTTP, as a user would live them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hetsched.errors import Conflict
from tests.end_to_end.cluster import Cluster, eventually, running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with four pretended GPUs each; stories share it and clean up after themselves."""
    with tempfile.TemporaryDirectory(prefix="hs-", ignore_cleanup_errors=True) as name:
        with running(Path(name), agents=2, sets=["agent.lease=6", "agent.heartbeat=1"]) as found:
            yield found


@pytest.fixture(autouse=True)
def empty(cluster: Cluster) -> Iterator[None]:
    """Each story begins and ends with nothing alive."""
    yield
    for state in ("held", "queued", "backoff", "placed", "running"):
        cluster.client.cancel_where({"state": state})
    eventually(lambda: not live_tasks(cluster), why="nothing lives")


def live_tasks(cluster: Cluster) -> list[str]:
    return [task["id"] for task in cluster.client.tasks(state="queued,held,backoff,placed,running,stopping")]


def used_shares(cluster: Cluster) -> int:
    return sum(device["share_used"] for device in cluster.client.devices()["devices"])


def test_a_command_runs_and_its_output_and_exit_code_come_back(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", "echo out; echo err >&2; exit 3", retries=0)
    ended = cluster.until(task, "failed")
    assert (cluster.output(task), cluster.output(task, "stderr")) == ("out\n", "err\n")
    assert ended["attempts"][0]["exit_code"] == 3
    assert ended["attempts"][0]["reason"] == "exit 3"


def test_a_task_sees_its_devices_and_no_others(cluster: Cluster) -> None:
    show = "echo [$CUDA_VISIBLE_DEVICES] $HETSCHED_TASK $HETSCHED_ATTEMPT"
    with_two = cluster.submit("sh", "-c", show, resources={"cpu": 1, "gpu": 2})
    without = cluster.submit("sh", "-c", show)
    placed = cluster.until(with_two, "succeeded")["attempts"][0]["devices"]
    indices = ",".join(device["id"].removeprefix("gpu-") for device in placed)
    assert cluster.output(with_two) == f"[{indices}] {with_two} 1\n"
    cluster.until(without, "succeeded")
    assert cluster.output(without) == f"[] {without} 1\n"


def test_a_log_is_followed_while_it_grows(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.3; done")
    cluster.until(task, "running", "succeeded")
    assert b"".join(cluster.client.logs(task, follow=True)) == b"line 1\nline 2\nline 3\n"


def test_halves_share_a_device_and_wholes_do_not(cluster: Cluster) -> None:
    halves = [cluster.submit("sleep", "60", resources={"gpu": 0.5}) for _ in range(4)]
    for task in halves:
        cluster.until(task, "running")
    placed = [cluster.client.task(task)["placement"] for task in halves]
    devices = {(entry["node"], entry["devices"][0]["id"]) for entry in placed}
    assert len(devices) == 2, "parts are packed"
    assert used_shares(cluster) == 2000


def test_cancelling_ends_the_whole_process_tree(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", "sleep 99 & echo $! $$; wait")
    cluster.until(task, "running")
    pids = [int(pid) for pid in eventually(lambda: cluster.output(task)).split()]
    assert len(pids) == 2
    assert all(map(psutil.pid_exists, pids))
    cluster.client.cancel(task)
    ended = cluster.until(task, "cancelled")
    assert ended["attempts"][-1]["outcome"] == "cancelled"
    assert not any(map(psutil.pid_exists, pids))
    with pytest.raises(Conflict):
        cluster.client.cancel(task)


def test_a_task_that_ignores_sigterm_is_killed_after_its_grace(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", grace=0.5)
    cluster.until(task, "running")
    began = time.monotonic()
    cluster.client.cancel(task)
    cluster.until(task, "cancelled")
    assert 0.4 < time.monotonic() - began < 10


def test_those_who_come_after_one_that_had_to_be_killed_live(cluster: Cluster) -> None:
    """In the same shim, perhaps in the same cgroup."""
    stubborn = [cluster.submit("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", grace=0.1) for _ in range(4)]
    for task in stubborn:
        cluster.until(task, "running")
    cluster.client.cancel_where({"state": "running"})
    for task in stubborn:
        cluster.until(task, "cancelled")
    next_ones = [cluster.submit("sleep", "0.1", retries=0) for _ in range(12)]
    for task in next_ones:
        cluster.until(task, "succeeded")


def test_over_its_time_limit_a_task_fails_and_is_not_retried(cluster: Cluster) -> None:
    task = cluster.submit("sleep", "60", time_limit=0.5, grace=1)
    ended = cluster.until(task, "failed")
    assert [attempt["reason"] for attempt in ended["attempts"]] == ["time_limit"]


def test_over_its_time_limit_an_error_in_its_grace_is_no_other_reason(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", "trap 'exit 1' TERM; while :; do sleep 0.05; done", time_limit=1, grace=10)
    ended = cluster.until(task, "failed")
    assert [(one["reason"], one["exit_code"]) for one in ended["attempts"]] == [("time_limit", 1)]
    assert ended["reason"] == "time_limit"


def test_a_failure_is_tried_again_and_the_reason_of_each_is_kept(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", '[ "$HETSCHED_ATTEMPT" = 2 ]', retries=2)
    ended = cluster.until(task, "succeeded")
    assert ended["attempts"][0]["reason"] == "exit 1"
    assert len(ended["attempts"]) == 2


def test_a_critical_task_makes_room_and_is_answered_with_its_placement(cluster: Cluster) -> None:
    fillers = [cluster.submit("sleep", "60", resources={"gpu": 4}, qos="background") for _ in range(2)]
    for task in fillers:
        cluster.until(task, "running")
    since = [event["seq"] for event in cluster.client.events(0, follow=False)][-1]
    answer = cluster.client.submit({"command": ["sleep", "60"], "resources": {"gpu": 4}, "qos": "critical"}, wait_s=20)
    assert answer["placement"]["devices"] == [{"id": f"gpu-{number}", "share": 1000} for number in range(4)]
    cluster.until(answer["id"], "running")
    states = sorted(cluster.state(task) for task in fillers)
    assert states == ["queued", "running"], "one victim is enough"
    preempted = [event for event in cluster.client.events(since, follow=False) if event["event"] == "preempted"]
    assert [event["by"] for event in preempted if event["task"] in fillers] == [answer["id"]]


def test_a_gang_starts_together_or_not_at_all(cluster: Cluster) -> None:
    blocker = cluster.submit("sleep", "60", resources={"gpu": 4})
    cluster.until(blocker, "running")
    gang = [cluster.submit("sleep", "60", resources={"gpu": 3}, gang={"id": "pair", "size": 2}) for _ in range(2)]
    time.sleep(0.5)
    assert [cluster.state(task) for task in gang] == ["queued", "queued"]
    cluster.client.cancel(blocker)
    for task in gang:
        cluster.until(task, "running")


def test_dependents_wait_and_are_skipped_when_they_cannot_come(cluster: Cluster) -> None:
    good = cluster.submit("true", id=f"good-{os.getpid()}")
    after = cluster.submit("true", after=[good])
    bad = cluster.submit("false", retries=0)
    never = cluster.submit("true", after=[bad])
    cluster.until(after, "succeeded")
    cluster.until(never, "skipped")


def test_the_same_id_again_is_the_same_task(cluster: Cluster) -> None:
    task = f"once-{os.getpid()}"
    assert cluster.submit("true", id=task) == cluster.submit("true", id=task) == task
    with pytest.raises(Conflict):
        cluster.submit("false", id=task)
    assert len(cluster.until(task, "succeeded")["attempts"]) == 1


def test_a_lease_only_task_holds_its_devices_until_its_client_says_so(cluster: Cluster) -> None:
    task = cluster.submit(resources={"gpu": 1})
    attempt = cluster.until(task, "running")["attempts"][-1]["attempt"]
    assert used_shares(cluster) == 1000
    with pytest.raises(Conflict):
        cluster.client.finish(task, attempt + 1)
    cluster.client.finish(task, attempt)
    cluster.until(task, "succeeded")
    assert used_shares(cluster) == 0


def test_a_drained_node_finishes_what_it_has_and_takes_nothing_new(cluster: Cluster) -> None:
    running_task = cluster.submit("sleep", "1.5")
    node = cluster.until(running_task, "running")["placement"]["node"]
    cluster.client.operate_node("drain", node)
    try:
        later = [cluster.submit("true") for _ in range(6)]
        for task in later:
            assert cluster.until(task, "succeeded")["attempts"][0]["node"] != node
        cluster.until(running_task, "succeeded")
    finally:
        cluster.client.operate_node("uncordon", node)


def test_an_idle_daemon_does_next_to_nothing(cluster: Cluster) -> None:
    process = psutil.Process(cluster.daemon.pid)
    before = process.cpu_times()
    time.sleep(4)
    after = process.cpu_times()
    busy_s = after.user + after.system - before.user - before.system
    assert busy_s < 0.04 * 1.5, f"{busy_s / 4:.1%} of a core"
