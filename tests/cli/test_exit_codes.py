"""The seven exit codes of CONTRACT, section 4, each by what leads to it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.cli.conftest import Said
from tests.cli.fake_daemon import FakeDaemon

Call = Callable[..., Said]


def test_a_task_that_succeeds_is_0(daemon: FakeDaemon, call: Call) -> None:
    daemon.looks["made"] = ["placed", "running", "succeeded"]
    said = call("submit", "--wait", "--", "true")
    assert (said.code, said.out) == (0, "made\n")
    assert "made running" in said.err
    assert "made succeeded" in said.err


@pytest.mark.parametrize("state", ["failed", "cancelled", "expired", "skipped"])
def test_a_task_that_does_not_is_1(daemon: FakeDaemon, call: Call, state: str) -> None:
    daemon.looks["made"] = [state]
    assert call("submit", "--wait", "--", "false").code == 1
    daemon.looks["made"] = [state]
    assert call("wait", "made").code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submti"], "did you mean submit?"),
        (["submit", "--gpuu", "2", "--", "x"], "did you mean --gpu?"),
        (["submit", "--memroy=1Gi", "--", "x"], "did you mean --memory?"),
        (["submit"], "nothing to submit"),
        (["submit", "sleep", "5"], "after --"),
        (["list", "--url", "ftp://x"], "http://HOST:PORT"),
        (["list", "--url", "http://["], "no address of a daemon"),
        (["list", "--url", "http://127.0.0.1:99999"], "no address of a daemon"),
        (["list", "--url", "http://127.0.0.1:x"], "no address of a daemon"),
        (["list", "--url", "http://a b"], "no address of a daemon"),
        (["list", "--url", "http://a\x00b"], "no address of a daemon"),
        (["submit", "--gang", "2", "--array", "0-1", "--", "x"], "cannot be had together"),
        (["submit", "--label", "no-equals", "--", "x"], "KEY=VALUE"),
        (["submit", "--array", "9-0", "--", "x"], "names 0 indices"),
        (["submit", "no-such-file.yaml"], "No such file"),
        (["node"], "node what?"),
        (["node", "drian", "n0"], "did you mean drain?"),
        (["cancel"], "cancel what?"),
        (["cancel", "--queue", "a", "--queue", "b"], "given 2 times"),
        (["wait"], "give an ID, or --label"),
        (["wait", "a", "--label", "k=v"], "give an ID, or --label"),
        (["list", "--last", "0"], "at least 1"),
        (["submit", "--toleration", "", "--", "x"], "without a key it would bear every taint"),
        (["submit", "--toleration", ":NoSchedule", "--", "x"], "KEY[=VALUE][:EFFECT]"),
        (["serve", "--listen", "x"], "like 127.0.0.1:7463"),
        (["serve", "--set", "server.listen=x"], "like 127.0.0.1:7463"),
        (["agent", "--fake", "x"], "--fake: 'x': must be KIND:MODEL:COUNT"),
        (["simulate", "no-such-file.yaml"], "hetsched: "),
        (["list", "--", "x"], "nothing after --"),
        (["list", "--limit", "-3"], "0 for all"),
        (["config", "check", "--set", "no_such.key=1"], "no_such"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_2(daemon: FakeDaemon, call: Call, words: list[str], said: str) -> None:
    answer = call(*words)
    assert answer.code == 2
    assert said in answer.err
    assert answer.out == ""
    assert daemon.asked == []


@pytest.mark.parametrize("command", ["show", "why", "logs", "wait", "cancel", "hold"])
def test_a_task_that_nobody_knows_is_3(daemon: FakeDaemon, call: Call, command: str) -> None:
    assert call(command, "nobody").code == 3


def test_a_refused_body_is_4_and_every_fault_is_told(daemon: FakeDaemon, call: Call) -> None:
    said = call("submit", "--memory", "16Gib", "--", "x")
    assert said.code == 4
    assert "/resources/memory: unknown suffix 'Gib'" in said.err


def test_a_plan_that_is_refused_in_part_or_whole_is_4(daemon: FakeDaemon, call: Call) -> None:
    assert call("plan", "--gpu", "1").code == 0
    assert call("plan", "--gpu", "1", "--array", "0-2").code == 4
    assert call("plan", "--memory", "16Gib").code == 4


def test_what_has_ended_cannot_be_cancelled(daemon: FakeDaemon, call: Call) -> None:
    daemon.add("done", "succeeded")
    assert call("cancel", "done").code == 4


def test_a_wrong_token_is_4_and_says_how_to_give_one(daemon: FakeDaemon, call: Call) -> None:
    said = call("list", "--token", "another")
    assert said.code == 4
    assert "HETSCHED_TOKEN" in said.err


def test_nobody_listening_is_5_and_soon(daemon: FakeDaemon, call: Call) -> None:
    said = call("list", "--url", "http://127.0.0.1:9")
    assert said.code == 5
    assert "is it running?" in said.err


def test_waiting_too_long_is_6(daemon: FakeDaemon, call: Call) -> None:
    daemon.add("slow", "running")
    assert call("wait", "slow", "--timeout", "0.1").code == 6
    assert call("submit", "--wait", "--timeout", "0.1", "--", "x").code == 6


@pytest.mark.parametrize(
    ("where", "codes"), [(">/dev/full", {2}), (">&-", {0}), ("2>&-", {0}), ("<&-", {0}), ("| true", {0})]
)
def test_an_output_that_takes_nothing_is_no_traceback(where: str, codes: set[int]) -> None:
    line = f'"{sys.executable}" -m hetsched version {where}'
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode in codes and "Traceback" not in ran.stderr, ran.stderr
    assert "Exception ignored" not in ran.stderr, ran.stderr
