"""The program against a real daemon with a real agent: what a person at a terminal does in an afternoon, in seconds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hetsched.demo.processes import Processes, Profile
from tests.cli.conftest import Said

Call = Callable[..., Said]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    programs = Processes(tmp_path_factory.mktemp("hs"))
    try:
        programs.start_daemon()
        programs.start_agent(Profile("n0", "gpu:A100:2:40Gi,cpu:8,memory:16Gi"))
        client = programs.client()
        while not any(node["connected"] for node in client.nodes()["nodes"]):
            programs.check()
            time.sleep(0.05)
        yield programs.data
    finally:
        programs.close()


@pytest.fixture(autouse=True)
def found_by_itself(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSCHED_URL", raising=False)
    monkeypatch.delenv("HETSCHED_TOKEN", raising=False)
    monkeypatch.setenv("HETSCHED_DATA", str(cluster))


def until(call: Call, task: str, state: str) -> None:
    while json.loads(call("show", task, "--json").out)["state"] != state:
        time.sleep(0.02)


def test_submit_wait_and_read_the_log(call: Call) -> None:
    said = call("submit", "--cpu", "1", "--wait", "--", "sh", "-c", "echo said; echo complained >&2")
    task = said.out.strip()
    assert said.code == 0
    assert call("logs", task).out == "said\n"
    assert call("logs", task, "--stderr").out == "complained\n"
    shown = json.loads(call("show", task, "--json").out)
    assert (shown["state"], shown["attempts"][0]["node"]) == ("succeeded", "n0")
    assert f"{task}  succeeded" in call("list").out


def test_follow_shows_it_as_it_comes_and_gives_its_end(call: Call) -> None:
    words = ["submit", "--follow", "--retries", "0", "--", "sh", "-c", "echo one; sleep 0.5; echo two; exit 3"]
    run = subprocess.Popen([sys.executable, "-m", "hetsched", *words], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "one\n"
    assert run.poll() is None
    assert run.stdout.read() == "two\n"
    assert run.wait(timeout=10) == 1


def test_follow_goes_on_with_the_next_attempt(call: Call) -> None:
    said = call("submit", "--follow", "--", "sh", "-c", 'echo "try $HETSCHED_ATTEMPT"; test $HETSCHED_ATTEMPT = 2')
    assert (said.code, said.out) == (0, "try 1\ntry 2\n")


def test_why_says_what_is_missing(call: Call) -> None:
    task = call("submit", "--gpu", "3", "--duration", "1").out.strip()
    said = call("why", task)
    assert "unsatisfiable" in said.out
    assert "resources.gpu 3 alone rules out 1 of 1 nodes" in said.out
    assert "1. ask 2 gpu instead of 3: starts now on n0" in said.out
    assert call("wait", task, "--timeout", "0.2").code == 6
    assert call("cancel", task).code == 0
    assert call("cancel", task).code == 4
    assert call("wait", task).code == 1


def test_hold_release_priority_requeue(call: Call) -> None:
    blocker = call("submit", "--gpu", "2", "--duration", "60").out.strip()
    until(call, blocker, "running")
    task = call("submit", "--gpu", "1", "--duration", "0.1").out.strip()
    assert call("hold", task).code == 0
    assert json.loads(call("show", task, "--json").out)["state"] == "held"
    assert call("priority", task, "7").code == 0
    assert call("release", task).code == 0
    assert json.loads(call("show", task, "--json").out)["priority"] == 7
    assert call("requeue", blocker).code == 0
    assert call("cancel", blocker).code == 0
    until(call, blocker, "cancelled")
    assert call("wait", task, "--timeout", "20").code == 0


def test_many_at_once(call: Call) -> None:
    assert call("submit", "--array", "0-4", "--id", "five", "--duration", "0.1", "--cpu", "1", "--wait").code == 0
    said = call("submit", "--gang", "2", "--gpu", "1", "--wait", "--timeout", "20", "--", "true")
    assert said.code == 0
    assert len(said.out.split()) == 2
    assert len(json.loads(call("list", "--state", "succeeded", "--json").out)["tasks"]) >= 7


def test_cancel_by_label(call: Call) -> None:
    for _ in range(3):
        call("submit", "--gpu", "9", "--label", "team=x", "--duration", "1")
    assert call("cancel", "--label", "team=x").out == "cancelled 3\n"


def test_nodes_devices_queues(call: Call) -> None:
    assert call("node", "drain", "n0").code == 0
    assert "draining" in call("node", "list").out
    assert call("node", "uncordon", "n0").code == 0
    assert "ready" in call("node", "show", "n0").out
    assert call("node", "drain", "nobody").code == 3
    assert len(call("device", "list").out.splitlines()) == 3
    assert call("queue", "set", "research", "--weight", "2", "--limit", "gpu=1").code == 0
    assert call("queue", "set", "research", "--weight", "3").code == 0
    queue = next(q for q in json.loads(call("queue", "list", "--json").out)["queues"] if q["name"] == "research")
    assert (queue["weight"], queue["limit"]) == (3, {"gpu": 1.0})


def test_events_from_the_first_and_as_they_come(call: Call) -> None:
    task = call("submit", "--cpu", "1", "--duration", "0.1", "--wait").out.strip()
    lines = [json.loads(line) for line in call("events", "--json", "--task", task).out.splitlines()]
    assert [line["event"] for line in lines] == ["queued", "placed", "running", "succeeded"]
    run = subprocess.Popen(
        [sys.executable, "-m", "hetsched", "events", "-f", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    threading.Timer(0.7, lambda: call("submit", "--cpu", "1", "--duration", "0.1", "--id", "seen")).start()
    assert json.loads(run.stdout.readline())["task"] == "seen"
    run.send_signal(2)
    assert run.wait(timeout=5) == 130


def test_the_same_id_is_the_same_task_and_another_body_is_refused(call: Call) -> None:
    for _ in range(2):
        assert call("submit", "--id", "once", "--cpu", "1", "--duration", "0.1").out == "once\n"
    assert call("submit", "--id", "once", "--cpu", "2", "--duration", "0.1").code == 4


def test_planning_tells_what_would_happen_and_submits_nothing(call: Call) -> None:
    said = call("plan", "--gpu", "1", "--id", "only-planned")
    assert said.code == 0
    assert said.out.splitlines()[1].split()[:3] == ["only-planned", "now", "n0"]
    assert said.err == "1 now; nothing was submitted\n"
    assert call("show", "only-planned").code == 3
    told = json.loads(call("plan", "--gpu", "1", "--array", "0-2", "--json").out)
    assert told["summary"]["tasks"] == 3


GRAPH = """
graph:
  id: cli-graph
  samples: 40
  template: {resources: {cpu: 1}, retries: 0}
  operators:
    - {id: load, cost: 0.1, command: [sh, -c, "echo loaded"]}
    - {id: work, cost_per_sample: 0.01, chunk: 10, after: [load], command: [sh, -c, "echo $HETSCHED_SAMPLES_BEGIN"]}
    - {id: join, cost: 0.1, after: [work], command: [sh, -c, "echo $HETSCHED_GRAPH/$HETSCHED_OPERATOR"]}
"""


def test_a_graph_is_handed_in_watched_and_read(call: Call, tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(GRAPH)
    said = call("submit", str(tmp_path / "graph.yaml"), "--wait", "--timeout", "60")
    assert (said.code, said.out.strip()) == (0, "cli-graph")
    assert call("logs", "cli-graph/join").out == "cli-graph/join\n"
    shown = json.loads(call("graph", "show", "cli-graph", "--json").out)
    assert (shown["state"], shown["operators"][1]["samples"]) == ("succeeded", {"begin": 0, "end": 40, "done": 40})
    assert "critical path" in call("graph", "show", "cli-graph").out
    assert "cli-graph" in call("graph", "list").out
    assert call("graph", "cancel", "cli-graph").code == 4
    assert call("graph", "show", "nobody").code == 3
    assert call("submit", str(tmp_path / "graph.yaml")).code == 0  # the same again is the same
    (tmp_path / "bad.yaml").write_text(GRAPH.replace("after: [load]", "after: [join]"))
    said = call("submit", str(tmp_path / "bad.yaml"), "--id", "other")
    assert said.code == 4 and "a cycle" in said.err


def test_a_graph_that_fails_is_told_by_the_exit_code(call: Call, tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(GRAPH.replace("echo loaded", "exit 3"))
    said = call("submit", str(tmp_path / "graph.yaml"), "--id", "fails", "--wait", "--timeout", "60", "--json")
    assert said.code == 1
    assert json.loads(said.out)["states"] == {"failed": 1, "skipped": 2}
