"""What is printed: stable tables for people, the daemon's own JSON for programs, nothing that steers a terminal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tests.cli.fake_daemon import FakeDaemon

Call = Callable[..., Said]


def test_list_is_a_table(daemon: FakeDaemon, call: Call) -> None:
    placement = {"node": "a100-0", "devices": [{"id": "gpu-0", "share": 1000}, {"id": "gpu-1", "share": 500}]}
    daemon.add("t1", "running", placement=placement, attempt=1, name="train")
    daemon.add("second", "queued")
    assert call("list").out.splitlines() == [
        "ID      STATE    QOS         QUEUE    NODE    DEVICES          ATTEMPT  NAME",
        "t1      running  production  default  a100-0  gpu-0,gpu-1:0.5  1        train",
        "second  queued   production  default  -       -                -",
    ]


def test_every_reading_command_speaks_json(daemon: FakeDaemon, call: Call) -> None:
    daemon.add("t1", "running")
    daemon.logs["t1"] = b"said\n"
    for words in (
        ["list"],
        ["show", "t1"],
        ["why", "t1"],
        ["logs", "t1"],
        ["hold", "t1"],
        ["cancel", "t1"],
        ["wait", "t1"],
        ["node", "list"],
        ["device", "list"],
        ["queue", "list"],
        ["top"],
        ["profile", "list"],
        ["profile", "show", "training"],
        ["profile", "export"],
        ["version"],
    ):
        said = call(*words, "--json")
        assert isinstance(json.loads(said.out), dict), words


def test_list_reads_every_page_and_no_more_than_asked(daemon: FakeDaemon, call: Call) -> None:
    for i in range(2500):
        daemon.add(f"t-{i}")
    assert len(json.loads(call("list", "--json", "--limit", "0").out)["tasks"]) == 2500
    said = call("list", "--limit", "7")
    assert len(said.out.splitlines()) == 8
    assert "--limit 0 shows all" in said.err


def test_names_do_not_steer_the_terminal(daemon: FakeDaemon, call: Call) -> None:
    daemon.add("t1", name="\x1b[2J\x1b]0;owned\x07evil\u202e\r\nnext")
    assert call("list").out.splitlines()[1].endswith("evil next")
    assert len(call("list").out.splitlines()) == 2


def test_logs_are_bytes_to_a_pipe(daemon: FakeDaemon) -> None:
    daemon.logs["t1"] = b"\x1b[31mred\x1b[0m \xff\n"
    run = subprocess.run([sys.executable, "-m", "hetsched", "logs", "t1"], stdout=subprocess.PIPE, check=True)
    assert run.stdout == daemon.logs["t1"]


def test_events_that_are_kept_are_printed_from_the_oldest(daemon: FakeDaemon, call: Call, monkeypatch: object) -> None:
    daemon.oldest_event = 3
    daemon.events = [{"seq": n, "t": 0.5, "event": "queued", "task": f"t{n}", "attempt": 1} for n in range(3, 6)]
    said = call("events", "--json")
    assert [json.loads(line)["seq"] for line in said.out.splitlines()] == [3, 4, 5]


def test_a_reader_that_leaves_is_no_error(daemon: FakeDaemon) -> None:
    for i in range(3000):
        daemon.add(f"task-{i}")
    shell = f"{sys.executable} -m hetsched list --limit 0 | head -n 1"
    run = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_ctrl_c_is_quiet(daemon: FakeDaemon) -> None:
    daemon.add("t1", "running")
    run = subprocess.Popen([sys.executable, "-m", "hetsched", "wait", "t1"], stderr=subprocess.PIPE, text=True)
    while not daemon.asked:
        time.sleep(0.01)
    run.send_signal(2)
    _, err = run.communicate(timeout=5)
    assert run.returncode == 130
    assert "Traceback" not in err


HEAVY = {
    *(
        "numpy",
        "aiohttp",
        "uvloop",
        "asyncio",
        "redis",
        "hiredis",
        "rich",
        "yaml",
        "psutil",
        "msgspec",
        "prometheus_client",
    ),
    *("hetsched._core", "hetsched.model", "hetsched.scheduler", "hetsched.daemon", "hetsched.sim"),
}
"""What takes longer to import than a small command takes to answer. A shell loop over `hetsched list` pays for every one of them."""

SAYS_IMPORTS = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from hetsched.cli import main
sys.argv[0] = "hetsched"
sys.exit(main())
"""


@pytest.mark.parametrize("words", [("version",), ("list",), ("list", "--json"), ("show", "t1"), ("cancel", "t1")])
def test_small_commands_import_nothing_heavy(daemon: FakeDaemon, words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", SAYS_IMPORTS, *words], capture_output=True, text=True)
    assert "hetsched.cli" in done.stderr.split()
    assert HEAVY & set(done.stderr.split()) == set()


def test_following_copies_the_log_of_every_attempt(daemon: FakeDaemon, call: Call) -> None:
    daemon.logs["t1"] = b"line\n"
    daemon.add("t1", "succeeded", attempts=[{"attempt": 1, "started_at": 1.0}, {"attempt": 2, "started_at": 2.0}])
    daemon.keys["k"] = {"id": "t1", "state": "queued", "lane": "batch"}
    said = call("submit", "--idempotency-key", "k", "--follow", "--", "x")
    assert (said.code, said.out) == (0, "line\nline\n")
    assert said.err.count("line\n") == 2, "what it complains of is shown too, apart"


def test_show_says_each_thing_once_and_in_peoples_words(daemon: FakeDaemon, call: Call) -> None:
    asked = {"memory": 1 << 32, "gpu": {"count": 2.5, "memory": 20 << 30, "model": ["A100", "H100"]}, "cpu": 0.5}
    spec = {
        "qos": "production",
        "kind": "batch",
        "retries": 3,
        "resources": asked,
        "command": ["sh", "-c", "echo $HOME"],
    }
    daemon.add("t1", kind="batch", submitted_at="2026-01-31T12:00:00Z", spec=spec)
    lines = call("show", "t1").out.splitlines()
    assert "resources  memory=4Gi gpu=2.5 gpu_memory=20Gi gpu_model=A100, H100 cpu=0.5" in lines
    assert "command    sh -c 'echo $HOME'" in lines
    assert sum(line.startswith("kind") for line in lines) == 1


def test_why_does_not_say_the_state_twice(daemon: FakeDaemon, call: Call) -> None:
    daemon.add("t1", "queued")
    assert call("why", "t1").out.splitlines()[0] == "t1 is queued: no_capacity"
    daemon.add("t2", "no_capacity")
    assert call("why", "t2").out.splitlines()[0] == "t2 is no_capacity"


def test_why_shows_what_a_placed_task_s_node_was_ranked_by(daemon: FakeDaemon, call: Call) -> None:
    daemon.add("t1", "running")
    daemon.explained["t1"] = {
        "run_time": {"p50": 60.0, "p90": 75.5, "source": "learned"},
        "terms": [{"term": "delay", "weight": 0.2, "value": 0.75, "what": "nearest", "source": "a document"}],
    }
    lines = call("why", "t1").out.splitlines()
    assert "  expected to run 60 s (9 in 10 no longer than 75.5 s), as learned" in lines
    assert lines[-1] == "delay  0.2     0.75  nearest (a document)"


def test_queue_set_keeps_what_was_not_given(daemon: FakeDaemon, call: Call) -> None:
    assert call("queue", "set", "research/vision", "--weight", "2", "--limit", "memory=1Ti").code == 0
    method, path, body, _ = daemon.asked[-1]
    assert (method, path) == ("PUT", "/v1/queues/research%2Fvision")
    assert body == {"weight": 2, "guaranteed": {"gpu": 8}, "limit": {"memory": "1Ti"}}
    assert call("queue", "set", "new", "--weight", "1").code == 0


def test_the_cluster_in_tables(daemon: FakeDaemon, call: Call) -> None:
    assert call("queue", "list").out.splitlines()[1].split() == "default 1 - - gpu=2.5 memory=16Gi 0 0".split()
    assert call("device", "list").out.splitlines()[1].split() == "n0 gpu-0 A100 0 - healthy -".split()
    assert call("node", "list").out.splitlines()[1].split()[:2] == ["n0", "ready"]


def test_profiles_are_shown_and_taken_from_one_daemon_to_another(
    daemon: FakeDaemon, call: Call, tmp_path: Path
) -> None:
    assert call("profile", "list").out.splitlines() == [
        "TYPE      SIZE  MODEL  RUNS  P50    P90  ERROR  ESTIMATES  USED",
        "training  1     A100   9     61.5s  80s  10 %   -          instead of estimates",
    ]
    assert "last run times     60s 61.5s" in call("profile", "show", "training").out
    assert call("profile", "show", "nobody").code == 3
    file = tmp_path / "profiles.json"
    file.write_text(call("profile", "export").out)
    assert call("profile", "import", str(file)).out == "imported: 1\n"
    (sent,) = daemon.asked[-1][2]["profiles"]  # whole: what of it counts, and what is no profile, the daemon says
    assert (sent["type"], sent["times"], sent["p50"]) == ("training", [60.0, 61.5], 61.5)
    asked = len(daemon.asked)
    for text in ("no json", "[1]", '{"profile": []}', '{"profiles": 1}'):
        file.write_text(text)
        assert call("profile", "import", str(file)).code == 2
    assert len(daemon.asked) == asked


def test_list_can_begin_with_the_newest(daemon: FakeDaemon, call: Call) -> None:
    for i in range(1500):
        daemon.add(f"t-{i}")
    shown = json.loads(call("list", "--json", "--last", "3").out)["tasks"]
    assert [task["id"] for task in shown] == ["t-1499", "t-1498", "t-1497"]


def test_wait_takes_a_label(daemon: FakeDaemon, call: Call) -> None:
    assert call("wait", "--label", "run=7").code == 3
    daemon.add("a", "succeeded")
    daemon.add("b", "succeeded")
    said = call("wait", "--label", "run=7", "--json")
    assert said.code == 0
    assert [task["id"] for task in json.loads(said.out)["tasks"]] == ["a", "b"]
    assert any("label=run%3D7" in asked[1] for asked in daemon.asked)


def test_cancel_takes_several_states(daemon: FakeDaemon, call: Call) -> None:
    assert call("cancel", "--queue", "q", "--state", "queued,held", "--state", "running").out == "cancelled 6\n"
    assert [asked[2] for asked in daemon.asked] == [
        {"queue": "q", "state": state} for state in ("queued", "held", "running")
    ]


def test_a_plan_says_where_when_and_at_whose_cost(daemon: FakeDaemon, call: Call) -> None:
    said = call("plan", "--gpu", "0.5")
    assert [line.split(None, 1)[0] for line in said.out.splitlines()] == ["TASK", "p-0", "#1"]
    assert "within 30 s" in said.out and "n1 gpu-0:0.5" in said.out
    assert "evicts v1, v2: 12.5 device seconds of work lost" in said.out
    assert "no_capacity: full; when: nobody said how long" in said.out
    assert said.err == "1 after others gave way, 1 later, 2 evicted for 12.5 device seconds; nothing was submitted\n"


def test_why_tells_when_it_starts_and_what_would_help(daemon: FakeDaemon, call: Call) -> None:
    daemon.add("t1", "queued")
    daemon.explained["t1"] = {
        "reason": "no_capacity",
        "detail": "of 2 nodes 2 with too few free devices",
        "position": 3,
        "eta": {"p50": 240.0, "p90": 7200.0},
        "free": {"gpu": {"asked": 4.0, "free": 3.0, "largest_on_one_node": 2}},
        "history": [{"reason": "no_capacity", "count": 7, "first_seen": "2026-01-31T12:00:00Z", "last_seen": "x"}],
        "remedies": [
            {"code": "wait", "detail": "wait: starts in about 240 s on n1", "by": "nobody", "how": "", "change": {}},
            {
                "code": "cpu",
                "detail": "ask 1 core",
                "by": "submitter",
                "how": "again",
                "change": {"resources": {"cpu": 1}},
            },
        ],
    }
    lines = call("why", "t1").out.splitlines()
    assert "  starts            in 4 min to 2 h" in lines
    assert "  gpu               asks 4, 3 free, at most 2 whole ones on one node" in lines
    assert any("7 times since" in line for line in lines)
    assert lines[-4:] == [
        "What would help (each was tried on a copy of the scheduler):",
        "1. wait: starts in about 240 s on n1",
        "2. ask 1 core",
        '   again: {"resources": {"cpu": 1}}',
    ]
    daemon.explained["t1"] = {"reason": "no_capacity", "eta": None, "eta_reason": "it is held"}
    assert "  starts  no start is known: it is held" in call("why", "t1").out


ORDER = {
    "formula": "f",
    "source": "s",
    "qos": "production",
    "priority": {"own": 5, "age": 3, "lifted": 8},
    "deadline": None,
    "sequence": 12,
}
SHARE = {"queue": "lab", "share": 0.5, "resource": "gpu", "weight": 2, "share_over_weight": 0.25}
WEIGHED = [
    {"term": "urgency", "weight": 0.4, "value": 0.1, "what": "w", "source": "s"},
    {"term": "match", "weight": 0.3, "value": None, "what": "w", "source": "s"},
]


@pytest.mark.parametrize(
    ("order", "middle"),
    [
        ({"name": "fifo"}, ""),
        (
            {"name": "drf", "is_owed": True, "queues": [SHARE]},
            ", guaranteed, queue lab 0.25 (share 0.5 of gpu over weight 2)",
        ),
        ({"name": "weighted", "terms": WEIGHED, "score": None}, ", 0.4 urgency 0.1 + 0.3 match not known"),
    ],
)
def test_why_says_in_a_line_what_the_order_compares(
    daemon: FakeDaemon, call: Call, order: dict[str, object], middle: str
) -> None:
    daemon.add("t1", "queued")
    daemon.explained["t1"] = {"reason": "no_capacity", "order": {**ORDER, **order}}
    said = f"  order  {order['name']}: production{middle}, priority 5 + 3 by age, no deadline, number 12"
    assert said in call("why", "t1").out.splitlines()


@pytest.mark.parametrize("options", [(), ("--gpu", "1"), ("--json",)])
@pytest.mark.parametrize("name", ["g.yaml", "g.json", "g"])
def test_a_file_of_a_graph_is_not_planned_and_what_to_do_is_said(
    daemon: FakeDaemon, call: Call, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(json.dumps({"graph": {"id": "g", "operators": [{"id": "a", "cost": 1}]}}))
    said = call("plan", *options, str(tmp_path / name))
    assert (said.code, said.out) == (2, "")
    for way in ("cannot be planned as a whole", "hetsched plan", "hetsched simulate", "hetsched graph show"):
        assert way in said.err
    assert not any(asked[1].endswith("/v1/plan") for asked in daemon.asked)


def test_top_shows_the_cluster_once_where_nobody_can_see_it_move(daemon: FakeDaemon, call: Call) -> None:
    said = call("top", "--once")
    assert said.code == 0
    assert re.search(r"immediate \d+ batch \d+ backoff \d+ +held \d+ +running \d+", said.out)
    assert re.search(r"^n0 +ready .*A100", said.out, re.MULTILINE)
    assert re.search(r"^default +1 +0 +0 +gpu 2.5 memory 16", said.out, re.MULTILINE)
    assert "\x1b" not in said.out


def test_top_says_when_nobody_answers_and_is_not_to_look_all_the_time(daemon: FakeDaemon, call: Call) -> None:
    assert call("top", "--every", "0").code == 2
    daemon.close()
    assert call("top").code == 5
