"""The agent dies and comes back; tasks do not notice and none is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hetsched import wire
from hetsched.agent import adoption, runner
from hetsched.agent.attempts import Key, Outcome
from hetsched.agent.main import EXIT_FIX_ME
from hetsched.agent.shim import processes
from hetsched.agent.spool import Spool
from tests.agent_run.bench import AgentProcess, Bench, Daemon, alive, open_bench, order, stop, until


def ours(message: wire.Start, daemon: Daemon) -> wire.Start:
    return msgspec.structs.replace(message, session=daemon.session)


async def test_a_killed_agent_leaves_its_tasks_and_the_next_one_adopts_them(
    daemon: Daemon, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    agent = start_agent()
    await daemon.hear(wire.Hello)
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.02; done; echo done"
    await daemon.send(ours(order("long", "sh", "-c", f"{waits}; exit 4"), daemon))
    await daemon.send(ours(order("short", "sh", "-c", waits), daemon))
    await daemon.send(ours(order("held", duration_s=1000.0), daemon))
    long = await daemon.hear(wire.Started, task="long")
    await daemon.hear(wire.Started, task="short")
    await daemon.hear(wire.Started, task="held")
    await agent.kill()
    assert alive(long.pid)
    go.touch()  # they end while nobody watches
    await until(lambda: not alive(long.pid))
    daemon.heard.clear()
    start_agent()
    hello = await daemon.hear(wire.Hello)
    states = {state.task: (state.state, state.exit_code, state.reason) for state in hello.attempts}
    assert states["held"] == ("running", None, "")
    assert states["long"] == ("ended", 4, "exit 4")
    await daemon.hear(wire.Ended, task="long", exit_code=4)
    await daemon.hear(wire.Ended, task="short", succeeded=True)


async def test_an_adopted_task_can_be_stopped(daemon: Daemon, start_agent: Callable[..., AgentProcess]) -> None:
    agent = start_agent()
    await daemon.hear(wire.Hello)
    await daemon.send(ours(order("t", "sleep", "100"), daemon))
    started = await daemon.hear(wire.Started, task="t")
    await agent.kill()
    daemon.heard.clear()
    start_agent()
    hello = await daemon.hear(wire.Hello)
    assert [(state.task, state.attempt, state.state) for state in hello.attempts] == [("t", 1, "running")]
    await daemon.send(ours(order("t", "touch", "/never"), daemon))
    assert (await daemon.hear(wire.Started, task="t")).pid == started.pid
    await daemon.send(msgspec.structs.replace(stop("t"), session=daemon.session))
    assert (await daemon.hear(wire.Ended, task="t")).reason == "cancelled"
    assert not alive(started.pid)


async def test_sigterm_stops_the_agent_and_no_task(daemon: Daemon, start_agent: Callable[..., AgentProcess]) -> None:
    agent = start_agent()
    await daemon.hear(wire.Hello)
    await daemon.send(ours(order("t", "sleep", "100"), daemon))
    started = await daemon.hear(wire.Started, task="t")
    os.killpg(agent.pid, signal.SIGTERM)
    assert await agent.gone() == 0
    assert alive(started.pid)


async def test_two_agents_do_not_share_a_directory_but_two_names_may(
    daemon: Daemon, start_agent: Callable[..., AgentProcess]
) -> None:
    start_agent(name="a")
    await daemon.hear(wire.Hello)
    second = start_agent(name="a")
    assert await second.gone() == EXIT_FIX_ME
    assert "is in use by another agent" in second.log.read_text()
    start_agent(name="b")
    await until(lambda: {hello.node.name for hello in daemon.all(wire.Hello)} == {"a", "b"})


async def test_kill_after_kill_every_task_runs_once(
    daemon: Daemon, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    """As the daemon does: whatever the agent lacks at its hello is started again, as the same attempt."""
    ledger = tmp_path / "ledger"
    script = f'echo "$HETSCHED_TASK begin" >> {ledger}; sleep 0.05; echo "$HETSCHED_TASK end" >> {ledger}'
    names: list[str] = []
    ended: set[str] = set()
    for kill_after_s in (0.0, 0.002, 0.01, 0.03, None):
        daemon.heard.clear()
        agent = start_agent()
        hello = await daemon.hear(wire.Hello)
        ended |= {state.task for state in hello.attempts if state.state == "ended"}
        known = ended | {state.task for state in hello.attempts}
        names += [f"t{len(names) + number}" for number in range(10)]
        for name in names:
            if name not in known:
                await daemon.send(ours(order(name, "sh", "-c", script), daemon))
        if kill_after_s is None:
            for name in set(names) - ended:
                await daemon.hear(wire.Ended, task=name)
        else:
            await asyncio.sleep(kill_after_s)
            await agent.kill()
        ended |= {one.task for one in daemon.all(wire.Ended)}
    lines = ledger.read_text().split("\n")[:-1]
    assert sorted(lines) == sorted([f"{name} begin" for name in names] + [f"{name} end" for name in names])


async def test_a_record_whose_shim_was_never_made_is_cleared_away(data_dir: Path) -> None:
    spool = Spool(data_dir / "tasks")
    spool.prepare(Key("t", 1), {"boot_id": "b", "argv": ["true"]})
    (spool.root / "half.1").mkdir()
    assert adoption.look(spool, "b") == []
    assert spool.directories() == []


async def test_after_a_reboot_everything_has_ended(data_dir: Path) -> None:
    spool = Spool(data_dir / "tasks")
    spool.prepare(Key("t", 1), {"boot_id": "before", "argv": ["true"]})
    spool.prepare(Key("held", 1), {"boot_id": "before", "argv": None, "held_until_ns": None})
    found = adoption.look(spool, "now")
    assert {one.row.key.task: one.row.outcome for one in found} == dict.fromkeys(
        ["t", "held"], Outcome(False, None, "node_rebooted")
    )
    assert spool.outcome(Key("t", 1)) == Outcome(False, None, "node_rebooted")


async def test_a_shim_that_died_with_its_agent_is_found_out_and_its_tree_ended(data_dir: Path, tmp_path: Path) -> None:
    async with open_bench(data_dir) as bench:
        bench.start("t", "sh", "-c", f"setsid sleep 1000 & echo $! > {tmp_path / 'pid'}; wait")
        await bench.started("t")
        left = int(await bench.file(tmp_path / "pid"))
        shim = await bench.shim_of("t")
        await bench.runner.close()
        os.kill(shim, signal.SIGKILL)
        await until(lambda: not alive(shim))
        assert alive(left)
        after = Bench(data_dir)
        await after.runner.open()
        assert (await after.ended("t")).reason == "lost_shim"
        assert not alive(left)
        await after.runner.close()


async def test_what_was_settled_is_not_told_again_and_does_not_run_again(data_dir: Path, tmp_path: Path) -> None:
    async with open_bench(data_dir) as bench:
        await bench.run("t", "sh", "-c", "exit 3")
        bench.runner.settle(Key("t", 1))
        await until(lambda: bench.spool.is_settled(bench.spool.path(Key("t", 1))))
        assert adoption.look(bench.spool, processes.boot_id()) == []
        assert bench.spool.latest("t") == Key("t", 1)
        bench.said.clear()
        assert (await bench.run("t", "touch", str(tmp_path / "ran"))).reason == "exit 3"
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("spoilt", ["attempt.json", "shim.pid", "exit.json", "everything"])
async def test_a_directory_that_its_task_has_spoilt_harms_only_that_task(
    data_dir: Path, tmp_path: Path, spoilt: str
) -> None:
    """A task that runs as the agent's own user can do that."""
    async with open_bench(data_dir) as bench:
        bench.start("t", "sh", "-c", f"sleep 1000 & echo $! > {tmp_path / 'pid'}; wait")
        bench.start("good", "sleep", "1000")
        await bench.started("good")
        left = int(await bench.file(tmp_path / "pid"))
        await bench.started("t")
        await bench.runner.close()
        path = bench.spool.path(Key("t", 1))
        if spoilt == "everything":
            for file in path.glob("*.*"):
                file.unlink()
        else:
            (path / spoilt).write_text('{"succeeded": "maybe", "pid": "x", "task": 5}')
        after = Bench(data_dir)
        await after.runner.open()
        try:
            assert [key.task for key in after.runner.attempts.alive()].count("good") == 1
            if spoilt == "exit.json":  # not believed: the shim will write a better one
                after.stop("t", grace_s=0.0)
            ended = await after.ended("t")
            assert not ended.succeeded
            assert not alive(left)
        finally:
            await after.runner.close()


async def test_an_attempt_on_disk_that_memory_does_not_know_does_not_run_again(data_dir: Path, tmp_path: Path) -> None:
    async with open_bench(data_dir) as bench:
        bench.spool.write_outcome(Key("t", 1), Outcome(True, 0, ""))
        ended = await bench.run("t", "touch", str(tmp_path / "ran"))
        assert ended.succeeded
        assert not (tmp_path / "ran").exists()


async def test_a_shim_that_never_comes_up_is_given_up_and_one_that_comes_late_finds_it_claimed(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_LOOK_AFTER_S", 0.01)
    monkeypatch.setattr(runner, "_TRIES", 3)
    nursery, asked, heard = bench.runner._nursery, [], []
    ask, hear = nursery.ask, nursery._heard
    monkeypatch.setattr(nursery, "ask", asked.append)
    monkeypatch.setattr(nursery, "_heard", lambda message: (heard.append(message), hear(message)))
    ended = await bench.run("t", "touch", str(tmp_path / "ran"))
    assert not ended.succeeded
    assert ended.reason.startswith("cannot_start: none of 3 shims came up; ")
    assert len(asked) == 3
    ask(asked[0])
    await until(lambda: heard)
    assert [message["event"] for message in heard] == ["claimed"]
    assert not (tmp_path / "ran").exists()
    assert bench.spool.outcome(Key("t", 1)).reason == ended.reason
