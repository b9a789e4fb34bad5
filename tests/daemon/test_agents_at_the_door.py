"""Agents over a real WebSocket: those that ask for more than there is are refused, those that die are missed at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched import wire
from tests.daemon.agent import TestAgent
from tests.daemon.process import DaemonProcess


async def test_a_node_of_a_seventeenth_kind_is_refused_and_nobody_else_notices(data_dir: Path) -> None:
    with DaemonProcess(data_dir) as daemon:
        assert daemon.submit({"resources": {"kind3": 1}}).status == 202
        odd = [{"kind": f"odd{i}"} for i in range(16)]
        agent = TestAgent(daemon, {"name": "n1", "cpu": 1, "memory": "1Gi", "devices": odd})
        with pytest.raises(TimeoutError):
            agent.patience_s = 1.0
            async with agent:
                pass
        refused = [order for order in agent.got if isinstance(order, wire.Refused)]
        assert "16 different device kinds" in refused[0].reason
        async with TestAgent(daemon, {"name": "n2", "cpu": 1, "memory": "1Gi", "devices": [{"kind": "kind3"}]}):
            assert daemon.get("/v1/nodes/n2").json["state"] == "ready"


async def test_one_node_too_many_is_refused_and_those_that_are_known_come_back(data_dir: Path) -> None:
    with DaemonProcess(data_dir, limits__nodes=1) as daemon:
        async with TestAgent(daemon, {"name": "n1", "cpu": 1, "memory": "1Gi"}):
            pass
        agent = TestAgent(daemon, {"name": "n2", "cpu": 1, "memory": "1Gi"})
        with pytest.raises(TimeoutError):
            agent.patience_s = 1.0
            async with agent:
                pass
        refused = [order for order in agent.got if isinstance(order, wire.Refused)]
        assert "1 nodes are known, as many as may be (limits.nodes); n2 is not one of them" in refused[0].reason
        async with TestAgent(daemon, {"name": "n1", "cpu": 1, "memory": "1Gi"}):
            assert daemon.get("/v1/nodes/n1").json["state"] == "ready"
        assert daemon.get("/v1/nodes/n2").status == 404


async def test_a_node_whose_agent_was_killed_is_silent_at_once(data_dir: Path) -> None:
    """Not only when the next pull or heartbeat, some seconds later, finds nobody there."""
    with DaemonProcess(data_dir) as daemon:
        async with TestAgent(daemon, {"name": "n1", "cpu": 1, "memory": "1Gi"}) as agent:
            assert daemon.get("/v1/nodes/n1").json["state"] == "ready"
            agent.die()
            await agent.until(lambda: daemon.get("/v1/nodes/n1").json["state"] == "silent", timeout_s=1.5)
