"""`hetsched journal`: what is in a store, in words, and how a damaged one is made whole again."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hetsched.config import from_mapping
from hetsched.store import open_store
from tests.cli.conftest import Said
from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess
from tests.daemon.test_safe_mode import flip
from tests.store.helpers import Server

Call = Callable[..., Said]

TASK = {"resources": {"cpu": 1}}
NODE = {"name": "n1", "cpu": 8, "memory": "16Gi"}


@pytest.fixture(scope="module")
def left() -> Iterator[Path]:
    """What a daemon left that was killed: five tasks, of which two are placed on n1, and no snapshot."""
    path = Path(tempfile.mkdtemp(prefix="hs-"))
    asyncio.run(_live_and_die(path))
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def _live_and_die(path: Path) -> None:
    with DaemonProcess(path, store="embedded:") as daemon:
        async with TestAgent(daemon, NODE) as agent:
            for name in ("one", "two"):
                daemon.submit({"id": name, "command": ["sleep", "9"], **TASK}, Prefer="wait=5")
            await agent.until(lambda: len(agent.running) == 2)
        while daemon.get("/v1/nodes/n1").json["state"] != "silent":
            await asyncio.sleep(0.01)
        daemon.submit({"template": {"id": "many", **TASK}, "count": 2})
        daemon.submit({"id": "three", "name": "the-third-one", **TASK})


@pytest.fixture
def journal(left: Path, data_dir: Path) -> Path:
    """A copy of it."""
    shutil.copytree(left, data_dir, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
    return data_dir


def of(call: Call, journal: Path, *words: str) -> Said:
    return call("journal", *words, "--data", str(journal))


def report(call: Call, journal: Path, *words: str) -> dict[str, Any]:
    return dict(json.loads(of(call, journal, "inspect", "--json", *words).out))


def test_a_whole_journal_is_said_to_be_whole(call: Call, journal: Path) -> None:
    said = of(call, journal, "inspect", "--frames")
    assert said.code == 0 and "yes" in said.out and "submitted" in said.out
    found = report(call, journal)
    assert found["whole"] and found["prefix"] == found["head"] == found["last"]
    assert found["state"]["tasks"] == {"queued": 3, "running": 2} and found["epoch"] == 1
    assert (journal / "identity.json").read_text(), "looking opens no epoch"
    assert report(call, journal) == found


def test_every_frame_is_written_out_in_words(call: Call, journal: Path) -> None:
    said = of(call, journal, "export")
    lines = [json.loads(line) for line in said.out.splitlines()]
    facts = [fact for line in lines for fact in line["facts"]]
    assert said.code == 0 and [line["id"] for line in lines] == [f"1-{n}" for n in range(1, len(lines) + 1)]
    placed = [fact for fact in facts if fact["fact"] == "placed"]
    assert [(p["task"], p["node"], p["attempt"]) for p in placed] == [("one", "n1", 1), ("two", "n1", 1)]
    accepted = [run["tasks"] for fact in facts for run in fact.get("runs", ())]
    assert accepted == [["one"], ["two"], ["many-0", "many-1"], ["three"]]
    some = of(call, journal, "export", "--from", "1-2", "--to", "1-3").out.splitlines()
    assert [json.loads(line)["id"] for line in some] == ["1-2", "1-3"]


async def test_a_damaged_frame_is_named_cut_and_the_daemon_goes_on(call: Call, journal: Path) -> None:
    flip(journal, b"the-third-one", b"the-third_one")
    found = await asyncio.to_thread(report, call, journal)
    damage = found["damage"]
    at = damage["stream_id"]
    assert not found["whole"] and at == found["head"] and found["state"]["tasks"] == {"queued": 2, "running": 2}
    assert damage["fix"] == f"stop the daemon, then: hetsched journal truncate --data {journal} --at {at} --yes"

    tried = await asyncio.to_thread(of, call, journal, "truncate", "--at", at)
    assert tried.code == 0 and "in 1 frames" in tried.out and "--yes" in tried.err
    assert await asyncio.to_thread(report, call, journal) == found, "only tried"

    done = await asyncio.to_thread(of, call, journal, "truncate", "--at", at, "--yes", "--json")
    told = json.loads(done.out)
    assert done.code == 0 and told["done"] and told["frames"] == 1 and told["epoch"] == 2
    about, cut = [json.loads(line) for line in Path(told["backup"]).read_text().splitlines()]
    assert about["cut_at"] == cut["id"] == at and b"the-third_one" in base64.b64decode(cut["frame"])
    assert (await asyncio.to_thread(report, call, journal))["whole"]

    with DaemonProcess(journal, store="embedded:") as daemon:
        assert daemon.get("/v1/cluster").json["mode"] == "normal"
        async with TestAgent(daemon, NODE) as agent:
            assert daemon.get("/v1/tasks/three").status == 404
            assert daemon.submit({"id": "three", **TASK}).status == 202
            await agent.until(lambda: {"many-0", "many-1", "three"} <= agent.running.keys())
        assert daemon.get("/v1/cluster").json["epoch"] == 3


def test_a_file_that_the_journal_server_does_not_load_is_cut_behind_its_last_whole_transaction(
    call: Call, journal: Path
) -> None:
    whole = report(call, journal)
    flip(journal, b"XADD", b"XADE")
    refused = of(call, journal, "inspect")
    assert refused.code == 4 and "is no command of the journal's" in refused.err and "To mend it" in refused.err
    at = refused.err.split("--at ")[1].split()[0]
    assert of(call, journal, "truncate", "--at", "byte:0", "--yes").code == 4
    assert "would cut" in of(call, journal, "truncate", "--at", at).out
    told = json.loads(of(call, journal, "truncate", "--at", at, "--yes", "--json").out)
    assert b"XADE" in Path(told["backup"]).read_bytes() and told["epoch"] == 2
    found = report(call, journal)
    assert found["whole"] and found["state"]["tasks"] == {"queued": 2, "running": 2}
    assert int(found["head"].split("-")[1]) == int(whole["head"].split("-")[1]) - 1


async def test_a_base_with_a_spoilt_command_is_shown_and_cut_like_what_was_appended(call: Call, journal: Path) -> None:
    await asyncio.to_thread(report, call, journal)
    store = await open_store("embedded:", journal, from_mapping({}))
    opened = await store.open()
    _ = [frame async for frame in opened.frames]
    backend = store._backend  # type: ignore[attr-defined]
    await backend._do("BGREWRITEAOF")
    while (await backend._do("INFO", "persistence"))["aof_rewrite_in_progress"]:
        await asyncio.sleep(0.01)
    await store.close()
    (base,) = (journal / "valkey" / "appendonlydir").glob("*.base.aof")
    data = base.read_bytes()
    base.write_bytes(data[::-1].replace(b"DDAX", b"EDAX", 1)[::-1])  # the last XADD
    refused = await asyncio.to_thread(of, call, journal, "inspect")
    assert refused.code == 4 and f"{base}, byte" in refused.err and "To mend it" in refused.err
    with DaemonProcess(journal, store="embedded:") as daemon:
        assert daemon.get("/healthz").json["state"] == "safe"
        assert daemon.submit({"id": "new", **TASK}).status == 503
    at = refused.err.split("--at ")[1].split()[0]
    told = json.loads((await asyncio.to_thread(of, call, journal, "truncate", "--at", at, "--yes", "--json")).out)
    assert b"XADE" in Path(told["backup"]).read_bytes() and told["done"]
    again = await asyncio.to_thread(of, call, journal, "inspect")
    assert again.code == 0 or "to mend it" in again.err.lower() + again.out.lower(), "and so on, until it is whole"


def test_a_store_that_is_not_this_daemons_is_told(call: Call, journal: Path) -> None:
    path = journal / "identity.json"
    known = json.loads(path.read_text())
    for change, story in (({"seq": known["seq"] + 50}, "ends at"), ({"cluster": "another"}, "belongs to cluster")):
        path.write_text(json.dumps({**known, **change}))
        said = of(call, journal, "inspect")
        assert said.code == 4 and f"a start refuses it: the store embedded: {story}" in said.out, said.out


def test_only_what_leaves_an_exact_prefix_is_cut(call: Call, journal: Path) -> None:
    flip(journal, b"sleep", b"Sleep")
    bad = report(call, journal)["damage"]["stream_id"]
    later = f"1-{int(bad.split('-')[1]) + 1}"
    for at, code, story in (
        (later, 4, f"that is before {later}: cut there"),
        ("7-99", 4, "that is before 7-99: cut there"),
        ("the last", 3, "is no frame"),
    ):
        said = of(call, journal, "truncate", "--at", at, "--yes")
        assert (said.code, story in said.err) == (code, True), said.err
    assert not list(journal.glob("journal-cut-*"))


def test_a_whole_journal_is_not_cut_behind_its_end(call: Call, journal: Path) -> None:
    said = of(call, journal, "truncate", "--at", "7-99", "--yes")
    assert said.code == 3 and "there is no frame 7-99; the journal ends with" in said.err


def test_a_daemon_that_runs_keeps_its_journal_to_itself(call: Call, data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        said = of(call, data_dir, "inspect")
        assert said.code == 4 and str(daemon.pid) in said.err and "has to be stopped first" in said.err


def test_a_directory_without_a_journal_is_not_made_one(call: Call, data_dir: Path) -> None:
    said = of(call, data_dir, "inspect")
    assert said.code == 3 and "there is no journal" in said.err and not list(data_dir.iterdir())


async def test_a_server_of_ones_own_is_looked_at_while_its_daemon_goes_on(call: Call, data_dir: Path) -> None:
    server = await Server(data_dir).start()
    try:
        with DaemonProcess(data_dir, store=server.url) as daemon:
            daemon.submit({"id": "one", **TASK})
            words = ("journal", "inspect", "--data", str(data_dir), "--json")
            found = json.loads((await asyncio.to_thread(call, *words)).out)
            assert found["whole"] and found["state"]["tasks"] == {"queued": 1}
            assert daemon.submit({"id": "two", **TASK}).status == 202, "nobody was deposed by looking"
            lines = await asyncio.to_thread(call, "journal", "export", "--store", server.url, "--data", "/nowhere")
            told = [json.loads(line) for line in lines.out.splitlines()]
            assert [run["tasks"] for line in told for fact in line["facts"] for run in fact.get("runs", ())][-1] == [
                "two"
            ]
    finally:
        await server.kill()
