"""`hetsched replay`: the state of any journaled moment, and the decision taken then."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.conftest import Said
from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess

Call = Callable[..., Said]

SMALL = {"name": "small", "cpu": 2, "memory": "4Gi"}
BIG = {"name": "big", "cpu": 8, "memory": "16Gi"}


class Life(NamedTuple):
    """A directory that a daemon left, and what it said of `waits` while that waited."""

    data_dir: Path
    waited_at: float
    said: dict[str, Any]


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    path = Path(tempfile.mkdtemp(prefix="hs-"))
    yield asyncio.run(_live(path))
    shutil.rmtree(path, ignore_errors=True)


async def _live(path: Path) -> Life:
    """`waits` needs eight cores that `first` holds; then that ends."""
    with DaemonProcess(path, store="embedded:") as daemon:
        async with TestAgent(daemon, SMALL), TestAgent(daemon, BIG) as big:
            daemon.submit({"id": "first", "resources": {"cpu": 6}}, Prefer="wait=5")
            daemon.submit({"id": "waits", "resources": {"cpu": 8}})
            await asyncio.sleep(0.3)
            said = daemon.get("/v1/tasks/waits/explain").json
            waited_at = time.time()
            await asyncio.sleep(0.1)
            await big.end("first")
            await big.until(lambda: "waits" in big.running)
        assert await asyncio.to_thread(daemon.stop) == 0
        await asyncio.to_thread(daemon.start)
        daemon.submit({"id": "later", "resources": {"cpu": 1}})
        daemon.kill()
    return Life(path, waited_at, said)


def replay(call: Call, life: Life, *words: str) -> dict[str, Any]:
    said = call("replay", "--data", str(life.data_dir), "--json", *words)
    assert said.code == 0, said.err
    return dict(json.loads(said.out))


def test_at_a_moment_it_says_what_the_daemon_said_then(call: Call, life: Life) -> None:
    told = replay(call, life, "--at", str(life.waited_at), "--task", "waits")
    assert told["tasks"] == {"queued": 1, "running": 1}
    explained = told["task"]["explain"]
    assert {name: explained[name] for name in ("state", "reason", "detail", "nodes", "position")} == {
        name: life.said[name] for name in ("state", "reason", "detail", "nodes", "position")
    }
    assert told["task"]["decision"] is None


def test_of_a_task_it_tells_the_story_and_how_its_placing_was_decided(call: Call, life: Life) -> None:
    told = replay(call, life, "--task", "waits")["task"]
    assert [fact["fact"] for fact in told["timeline"]] == ["submitted", "placed", "started"]
    decision = told["decision"]
    assert (decision["fact"], decision["node"], decision["attempt"]) == ("placed", "big", 1)
    assert decision["before"]["state"] == "queued" and decision["before"]["nodes_that_fit"] == 1
    assert {one["node"]: one["why"] for one in decision["nodes"]} == {"small": "with too few free cores", "big": None}
    assert [one["node"] for one in decision["choices"]] == ["big"]


def test_it_reads_on_from_a_snapshot_and_back_to_the_first_frame(call: Call, life: Life) -> None:
    at_the_end = replay(call, life, "--at", "2100-01-01T00:00:00Z")
    assert at_the_end["read_from"] != "0-0" and at_the_end["tasks"]["queued"] == 1
    at_the_beginning = replay(call, life, "--at", "1-1")
    assert (at_the_beginning["read_from"], at_the_beginning["frame"], at_the_beginning["tasks"]) == ("0-0", "1-1", {})
    assert "node_known" in [fact["fact"] for fact in at_the_beginning["turn"]]


def test_people_can_read_it(call: Call, life: Life) -> None:
    said = call("replay", "--data", str(life.data_dir), "--task", "waits")
    assert said.code == 0 and "decided in frame" in said.out and "with too few free cores" in said.out


@pytest.mark.parametrize(
    ("words", "code", "story"),
    [
        (["--task", "nobody"], 3, "there was no task nobody"),
        (["--at", "1-9999"], 3, "there is no frame 1-9999; the one before it is 1-"),
        (["--at", "yesterday"], 2, "is no time"),
        ([], 2, "give --at TIME, --task ID, or both"),
    ],
)
def test_what_cannot_be_told_is_refused(call: Call, life: Life, words: list[str], code: int, story: str) -> None:
    said = call("replay", "--data", str(life.data_dir), *words)
    assert said.code == code and story in said.err
