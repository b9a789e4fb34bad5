"""Two daemons on one store: one leads, the other shows what it follows, refuses the rest and takes over when its time has come."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hetsched.store import scripts
from tests.daemon.agent import TestAgent
from tests.daemon.fakes import until
from tests.daemon.process import DaemonProcess
from tests.store.helpers import Server

TASK = {"resources": {"cpu": 1}}
LEASE_S = 1.0


@contextmanager
def pair(data_dir: Path, server: Server) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    """A leader and its standby, which know the same tokens."""
    for name in ("one", "two"):
        (data_dir / name).mkdir()
    one, two = (
        DaemonProcess(data_dir / name, store=server.url, server__name=name, store__lease=LEASE_S)
        for name in ("one", "two")
    )
    with one:
        for name in ("token", "agent-token"):
            shutil.copy(data_dir / "one" / name, data_dir / "two" / name)
        with two:
            assert (one.role, two.role) == ("listening on", "standing by at")
            yield one, two


async def leads(daemon: DaemonProcess, within_s: float = 5.0) -> float:
    """Seconds until it takes work."""
    began_s = time.monotonic()
    while (answer := await asyncio.to_thread(daemon.submit, {"id": "probe", **TASK})).status != 202:
        assert time.monotonic() - began_s < within_s, answer
        await asyncio.sleep(0.02)
    return time.monotonic() - began_s


async def test_a_standby_shows_what_it_follows_and_sends_the_rest_to_the_leader(data_dir: Path, server: Server) -> None:
    with pair(data_dir, server) as (one, two):
        assert one.submit({"id": "t", **TASK}).status == 202
        await until(lambda: two.get("/v1/tasks/t").status == 200)
        shown = two.get("/v1/tasks/t")
        assert shown.json["state"] == "queued" and 0 <= shown.json["lag"] < 5
        assert (shown.headers["hetsched-leader"], float(shown.headers["hetsched-lag"])) >= (one.url, 0)
        cluster = two.get("/v1/cluster").json
        assert (cluster["role"], cluster["leader"], cluster["tasks"]["queued"]) == ("standby", one.url, 1)
        assert two.get("/v1/nodes").json["nodes"] == [] and two.get("/v1/devices").json["devices"] == []
        assert b"hetsched_standby_lag_seconds" in two.get("/metrics").body
        assert two.get("/healthz").json["state"] == "standing by"
        for answer in (
            two.submit(TASK),
            two.call("DELETE", "/v1/tasks/t"),
            two.get("/v1/events"),
            two.get("/v1/events?since=0&follow=false"),
            two.get("/v1/tasks/t/logs"),
            two.get("/v1/tasks/of-which-it-has-not-read-yet/logs?follow=true"),
            two.get("/readyz"),
            two.get("/v1/agents/connect", headers={"Authorization": f"Bearer {two.agent_token}"}),
        ):
            assert answer.problem()["leader"] == answer.headers["hetsched-leader"] == one.url
            assert (answer.status, answer.headers["retry-after"]) == (503, "0")
        await until(lambda: one.get("/v1/cluster").json["standbys"], 3)
        (follower,) = one.get("/v1/cluster").json["standbys"]
        assert (follower["name"], follower["url"]) == ("two", two.url)


async def test_a_standby_explains_and_plans_what_it_follows(data_dir: Path, server: Server) -> None:
    """On a copy: what it follows is only ever told what the leader decided."""
    with pair(data_dir, server) as (one, two):
        async with TestAgent(one, {"name": "n1", "cpu": 4, "memory": "8Gi"}) as agent:
            for name, cpu in (("runs", 3), ("waits", 3), ("never", 64)):
                assert one.submit({"id": name, "command": ["sleep", "9"], "resources": {"cpu": cpu}}).status == 202
            await agent.until(lambda: "runs" in agent.running)
            await until(lambda: two.get("/v1/tasks/runs").json.get("state") == "running")
            for name in ("runs", "waits", "never"):
                theirs, ours = (daemon.get(f"/v1/tasks/{name}/explain").json for daemon in (one, two))
                assert ours.pop("lag") >= 0 and ours["detail"] == theirs["detail"]
                assert ours["reason"] == theirs["reason"] and ours.keys() == theirs.keys()
            assert two.get("/v1/tasks/nobody/explain").status == 404
            body = {"id": "new", "resources": {"cpu": 1}}
            planned = [daemon.call("POST", "/v1/plan", body) for daemon in (one, two)]
            assert [answer.status for answer in planned] == [200, 200]
            (theirs, ours) = (answer.json["tasks"] for answer in planned)
            assert [task["state"] for task in ours] == [task["state"] for task in theirs]
            assert one.get("/v1/tasks/new").status == two.get("/v1/tasks/new").status == 404, "nothing was changed"
            assert one.submit({"id": "later", **TASK}).status == 202
            await until(lambda: two.get("/v1/tasks/later/explain").status == 200)


async def test_a_standby_takes_over_from_a_leader_that_was_killed(data_dir: Path, server: Server) -> None:
    with pair(data_dir, server) as (one, two):
        acknowledged = [one.submit({"id": f"t{number}", **TASK}).json["id"] for number in range(20)]
        one.kill()
        assert await leads(two) < LEASE_S + 2
        assert [two.task(task)["state"] for task in acknowledged] == ["queued"] * 20
        assert two.get("/v1/cluster").json["epoch"] == 2
        one.start()
        assert one.role == "standing by at", "who comes back follows"
        assert b'hetsched_failovers_total{change="took_over"} 1.0' in two.get("/metrics").body


async def test_a_leader_that_was_frozen_tells_nobody_anything_when_it_wakes(data_dir: Path, server: Server) -> None:
    with pair(data_dir, server) as (one, two):
        one.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        await leads(two)
        one.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
        first = one.get("/v1/tasks/probe")
        assert first.status == 503 or "hetsched-lag" in first.headers, "nothing old as if it were new"
        await until(lambda: one.get("/healthz").json["state"] == "standing by", 3)
        await until(lambda: one.get("/v1/tasks/probe").status == 200, 3)
        assert one.get("/v1/cluster").json["leader"] == two.url
        assert b'hetsched_failovers_total{change="deposed"} 1.0' in one.get("/metrics").body


async def test_a_leader_that_is_told_to_stop_gives_its_place_up_at_once(data_dir: Path, server: Server) -> None:
    with pair(data_dir, server) as (one, two):
        assert one.submit({"id": "t", **TASK}).status == 202
        await until(lambda: one.get("/v1/cluster").json["standbys"], 3)
        assert one.stop() == 0
        assert await leads(two) < LEASE_S, "not only when the lease is over"
        assert two.task("t")["state"] == "queued"


async def test_a_handover_is_asked_for_by_name(data_dir: Path, server: Server) -> None:
    with pair(data_dir, server) as (one, two):
        await until(lambda: one.get("/v1/cluster").json["standbys"], 3)
        assert one.post("/v1/cluster/handover", {"to": "three"}).status == 404
        assert one.post("/v1/cluster/handover", {"to": "two"}).json == {"to": "two", "leader": two.url}
        await leads(two)
        await until(lambda: one.get("/v1/cluster").json.get("role") == "standby", 3)
        assert two.post("/v1/cluster/handover", {}).status in (200, 409), (
            "409 until the other one has said that it stands by"
        )


async def test_there_is_nobody_to_hand_over_to(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        refused = daemon.post("/v1/cluster/handover", {})
        assert refused.status == 409 and "no standby" in refused.json["detail"]


async def test_a_lease_that_a_clock_ended_early_changes_the_leader_and_loses_nothing(
    data_dir: Path, server: Server
) -> None:
    with pair(data_dir, server) as (one, two):
        assert one.submit({"id": "before", **TASK}).status == 202
        await until(lambda: two.get("/v1/tasks/before").status == 200)
        while b'"two"' not in (card := await server.client.hget(scripts.WHOLE.leader, "card") or b""):
            if card:
                await server.client.delete(scripts.WHOLE.leader)  # a renewal may come before the standby looks
            await asyncio.sleep(0.02)
        await leads(two)
        assert two.task("before")["state"] == "queued"
        await until(lambda: one.get("/healthz").json["state"] == "standing by", 5)
        refused = one.submit({"id": "after", **TASK})
        assert (refused.status, refused.json["leader"]) == (503, two.url)


async def test_a_standby_that_finds_damage_leads_in_safe_mode(data_dir: Path, server: Server) -> None:
    """Somebody has to keep the leases of agents, and to say what is wrong."""
    with pair(data_dir, server) as (one, two):
        two.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        for number in range(3):
            assert one.submit({"id": f"t{number}", **TASK}).status == 202
        frames = await server.client.xrange(scripts.WHOLE.journal)
        await server.client.xdel(scripts.WHOLE.journal, frames[-2][0])
        two.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
        await until(lambda: "cannot follow" in two.stderr(), 5)
        assert two.get("/v1/tasks/t0").status == 503, "half a truth is none"
        one.kill()
        await until(lambda: two.get("/healthz").json["state"] == "safe", 10)
        assert two.submit({"id": "t4", **TASK}).status == 503
        assert two.get("/v1/cluster").json["safe_mode"]["stream_id"]
