"""The line to the daemon: joining, the lease, sessions, epochs, and what a dead or strange daemon does to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hetsched import wire
from hetsched.agent.address import Address
from hetsched.agent.agent import Agent
from hetsched.agent.link import Parted
from hetsched.agent.main import agent_directory
from hetsched.agent.shim.lease import now_ns
from hetsched.config import load
from tests.agent_run.bench import Daemon, order, stop, until


@asynccontextmanager
async def agent_of(data_dir: Path, token: str | None = None) -> AsyncIterator[Agent]:
    config = load(None, ["agent.allow_root=true", 'agent.labels={rack="r1"}', 'agent.taints=["x=y:NoSchedule"]'])
    agent = Agent("n1", config, agent_directory(data_dir, "n1"), Address(data_dir, None, token), "gpu:A100:2,cpu:4")
    await agent.open()
    running = asyncio.ensure_future(agent.run())
    try:
        yield agent
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await agent.close()


@pytest.fixture
async def agent(daemon: Daemon, data_dir: Path) -> AsyncIterator[Agent]:
    async with agent_of(data_dir) as opened:
        await daemon.hear(wire.Hello)
        await until(opened.link.joined.is_set)
        yield opened


def of(daemon: Daemon, task: str, *command: str, **more: object) -> wire.Start:
    return order(task, *command, **{"session": daemon.session, "epoch": daemon.epoch, **more})


async def test_a_hello_tells_who_and_what_this_node_is(agent: Agent, daemon: Daemon) -> None:
    hello = daemon.all(wire.Hello)[0]
    node = hello.node
    assert (hello.protocol, hello.cluster, hello.highest_epoch, hello.attempts) == (wire.PROTOCOL, "", 0, ())
    assert (node.name, node.cpu_milli, node.labels) == ("n1", 4000, {"rack": "r1"})
    assert [device.id for device in node.devices] == ["gpu-0", "gpu-1"]
    assert [(taint.key, taint.value, taint.effect) for taint in node.taints] == [("x", "y", "NoSchedule")]
    assert {reading.device: reading.health for reading in hello.readings} == {"gpu-0": "healthy", "gpu-1": "healthy"}


async def test_an_order_is_obeyed_reported_and_settled(agent: Agent, daemon: Daemon) -> None:
    await daemon.send(of(daemon, "t", "true"))
    await daemon.hear(wire.Started, task="t")
    assert (await daemon.hear(wire.Ended, task="t")).succeeded
    await until(lambda: not agent.runner.attempts.unsettled())


async def test_an_end_is_repeated_until_it_is_settled(agent: Agent, daemon: Daemon) -> None:
    daemon.settles = False
    await daemon.send(of(daemon, "t", "true"))
    await until(lambda: len(daemon.all(wire.Ended, task="t")) >= 3)
    await daemon.send(wire.Settled(daemon.session, "t", 1))
    await until(lambda: not agent.runner.attempts.unsettled())


async def test_the_lease_runs_from_the_sending_of_the_acknowledged_heartbeat(agent: Agent, daemon: Daemon) -> None:
    lease = agent._lease
    seen = await daemon.hear(wire.Heartbeat)
    await until(lambda: lease.deadline_ns >= seen.sent_ns + int(daemon.lease_s * 1e9))
    daemon.acknowledges = False
    await asyncio.sleep(0)
    last = max(one.sent_ns for one in daemon.all(wire.Heartbeat))
    await until(lambda: daemon.all(wire.Heartbeat)[-1].sent_ns > last)
    assert lease.deadline_ns < now_ns() + int(daemon.lease_s * 1e9)
    assert lease.deadline_ns <= daemon.all(wire.Heartbeat)[-1].sent_ns + int(daemon.lease_s * 1e9)


async def test_an_acknowledgement_of_what_was_never_sent_renews_nothing(agent: Agent, daemon: Daemon) -> None:
    await daemon.send(wire.HeartbeatSeen(now_ns() + 10**15))
    await daemon.hear(wire.Heartbeat)
    assert agent._lease.deadline_ns < now_ns() + int(daemon.lease_s * 1e9)


async def test_orders_of_another_session_or_epoch_are_ignored(agent: Agent, daemon: Daemon, tmp_path: Path) -> None:
    await daemon.send(of(daemon, "a", "touch", str(tmp_path / "ran"), session=daemon.session - 1))
    await daemon.send(of(daemon, "b", "touch", str(tmp_path / "ran"), epoch=daemon.epoch - 1))
    await daemon.send(stop("c"))
    await daemon.send(of(daemon, "d", "true"))
    await daemon.hear(wire.Ended, task="d")
    assert not (tmp_path / "ran").exists()
    assert {one.task for one in daemon.all(wire.Ended)} <= {"c", "d"}


async def test_an_order_that_is_read_when_the_lease_is_over_begins_nothing(agent: Agent, daemon: Daemon) -> None:
    """Found by calm seed 41040: an agent that had been frozen found the order in its socket; the task ran elsewhere by then, and its shim was
    born so late that a new hello had renewed the lease."""
    await daemon.hear(wire.Heartbeat)
    daemon.acknowledges = False
    await asyncio.sleep(0.1)  # what was acknowledged before has been read, and renews the lease no more
    agent._lease.forget()
    await daemon.send(of(daemon, "t", "true"))
    await until(lambda: len(daemon.all(wire.Hello)) >= 2)
    assert [hello.attempts for hello in daemon.all(wire.Hello)] == [(), ()]
    daemon.acknowledges = True
    await daemon.send(of(daemon, "u", "true"))
    assert (await daemon.hear(wire.Ended, task="u")).succeeded
    assert {one.task for one in daemon.all(wire.Ended)} == {"u"}


async def test_a_line_that_is_open_but_dead_is_given_up(agent: Agent, daemon: Daemon) -> None:
    daemon.acknowledges = False
    await until(lambda: len(daemon.all(wire.Hello)) >= 2)


async def test_a_daemon_that_comes_back_hears_the_whole_state(agent: Agent, daemon: Daemon) -> None:
    await daemon.send(of(daemon, "t", "sleep", "100"))
    await daemon.hear(wire.Started, task="t")
    await daemon.close()
    daemon.heard.clear()
    daemon.epoch = 2
    await daemon.open()
    hello = await daemon.hear(wire.Hello)
    assert [(state.task, state.state) for state in hello.attempts] == [("t", "running")]
    assert (hello.highest_epoch, hello.cluster) == (1, "c1")
    await until(agent.link.joined.is_set)
    await daemon.send(wire.Stop(daemon.session, 2, "t", 1, 0.0, "cancelled"))
    await daemon.hear(wire.Ended, task="t")


async def test_an_older_epoch_is_not_obeyed_even_after_a_restart(daemon: Daemon, data_dir: Path) -> None:
    daemon.epoch = 5
    async with agent_of(data_dir) as agent:
        await until(agent.link.joined.is_set)
        await daemon.send(of(daemon, "t", "sleep", "100"))
        await daemon.hear(wire.Started, task="t")
    daemon.heard.clear()
    daemon.epoch = 4
    async with agent_of(data_dir) as agent:
        assert (await daemon.hear(wire.Hello)).highest_epoch == 5
        await until(lambda: len(daemon.all(wire.Hello)) >= 2)
        assert not agent.link.joined.is_set()
        daemon.epoch = 6
        await until(agent.link.joined.is_set)
        await daemon.send(wire.Stop(daemon.session, 6, "t", 1, 0.0, "cancelled"))
        await daemon.hear(wire.Ended, task="t")


async def test_only_an_agent_without_attempts_joins_another_cluster(daemon: Daemon, data_dir: Path) -> None:
    async with agent_of(data_dir) as agent:
        await until(agent.link.joined.is_set)
        await daemon.send(of(daemon, "t"))
        await daemon.hear(wire.Started, task="t")
        await daemon.close()
        daemon.heard.clear()
        daemon.cluster = "c2"
        await daemon.open()
        assert (await daemon.hear(wire.Hello)).cluster == "c1"
        await until(lambda: len(daemon.all(wire.Hello)) >= 2)
        assert not agent.link.joined.is_set()
        daemon.cluster = "c1"
        await until(agent.link.joined.is_set)
        await daemon.send(wire.Stop(daemon.session, 1, "t", 1, 0.0, "cancelled"))
        await until(lambda: not agent.runner.attempts.states())
        await daemon.close()
        daemon.cluster = "c2"
        agent.link.joined.clear()
        await daemon.open()
        await until(agent.link.joined.is_set)


async def test_who_is_refused_comes_back(daemon: Daemon, data_dir: Path) -> None:
    daemon.refusal = "not today"
    async with agent_of(data_dir) as agent:
        await until(lambda: len(daemon.all(wire.Hello)) >= 2)
        assert not agent.link.joined.is_set()
        daemon.refusal = ""
        await until(agent.link.joined.is_set)


async def test_a_wrong_token_is_told_and_tried_again(
    daemon: Daemon, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with agent_of(data_dir, token="wrong"):
        await until(lambda: "401" in caplog.text)
        assert "agent-token" in caplog.text
        assert daemon.heard == []


async def test_the_address_is_looked_up_anew_each_time(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSCHED_URL", raising=False)
    monkeypatch.delenv("HETSCHED_TOKEN", raising=False)
    address = Address(data_dir, None, None)
    with pytest.raises(Parted, match="url cannot be read"):
        address.find()
    (data_dir / "url").write_text("http://127.0.0.1:1\n")
    with pytest.raises(Parted, match="agent-token cannot be read"):
        address.find()
    (data_dir / "agent-token").write_text("s\n")
    assert address.find() == ("http://127.0.0.1:1", "s")
    (data_dir / "url").write_text("http://127.0.0.1:2\n")
    assert address.find()[0] == "http://127.0.0.1:2"
    monkeypatch.setenv("HETSCHED_URL", "https://far:7463")
    assert Address(data_dir, None, None).find() == ("https://far:7463", "s")
    assert Address(data_dir, "near:1", "t").find() == ("http://near:1", "t")


def test_whoever_was_wrong_is_left_for_the_leader_it_named_or_for_the_next(data_dir: Path) -> None:
    address = Address(data_dir, "https://a:1, b:2", "t")
    assert address.last_url == "https://a:1,b:2", "tasks are told all"
    assert address.find()[0] == "https://a:1"
    address.leave("")
    assert address.find()[0] == "http://b:2"
    address.leave("https://c:3")
    assert address.find()[0] == "https://c:3", "named, though not known before"
    address.leave("")
    assert address.find()[0] == "http://b:2", "which named it, and will know who leads"
    address.leave("")
    assert address.find()[0] == "https://a:1"
    address.leave("http://c:3")
    assert address.find()[0] == "http://b:2", "never from TLS to clear text"


async def test_a_pull_is_answered_and_a_failing_device_pushed(agent: Agent, daemon: Daemon, data_dir: Path) -> None:
    await daemon.send(wire.Pull())
    report = await daemon.hear(wire.Report, pushed=False)
    assert {reading.device for reading in report.readings} == {"gpu-0", "gpu-1"}
    assert report.memory_available_bytes > 0
    steering = data_dir / "agent" / "n1" / "fake-health.json"
    steering.write_text('{"gpu-1": {"utilization_percent": 95}}')
    pushed = await daemon.hear(wire.Report, pushed=True)
    assert [(reading.device, reading.utilization_percent) for reading in pushed.readings] == [("gpu-1", 95)]
    daemon.heard.clear()
    steering.write_text('{"gpu-0": {"health": "failed", "reason": "pulled"}}')
    pushed = await daemon.hear(wire.Report, pushed=True)
    assert [(reading.device, reading.health) for reading in pushed.readings] == [("gpu-0", "failed")]


async def test_logs_are_read_and_followed_over_the_line(agent: Agent, daemon: Daemon, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"printf one; while [ ! -e {go} ]; do sleep 0.02; done; printf two"
    await daemon.send(of(daemon, "t", "sh", "-c", script))
    await daemon.hear(wire.Started, task="t")
    await daemon.send(wire.ReadLog(1, "t", 0, "stdout", 0, 1000, follow=True))
    first = await daemon.hear(wire.LogData, request=1)
    assert (first.offset, first.data, first.end) == (0, b"one", False)
    go.touch()
    last = await daemon.hear(wire.LogData, request=1, end=True)
    assert b"".join(one.data for one in daemon.all(wire.LogData, request=1)) == b"onetwo"
    assert last.end
    await daemon.send(wire.ReadLog(2, "t", 1, "stdout", 3, 2))
    piece = await daemon.hear(wire.LogData, request=2)
    assert (piece.offset, piece.data, piece.end, piece.error) == (3, b"tw", False, "")


async def test_an_idle_agent_costs_next_to_nothing(
    daemon: Daemon, start_agent: Callable[..., object], data_dir: Path
) -> None:
    process = start_agent()
    await daemon.hear(wire.Heartbeat)
    before = _cpu_s(process.pid)  # type: ignore[attr-defined]
    await asyncio.sleep(1.0)
    assert _cpu_s(process.pid) - before < 0.1  # type: ignore[attr-defined]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("content", [b"", b"\xe3\xff" * 20, b"two\nlines", b"\x00\x01"], ids=ascii)
def test_a_file_that_holds_no_token_is_told_and_looked_at_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "url").write_text("http://127.0.0.1:1\n")
    (tmp_path / "agent-token").write_bytes(content)
    with pytest.raises(Parted, match="agent-token"):
        Address(tmp_path, None, None).find()
