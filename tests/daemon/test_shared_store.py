"""A store that somebody else runs: its death and return under a daemon that serves. (Two daemons on one: `test_standby.py`.)"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.daemon.process import DaemonProcess
from tests.store.helpers import Server

TASK = {"resources": {"cpu": 1}}


async def test_a_store_that_dies_and_returns_only_costs_time(data_dir: Path, server: Server) -> None:
    (data_dir / "d").mkdir()
    with DaemonProcess(data_dir / "d", store=server.url) as daemon:
        assert daemon.submit({"id": "before", **TASK}).status == 202
        await server.kill()
        asking = asyncio.create_task(asyncio.to_thread(daemon.submit, {"id": "meanwhile", **TASK}))
        await asyncio.sleep(0.3)
        assert not asking.done() or asking.result().status == 503, "it must not be acknowledged"
        await server.start()
        answer = await asking
        assert answer.status in (202, 503)
        async with asyncio.timeout(15):
            while (await asyncio.to_thread(daemon.submit, {"id": "meanwhile", **TASK})).status != 202:
                await asyncio.sleep(0.1)
        assert daemon.task("meanwhile")["state"] == "queued"
        assert daemon.process is not None and daemon.process.poll() is None


async def test_a_daemon_whose_store_does_not_answer_is_not_ready_and_says_why(data_dir: Path, server: Server) -> None:
    (data_dir / "d").mkdir()
    with DaemonProcess(data_dir / "d", store=server.url) as daemon:
        assert daemon.get("/readyz").status == 200
        await server.kill()  # nothing is in flight that would notice
        async with asyncio.timeout(20):
            while (answer := await asyncio.to_thread(daemon.get, "/readyz")).status == 200:
                await asyncio.sleep(0.1)
        assert answer.status == 503
        assert "the store does not answer" in answer.json["detail"]
        assert daemon.get("/healthz").status == 200
        await server.start()
        async with asyncio.timeout(20):
            while (await asyncio.to_thread(daemon.get, "/readyz")).status != 200:
                await asyncio.sleep(0.1)
