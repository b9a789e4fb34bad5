"""A real daemon under a preset with terms: it ranks, says why, learns, and knows what it learned after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess


def machine(name: str, model: str) -> dict[str, Any]:
    devices = [{"kind": "gpu", "model": model, "count": 2, "memory": "16Gi"}]
    return {"name": name, "cpu": 8, "memory": "16Gi", "devices": devices}


async def test_it_ranks_says_why_and_remembers_what_it_learned(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, store="embedded:", **{"policy.preset": "affinity"}) as daemon:
        async with TestAgent(daemon, machine("slow", "T4")), TestAgent(daemon, machine("fast", "H100")):
            body = {"id": "t", "kind": "render", "qos": "critical", "resources": {"gpu": 1}, "duration": 0.2}
            placed = await asyncio.to_thread(daemon.post, "/v1/schedule", body)
            assert placed.status == 202, placed.json
            assert placed.json["placement"]["node"] == "fast"
            told = (await asyncio.to_thread(daemon.get, "/v1/tasks/t/explain")).json
            assert [row["term"] for row in told.get("terms", ())] == ["performance"]
            await asyncio.to_thread(daemon.post, "/v1/tasks/t/finish", {"attempt": 1, "status": "succeeded"})
            rows = (await asyncio.to_thread(daemon.get, "/v1/profiles?type=render")).json["profiles"]
            assert [(row["model"], row["runs"]) for row in rows] == [("H100", 1)]
    with DaemonProcess(tmp_path, store="embedded:", **{"policy.preset": "affinity"}) as again:
        assert again.get("/v1/profiles?type=render").json["profiles"] == rows


def test_a_plug_in_that_is_not_installed_stops_the_start_by_name(tmp_path: Path) -> None:
    from hetsched.config import from_mapping
    from hetsched.daemon.recover import plug_ins
    from hetsched.errors import ConfigError

    assert plug_ins(from_mapping({})) is None
    try:
        plug_ins(from_mapping({"policy": {"scorers": {"nobody": 1}}}))
    except ConfigError as error:
        assert "nobody" in error.detail
    else:
        raise AssertionError("it starts")
