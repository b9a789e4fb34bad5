"""The words of `submit` become the fields of a task, and a submission happens once whatever the network does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Said
from tests.cli.fake_daemon import FakeDaemon

Call = Callable[..., Said]


def body(daemon: FakeDaemon) -> Any:
    return next(asked[2] for asked in reversed(daemon.asked) if asked[1] == "/v1/schedule")


def test_options_are_named_as_the_fields(daemon: FakeDaemon, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_ME", "mine")
    words = """--id a/b:1 --name n --kind training --queue q --qos best_effort --guarantee burstable --priority -5 --cpu 1.5
    --memory 16Gi --gpu 2.5 --gpu-memory 20Gi --tpu 4 --resource dpu=1 --limit cpu=8 --pattern tensor-op --selector zone=z1,z2
    --selector disk=ssd --models A100,H100 --toleration spot=yes:NoSchedule --toleration gone --data imagenet
    --topology nvlink:required --after x --after y:1:ended --deadline 2h --on-deadline expire --estimate 90 --time-limit 1d
    --grace 5 --retries 0 --retry-on time_limit --env A=b=c --env FROM_ME --workdir dir --user me --label team=x --no-preemptible""".split()
    assert call("submit", *words, "--", "run", "--gpu", "--", "9").code == 0
    assert body(daemon) == {
        "id": "a/b:1",
        "name": "n",
        "kind": "training",
        "queue": "q",
        "qos": "best_effort",
        "guarantee": "burstable",
        "preemptible": False,
        "priority": -5,
        "resources": {"cpu": 1.5, "memory": "16Gi", "gpu": 2.5, "gpu_memory": "20Gi", "tpu": 4, "dpu": 1},
        "limits": {"cpu": 8},
        "pattern": "tensor-op",
        "node_selector": {"zone": ["z1", "z2"], "disk": "ssd"},
        "models": ["A100", "H100"],
        "tolerations": [
            {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
            {"key": "gone", "operator": "Exists"},
        ],
        "data": ["imagenet"],
        "topology": {"same": "nvlink", "required": True},
        "after": ["x", {"id": "y:1", "when": "ended"}],
        "deadline": 7200,
        "on_deadline": "expire",
        "estimate": 90,
        "time_limit": 86400,
        "grace": 5,
        "retries": 0,
        "retry_on": ["time_limit"],
        "env": {"A": "b=c", "FROM_ME": "mine"},
        "workdir": "dir",
        "user": "me",
        "labels": {"team": "x"},
        "command": ["run", "--gpu", "--", "9"],
    }


def test_resources_alone_are_a_task(daemon: FakeDaemon, call: Call) -> None:
    assert call("submit", "--gpu", "0.5", "--duration", "10m").out == "made\n"
    assert body(daemon) == {"resources": {"gpu": 0.5}, "duration": 600}


def test_a_gang_is_an_array_of_members(daemon: FakeDaemon, call: Call) -> None:
    said = call("submit", "--gang", "3", "--min-size", "2", "--id", "g", "--gpu", "1", "--", "x")
    assert said.out.split() == ["g-0", "g-1", "g-2"]
    assert body(daemon)["count"] == 3
    assert body(daemon)["template"]["gang"] == {"id": "g", "size": 3, "min_size": 2}


def test_an_array_from_nothing_is_a_count_and_any_other_a_list(daemon: FakeDaemon, call: Call) -> None:
    assert call("submit", "--array", "0-2", "--id", "a", "--", "x").out.split() == ["a-0", "a-1", "a-2"]
    assert body(daemon) == {"template": {"id": "a", "command": ["x"]}, "count": 3}
    assert call("submit", "--array", "4-8:2,1", "--id", "b", "--", "x").out.split() == ["b-4", "b-6", "b-8", "b-1"]
    assert body(daemon)["tasks"] == [{"id": "b-4"}, {"id": "b-6"}, {"id": "b-8"}, {"id": "b-1"}]


FILES = {
    "one.json": '{"id": "f", "command": ["x"]}',
    "one.yaml": "id: f\ncommand: [x]\n",
    "two.ndjson": '{"id": "f", "command": ["x"]}\n\n{"id": "g", "command": ["x"]}\n',
    "two.yaml": "id: f\ncommand: [x]\n---\nid: g\ncommand: [x]\n",
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_every_kind(daemon: FakeDaemon, call: Call, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    said = call("submit", "--qos", "background", str(tmp_path / name))
    one = {"id": "f", "command": ["x"], "qos": "background"}
    assert said.code == 0
    assert body(daemon) == (one if name.startswith("one") else [one, {**one, "id": "g"}])
    assert said.out.split() == (["f"] if name.startswith("one") else ["f", "g"])


@pytest.mark.parametrize("text", ["", '{"id": "a", "id": "b"}', '{"cpu": NaN}', "{", "\xff"])
def test_a_file_that_cannot_be_read_is_usage(daemon: FakeDaemon, call: Call, tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
    assert call("submit", str(tmp_path / "bad.json")).code == 2
    assert daemon.asked == []


def test_some_refused_is_4_and_the_others_are_printed(daemon: FakeDaemon, call: Call, tmp_path: Path) -> None:
    (tmp_path / "mixed.json").write_text(json.dumps([{"id": "a"}, {"id": "b", "resources": {"memory": "16Gib"}}]))
    said = call("submit", str(tmp_path / "mixed.json"))
    assert (said.code, said.out) == (4, "a\n")
    assert "task 1" in said.err


@pytest.mark.parametrize("faults", [["drop"], ["standby", "drop", "standby"]])
def test_a_dropped_connection_does_not_submit_twice(daemon: FakeDaemon, call: Call, faults: list[str]) -> None:
    daemon.faults = list(faults)
    assert call("submit", "--", "x").code == 0
    keys = {asked[3]["Idempotency-Key"] for asked in daemon.asked}
    assert len(daemon.asked) == len(faults) + 1
    assert len(keys) == len(daemon.keys) == 1


def test_a_path_in_data_is_the_daemons_directory(
    daemon: FakeDaemon, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HETSCHED_URL")
    monkeypatch.delenv("HETSCHED_TOKEN")
    (tmp_path / "url").write_text(daemon.url + "\n")
    (tmp_path / "token").write_text("a-token-of-the-tests\n")
    assert call("submit", "--data", str(tmp_path), "--data", "imagenet", "--", "x").code == 0
    assert body(daemon)["data"] == ["imagenet"]
    assert call("--data", str(tmp_path), "list").code == 0
    monkeypatch.setenv("HETSCHED_DATA", str(tmp_path))
    assert call("list").code == 0


def test_what_cannot_be_followed_is_not_submitted_first(daemon: FakeDaemon, call: Call, tmp_path: Path) -> None:
    two = tmp_path / "two.yaml"
    two.write_text("- {id: a, command: [x]}\n- {template: {command: [x]}, count: 3}\n")
    for words in (["--array", "0-3", "--", "x"], ["--gang", "2", "--", "x"], [str(two)]):
        said = call("submit", "--follow", *words)
        assert said.code == 2 and "takes one task, these are" in said.err
    assert daemon.asked == []


def test_a_script_is_not_taken_for_a_description(daemon: FakeDaemon, call: Call, tmp_path: Path) -> None:
    job = tmp_path / "job.sh"
    job.write_text("#!/bin/sh\n#SBATCH --gres=gpu:1\ntrue\n")
    said = call("submit", str(job))
    assert said.code == 2 and "is a script" in said.err


def test_a_lease_without_end_is_told(daemon: FakeDaemon, call: Call) -> None:
    assert "held until hetsched cancel" in call("submit", "--cpu", "1").err
    assert "held until hetsched cancel" in call("submit", "--cpu", "1", "--array", "0-2").err
    for words in (["--cpu", "1", "--duration", "5"], ["--cpu", "1", "--", "true"]):
        assert "held until" not in call("submit", *words).err
