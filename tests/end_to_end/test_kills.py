"""What survives kill -9 of each part, one at a time: tasks go on, and nothing acknowledged is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.cluster import Cluster, eventually, running


@pytest.fixture
def cluster(data_dir: Path) -> Iterator[Cluster]:
    with running(data_dir, agents=1, sets=["agent.lease=7", "agent.heartbeat=1"]) as found:
        yield found


def pid_of(cluster: Cluster, task: str) -> int:
    """The task's first process: its command says `echo $$`."""
    return int(eventually(lambda: cluster.output(task)))


def test_tasks_outlive_the_daemon(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", "echo $$; sleep 5; exit 0")
    waiting = cluster.submit("true", resources={"gpu": 4}, after=[task])
    pid = pid_of(cluster, task)
    epoch = cluster.client.cluster()["epoch"]
    cluster.daemon.kill()
    time.sleep(1)
    assert psutil.pid_exists(pid)
    cluster.daemon.start()
    assert cluster.client.cluster()["epoch"] == epoch + 1
    ended = cluster.until(task, "succeeded")
    assert len(ended["attempts"]) == 1, "adopted, not run again"
    cluster.until(waiting, "succeeded")


def pieces_done(cluster: Cluster) -> dict[str, str]:
    """What each task of the graph g said that succeeded."""
    tasks = list(cluster.client.tasks(label="hetsched/graph=g", state="succeeded"))
    return {task["id"]: cluster.output(task["id"]) for task in tasks}


def test_a_graph_goes_on_where_it_was_when_the_daemon_is_killed_in_its_midst(cluster: Cluster) -> None:
    say = "echo $HETSCHED_SAMPLES_BEGIN $HETSCHED_SAMPLES_END"
    load = {"id": "load", "cost": 0.5, "command": ["sh", "-c", f"sleep 0.5; {say}"]}
    work = {
        "id": "work",
        "cost_per_sample": 0.2,
        "chunk": 10,
        "after": ["load"],
        "command": ["sh", "-c", f"sleep 1; {say}"],
    }
    join = {"id": "join", "cost": 0.5, "after": ["work"], "command": ["sh", "-c", say]}
    graph = {"id": "g", "samples": 80, "template": {"resources": {"cpu": 8}}, "operators": [load, work, join]}
    cluster.client.submit_graph(graph)
    before = eventually(lambda: len(pieces_done(cluster)) >= 3 and pieces_done(cluster), why="some pieces are done")
    cluster.daemon.kill()
    time.sleep(1)
    cluster.daemon.start()
    assert cluster.client.submit_graph(graph)["id"] == "g", "the same again is the same"
    eventually(lambda: cluster.client.graph("g")["state"] == "succeeded", why="the graph ends")
    after = pieces_done(cluster)
    assert before.items() <= after.items(), "nothing that was done was done again"
    spans = sorted(tuple(map(int, said.split())) for task, said in after.items() if task.startswith("g/work"))
    assert spans[0][0] == 0 and spans[-1][1] == 80
    assert all(one[1] == other[0] for one, other in pairwise(spans)), "every sample once"
    assert all(len(task["attempts"]) == 1 for task in map(cluster.client.task, after)), "adopted, not run again"


def test_a_daemon_that_is_told_to_stop_leaves_its_tasks_alone(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", "echo $$; sleep 60")
    pid = pid_of(cluster, task)
    cluster.until(task, "running")
    assert cluster.daemon.stop() == 0, cluster.daemon.log()
    assert psutil.pid_exists(pid)
    cluster.daemon.start()
    assert cluster.state(task) == "running"
    cluster.client.cancel(task)
    cluster.until(task, "cancelled")


def test_what_ended_while_nobody_listened_is_told_afterwards(cluster: Cluster) -> None:
    task = cluster.submit("sh", "-c", "echo $$; sleep 1; exit 7", retries=0)
    pid_of(cluster, task)
    cluster.daemon.kill()
    time.sleep(2)
    cluster.daemon.start()
    assert cluster.until(task, "failed")["attempts"][0]["exit_code"] == 7


def test_tasks_outlive_the_agent_and_are_adopted(cluster: Cluster) -> None:
    (agent,) = cluster.agents
    task = cluster.submit("sh", "-c", "echo $$; sleep 4; echo done")
    pid = pid_of(cluster, task)
    agent.kill()
    time.sleep(0.5)
    assert psutil.pid_exists(pid)
    agent.start()
    ended = cluster.until(task, "succeeded")
    assert len(ended["attempts"]) == 1
    assert cluster.output(task) == f"{pid}\ndone\n"


def test_an_agent_that_stays_away_loses_its_tasks_and_they_run_again(cluster: Cluster) -> None:
    """The shim ends the process when the lease is over, before the daemon gives it to another."""
    (agent,) = cluster.agents
    task = cluster.submit("sh", "-c", "echo $$; sleep 30", grace=1)
    pid = pid_of(cluster, task)
    agent.kill()
    cluster.until(task, "queued", within_s=40)
    assert not psutil.pid_exists(pid), "never two alive"
    agent.start()
    again = cluster.until(task, "running")
    assert again["attempt"] == 2
    assert again["attempts"][0]["reason"] == "node_lost"


def test_the_journal_server_is_replaced_without_anybody_noticing(cluster: Cluster) -> None:
    before = cluster.submit("true")
    server = cluster.daemon.journal_server()
    assert server is not None
    server.kill()
    after = [cluster.submit("true") for _ in range(20)]
    for task in (before, *after):
        cluster.until(task, "succeeded")
    assert cluster.daemon.alive()
    assert cluster.client.cluster()["epoch"] == 1, "the daemon itself went on"


def test_everything_at_once(cluster: Cluster) -> None:
    """As after a power cut, but for the tasks."""
    (agent,) = cluster.agents
    tasks = [cluster.submit("sh", "-c", "sleep 3", resources={"gpu": 1}) for _ in range(8)]
    eventually(lambda: sum(cluster.state(task) == "running" for task in tasks) == 4)
    cluster.daemon.kill()
    agent.kill()
    cluster.daemon.start()
    agent.start()
    for task in tasks:
        assert len(cluster.until(task, "succeeded")["attempts"]) == 1
