"""Cells for real: daemons of several cells on one store, with agents; tasks go where there is room, and are found from anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hetsched.client import Client
from tests.daemon.agent import TestAgent
from tests.daemon.fakes import until
from tests.daemon.process import DaemonProcess
from tests.store.helpers import Server

QUICK = {"cells__digest_every": 0.1, "cells__digest_keep": 1.0, "cells__remind_after": 0.5, "store__lease": 1.0}
CORES = {"name": "cores", "cpu": 4, "memory": "16Gi"}
BOARDS = {"name": "boards", "cpu": 4, "memory": "16Gi", "devices": [{"kind": "gpu", "model": "A100", "count": 4}]}


def daemon_of(cell: str, data_dir: Path, store: str, *, name: str = "", **sets: Any) -> DaemonProcess:
    """A daemon of this cell, which knows the same tokens as all others of the test."""
    place = data_dir / (name or cell)
    place.mkdir()
    for token in ("token", "agent-token"):
        for known in [path for path in data_dir.glob(f"*/{token}") if path.parent != place][:1]:
            shutil.copy(known, place / token)
    return DaemonProcess(place, store=store, store__cell=cell, server__name=name or cell, **{**QUICK, **sets})


@contextlib.asynccontextmanager
async def two_cells(data_dir: Path, server: Server, **sets: Any) -> AsyncIterator[tuple[DaemonProcess, DaemonProcess]]:
    """Cell a with cores, cell b with devices; each has heard of the other."""
    with daemon_of("a", data_dir, server.url, **sets) as a, daemon_of("b", data_dir, server.url) as b:
        async with TestAgent(a, CORES), TestAgent(b, BOARDS):
            await eventually(lambda: all(heard(daemon, cell, nodes=1) for daemon in (a, b) for cell in "ab"))
            yield a, b


def heard(daemon: DaemonProcess, cell: str, **what: Any) -> bool:
    """Whether that is known of the cell."""
    rows = [row for row in daemon.get("/v1/cells").json["cells"] if row["name"] == cell]
    return any(not row["silent"] and what.items() <= row.items() for row in rows)


def is_in(daemon: DaemonProcess, task: str) -> bool:
    """Whether the daemon's own cell has it."""
    answer = daemon.get(f"/v1/tasks/{task}")
    return answer.status == 200 and answer.json.get("reason") != "in_cell"


async def eventually(true: Callable[[], Any]) -> None:
    """Within what several daemons may take on a machine with much else to do."""
    await until(true, 20.0)


async def test_a_task_is_accepted_anywhere_and_runs_where_it_can(data_dir: Path, server: Server) -> None:
    async with two_cells(data_dir, server) as (a, b):
        answer = a.submit({"id": "t", "resources": {"gpu": 2}})
        assert (answer.status, answer.json["state"]) == (202, "queued")
        await eventually(lambda: is_in(b, "t") and b.task("t")["state"] == "running")
        assert b.task("t")["placement"]["node"] == "boards"
        sent_on = a.get("/v1/tasks/t")
        assert (sent_on.status, sent_on.headers["location"]) == (307, f"{b.url}/v1/tasks/t")
        assert sent_on.problem()["cell"] == "b"
        again = a.submit({"id": "t", "resources": {"gpu": 2}})
        assert again.status == 202 and a.submit({"id": "t", "resources": {"gpu": 1}}).status == 409
        events = [line for line in a.get("/v1/events?since=0&follow=false").body.decode().splitlines() if '"t"' in line]
        assert [name for name in ("sent", "taken") if any(f'"{name}"' in line for line in events)] == ["sent", "taken"]


async def test_who_waits_for_a_placement_elsewhere_is_told_what_is_known_here(data_dir: Path, server: Server) -> None:
    async with two_cells(data_dir, server) as (a, b):
        answer = a.submit({"id": "t", "resources": {"gpu": 1}}, Prefer="wait=1")
        assert (answer.status, answer.json["state"]) == (202, "queued")
        await eventually(lambda: is_in(b, "t"))
        assert a.post("/v1/tasks/cancel", {"ids": ["t", "none"]}).json == {
            "accepted": 1,
            "cancelled": ["t"],
            "already_ended": [],
            "unknown": ["none"],
        }
        await eventually(lambda: b.task("t")["state"] == "cancelled")


async def test_a_client_finds_it_wherever_it_is(data_dir: Path, server: Server) -> None:
    async with two_cells(data_dir, server) as (a, b):
        client = Client(a.url, a.token)
        await asyncio.to_thread(client.submit, {"id": "t", "resources": {"gpu": 1}})
        await eventually(lambda: is_in(b, "t") and b.task("t")["state"] == "running")
        found = await asyncio.to_thread(client.task, "t")
        assert found["placement"]["node"] == "boards"
        await asyncio.to_thread(client.cancel, "t")
        await eventually(lambda: b.task("t")["state"] in ("stopping", "cancelled"))
        assert (await asyncio.to_thread(client.task, "t"))["id"] == "t", "the next one is asked of home again"


async def test_a_full_cell_spills_over_and_all_are_told_what_there_is(data_dir: Path, server: Server) -> None:
    async with two_cells(data_dir, server) as (a, b):
        assert a.submit({"template": {"id": "s", "resources": {"cpu": 1}}, "count": 10}).json["accepted"] == 10
        await eventually(lambda: sum(is_in(b, f"s-{n}") for n in range(10)) == 4)
        assert sum(is_in(a, f"s-{n}") for n in range(10)) == 6
        await eventually(lambda: heard(b, "a", backlog=2, running=4) and heard(a, "b", running=4, backlog=0))
        row = next(row for row in a.get("/v1/cells").json["cells"] if row["name"] == "b")
        assert (row["leader"], row["used"]["cpu"], row["capacity"]["cpu"], row["widest_gang"]) == (
            b.url,
            4,
            4,
            {"gpu": 4},
        )
        assert 'hetsched_cell_backlog{cell="a"} 2' in b.get("/metrics").body.decode()


async def test_a_cell_that_is_away_takes_what_only_it_can_when_it_is_back(data_dir: Path, server: Server) -> None:
    async with two_cells(data_dir, server) as (a, b):
        b.kill()
        assert a.submit({"id": "t", "resources": {"gpu": 1}}).status == 202
        assert a.task("t")["reason"] == "in_cell"
        await eventually(lambda: not heard(a, "b"))
        await asyncio.sleep(0.3)
        assert a.submit({"template": {"id": "s", "resources": {"cpu": 1}}, "count": 10}).status == 202
        assert all(is_in(a, f"s-{n}") for n in range(10)), "nobody knows what room there is"
        b.start()
        async with TestAgent(b, BOARDS):
            await eventually(lambda: is_in(b, "t") and b.task("t")["state"] == "running")


async def test_leaders_die_and_standbys_go_on_with_letters(data_dir: Path, server: Server) -> None:
    """Each cell has a standby; both leaders are killed while tasks cross."""
    async with two_cells(data_dir, server) as (a, b):
        with (
            daemon_of("a", data_dir, server.url, name="a2") as a2,
            daemon_of("b", data_dir, server.url, name="b2") as b2,
        ):
            assert (a2.role, b2.role) == ("standing by at",) * 2
            accepted = []
            for number in range(30):
                if a.submit({"id": f"t{number}", "resources": {"gpu": 0.1}}).status == 202:
                    accepted.append(f"t{number}")
                if number == 10:
                    b.kill()
                if number == 20:
                    a.kill()
                    break
            await eventually(lambda: all(daemon.get("/readyz").status == 200 for daemon in (a2, b2)))
            async with TestAgent(b2, BOARDS), TestAgent(a2, CORES):
                await eventually(lambda: all(is_in(b2, task) for task in accepted))
                assert not any(is_in(a2, task) for task in accepted)
                there = f"{b2.url}/v1/tasks/{accepted[0]}"
                await eventually(lambda: a2.get(f"/v1/tasks/{accepted[0]}").headers.get("location") == there)


async def test_an_agent_of_another_cell_is_turned_away_by_name(data_dir: Path, server: Server) -> None:
    with daemon_of("a", data_dir, server.url) as a:
        agent = TestAgent(a, CORES)
        agent.cell, agent.patience_s = "b", 1.0
        with pytest.raises(TimeoutError):
            await agent.__aenter__()
        (refused,) = a.get("/v1/cluster").json["agents_refused"]
        assert "belongs to cell b" in refused["reason"] and "leads cell a" in refused["reason"]


async def test_a_cluster_that_is_not_parted_has_no_cells(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        assert daemon.get("/v1/cells").json == {"cells": []}
