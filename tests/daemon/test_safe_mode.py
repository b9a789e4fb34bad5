"""A journal that cannot be read to its end: the daemon shows what it knows, changes nothing, stops nothing, and names the way out."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hetsched import wire
from hetsched.daemon.safe import safe_mode
from hetsched.store import HeadDamaged, JournalCorrupt, NewerVersion, SnapshotLost, scripts
from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess
from tests.store.helpers import Server

TASK = {"resources": {"cpu": 1}}
NODE = {"name": "n1", "cpu": 8, "memory": "16Gi"}


def flip(data_dir: Path, there: bytes, instead: bytes, before: bytes = b"") -> None:
    """Other bytes in the journal server's file, as a disk that lies would leave them: where they come last (`before` others)."""
    (file,) = (data_dir / "valkey" / "appendonlydir").glob("*.incr.aof")
    data = file.read_bytes()
    assert there in data and len(there) == len(instead)
    at = data.rindex(there, 0, data.rindex(before))
    file.write_bytes(data[:at] + instead + data[at + len(there) :])


def hetsched(daemon: DaemonProcess, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "hetsched", *words, "--data", str(daemon.data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout + done.stderr


async def test_a_bad_frame_is_named_reads_are_answered_and_nothing_is_stopped(data_dir: Path) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        async with TestAgent(daemon, NODE) as agent:
            daemon.submit({"id": "long", "command": ["sleep", "1000"], **TASK}, Prefer="wait=5")
            await agent.until(lambda: "long" in agent.running)
            daemon.submit({"id": "before", "name": "known", **TASK})
            daemon.submit({"id": "bad", "name": "this-one-is-bad", **TASK})
            daemon.submit({"id": "after", **TASK})
            await asyncio.to_thread(daemon.kill)
        flip(data_dir, b"this-one-is-bad", b"this-one-is-Bad")
        await asyncio.to_thread(daemon.start, 60.0)

        assert daemon.task("before")["name"] == "known"
        assert daemon.get("/v1/tasks/bad").status == daemon.get("/v1/tasks/after").status == 404
        assert daemon.get("/v1/tasks/long/explain").json["node"] == "n1"
        refused = daemon.submit({"id": "new", **TASK})
        assert refused.status == 503 and "checksum" in refused.problem()["detail"]
        for method, path in (("DELETE", "/v1/tasks/before"), ("POST", "/v1/nodes/n1/drain")):
            assert "safe mode" in daemon.call(method, path).problem()["detail"]
        safe = daemon.get("/v1/cluster").json["safe_mode"]
        assert safe["fix"].endswith(f"hetsched journal truncate --data {data_dir} --at {safe['stream_id']} --yes")
        assert safe["stream_id"] in refused.problem()["detail"] and safe["offset"] > 0
        assert (
            daemon.get("/healthz").json["state"] == "safe"
            and safe["stream_id"] in daemon.get("/healthz").json["reason"]
        )
        assert daemon.get("/readyz").problem()["status"] == 503
        assert b"hetsched_safe_mode 1.0" in daemon.get("/metrics").body
        code, said = hetsched(daemon, "status")
        assert code == 4 and safe["fix"] in said and "safe mode" in said

        agent.got.clear()
        async with agent:
            await agent.say(wire.Heartbeat(7))
            await agent.until(lambda: wire.HeartbeatSeen(7) in agent.got)  # its lease goes on
            await asyncio.sleep(0.5)
            assert not [order for order in agent.got if type(order).__name__ in ("Start", "Stop")]
        assert daemon.get("/v1/cluster").json["epoch"] == 2
        assert await asyncio.to_thread(daemon.stop) == 0


async def test_a_file_that_the_journal_server_does_not_load_is_shown_up_to_its_last_whole_transaction(
    data_dir: Path,
) -> None:
    with DaemonProcess(data_dir, store="embedded:") as daemon:
        async with TestAgent(daemon, NODE) as agent:
            daemon.submit({"id": "long", "command": ["sleep", "1000"], **TASK}, Prefer="wait=5")
            await agent.until(lambda: "long" in agent.running)
            daemon.submit({"id": "before", **TASK})
            daemon.submit({"id": "bad", "name": "this-one-is-bad", **TASK})
            await asyncio.to_thread(daemon.kill)
        flip(data_dir, b"XADD", b"XADE", before=b"this-one-is-bad")
        await asyncio.to_thread(daemon.start, 60.0)
        assert daemon.task("before") and daemon.get("/v1/tasks/bad").status == 404
        cluster = daemon.get("/v1/cluster").json
        fix = cluster["safe_mode"]["fix"]
        assert cluster["mode"] == "safe" and " --at byte:" in fix and cluster["epoch"] == 2
        agent.got.clear()
        async with agent:
            await agent.say(wire.Heartbeat(7))
            await agent.until(lambda: wire.HeartbeatSeen(7) in agent.got)
        assert await asyncio.to_thread(daemon.stop) == 0
        assert not (data_dir / "prefix").exists()
        words = fix.split("hetsched ")[1].split()
        done = await asyncio.to_thread(subprocess.run, [sys.executable, "-m", "hetsched", *words], timeout=60)
        assert done.returncode == 0
        await asyncio.to_thread(daemon.start, 60.0)
        async with agent:
            assert daemon.task("long")["state"] == "running" and daemon.get("/v1/cluster").json["epoch"] > 2
            assert daemon.submit({"id": "bad", **TASK}).status == 202


async def test_a_head_that_is_lost_is_made_again_and_nothing_else_is(server: Server, data_dir: Path) -> None:
    place = data_dir / "d"
    place.mkdir()
    with DaemonProcess(place, store=server.url, store__lease=0.5) as daemon:
        for name in ("one", "two"):
            assert daemon.submit({"id": name, **TASK}).status == 202
        await asyncio.to_thread(daemon.kill)
        await server.client.delete(scripts.WHOLE.head)
        await asyncio.to_thread(daemon.start, 60.0)
        fix = daemon.submit({"id": "x", **TASK}).problem()["detail"].split("To mend it: ")[1]
        assert "journal mend" in fix and daemon.get("/healthz").json["state"] == "safe"
        assert await asyncio.to_thread(daemon.stop) == 0
        await asyncio.sleep(1.0)  # the lease of the one that was killed
        words = fix.split("hetsched ")[1].split()
        tried = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "hetsched", *words[:-1]], timeout=60, capture_output=True, text=True
        )
        assert tried.returncode == 0 and "nothing was changed" in tried.stdout
        done = await asyncio.to_thread(subprocess.run, [sys.executable, "-m", "hetsched", *words], timeout=60)
        assert done.returncode == 0
        await asyncio.to_thread(daemon.start, 60.0)
        assert daemon.task("one") and daemon.task("two")
        assert daemon.get("/v1/cluster").json["mode"] == "normal" and daemon.submit({"id": "x", **TASK}).status == 202


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (JournalCorrupt("5-42", 7, "?"), "stop the daemon, then: hetsched journal truncate --data /d --at 5-42 --yes"),
        (JournalCorrupt("5-41", 0, "?", cut="5-42"), "--at 5-42 --yes"),
        (NewerVersion("5-42", 4, "?"), "install the hetsched that wrote it, or a later one, and start that"),
        (SnapshotLost("snapshot 1.1@5-2, chunk 0", 0, "?"), "hetsched journal inspect --data /d` shows what is left"),
        (HeadDamaged("head", 0, "?"), "stop the daemon, then: hetsched journal mend --data /d --yes"),
    ],
)
def test_the_way_out_is_that_of_the_damage(damage: JournalCorrupt, said: str) -> None:
    assert said in safe_mode(damage, "5-41", "embedded:", Path("/d")).fix
    named = safe_mode(damage, "5-41", "redis://me:secret@host:6379/0", Path("/d")).fix
    assert "secret" not in named and ("--data" not in named or "--store redis://host:6379/0" in named)


def test_a_daemon_that_is_well_says_so(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        cluster = daemon.get("/v1/cluster").json
        assert (cluster["mode"], cluster["safe_mode"]) == ("normal", None)
        assert b"hetsched_safe_mode 0.0" in daemon.get("/metrics").body
        code, said = hetsched(daemon, "status", "--json")
        assert code == 0 and json.loads(said)["state"] == "ready"


async def test_where_no_snapshot_is_left_even_reads_are_refused_by_name(server: Server, data_dir: Path) -> None:
    (data_dir / "d").mkdir()
    with DaemonProcess(data_dir / "d", store=server.url) as daemon:
        for round in range(3):
            daemon.submit({"id": f"t{round}", **TASK})
            assert await asyncio.to_thread(daemon.stop) == 0
            if round < 2:
                await asyncio.to_thread(daemon.start, 60.0)
        chunks = [key async for key in server.client.scan_iter(f"{scripts.WHOLE.tag}:snapshot:*")]
        await server.client.delete(*chunks)
        await asyncio.to_thread(daemon.start, 60.0)
        answer = daemon.get("/v1/tasks/t0").problem()
        assert answer["status"] == 503 and "chunk 0, byte 0: is missing" in answer["detail"]
        assert "restore the store from a backup" in answer["detail"]
        assert daemon.get("/healthz").json["state"] == "safe"
        code, said = hetsched(daemon, "status")
        assert code == 5 and "is missing" in said
        assert await asyncio.to_thread(daemon.stop) == 0


async def test_an_empty_store_where_one_was_is_refused_with_the_way_out(server: Server, data_dir: Path) -> None:
    (data_dir / "d").mkdir()
    with DaemonProcess(data_dir / "d", store=server.url) as daemon:
        daemon.submit({"id": "t", **TASK})
        assert await asyncio.to_thread(daemon.stop) == 0
        await server.client.flushall()
        done = await asyncio.to_thread(subprocess.run, daemon.command(), capture_output=True, text=True, timeout=20)
        assert done.returncode == 78
        assert "is empty, but this daemon has confirmed" in done.stderr and "identity.json away" in done.stderr
        assert await server.client.dbsize() == 0
