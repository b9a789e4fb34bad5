"""Ending whole trees: stubborn ones, daemons, and what the lease demands."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hetsched.agent.attempts import Key
from hetsched.agent.delegation import group_name
from hetsched.agent.measuring import group_of
from hetsched.agent.shim.lease import now_ns
from tests.agent_run.bench import Bench, alive, open_bench, own_cgroup, until

# Ignores SIGTERM, has a child that does, and a daemon that has left by a double fork, a session of its own and a clean environment.
DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')
time.sleep(1000)
"""
STUBBORN = f"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, '-S', '-c', {DAEMON!r}, sys.argv[1]], {{}})
    os._exit(0)
open(sys.argv[1], 'a').write(f'{{os.getpid()}}\\n')
while True: time.sleep(1)
"""


async def stubborn(bench: Bench, pids_file: Path, **more: object) -> list[int]:
    """Starts the tree; its three processes once all are there."""
    pids_file.touch()
    bench.start("t", sys.executable, "-c", STUBBORN, str(pids_file), **more)
    await until(lambda: len(pids_file.read_text().splitlines()) == 3, "the three of the tree")
    pids = [int(line) for line in pids_file.read_text().splitlines()]
    assert all(map(alive, pids))
    return pids


async def test_a_stop_ends_a_tree_that_ignores_sigterm_and_hides_a_daemon(bench: Bench, tmp_path: Path) -> None:
    pids = await stubborn(bench, tmp_path / "pids")
    asked = time.monotonic()
    bench.stop("t", grace_s=0.5, reason="preempted")
    ended = await bench.ended("t")
    assert time.monotonic() - asked >= 0.5, "it had its grace"
    assert (ended.succeeded, ended.exit_code, ended.reason) == (False, 137, "preempted")
    assert not any(map(alive, pids))


async def test_a_later_stop_may_shorten_the_grace(bench: Bench, tmp_path: Path) -> None:
    await stubborn(bench, tmp_path / "pids")
    bench.stop("t", grace_s=600, reason="preempted")
    await until(lambda: (bench.spool.path(Key("t", 1)) / "stop").exists())
    bench.stop("t", grace_s=0.1, reason="cancelled")
    assert (await bench.ended("t")).reason == "preempted"


async def test_the_end_of_the_lease_ends_the_tree(data_dir: Path, tmp_path: Path) -> None:
    async with open_bench(data_dir, lease_s=1.5) as bench:
        pids = await stubborn(bench, tmp_path / "pids", grace_s=0.1)
        ended = await bench.ended("t")
        assert (ended.succeeded, ended.reason) == (False, "lease")
        assert bench.lease.left_ns() < 0
        assert not any(map(alive, pids))


async def test_a_lease_that_is_renewed_keeps_the_task(data_dir: Path) -> None:
    async with open_bench(data_dir, lease_s=0.4) as bench:
        bench.start("t", "sleep", "100")
        started = await bench.started("t")
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            bench.lease.extend(now_ns() + 400_000_000)
            await until(lambda: bench.lease.left_ns() < 300_000_000)
        assert alive(started.pid)
        assert (await bench.ended("t")).reason == "lease"


async def test_nothing_starts_without_a_lease(data_dir: Path, tmp_path: Path) -> None:
    async with open_bench(data_dir, lease_s=-1.0) as bench:
        ended = await bench.run("t", "touch", str(tmp_path / "ran"))
        assert (ended.succeeded, ended.reason) == (False, "lease")
        assert not (tmp_path / "ran").exists()


async def test_held_attempts_end_with_the_lease(data_dir: Path) -> None:
    async with open_bench(data_dir, lease_s=0.3) as bench:
        bench.start("t", duration_s=600.0)
        await bench.started("t")
        assert (await bench.ended("t")).reason == "lease"


async def test_a_stop_that_overtakes_its_start_prevents_it(bench: Bench, tmp_path: Path) -> None:
    bench.start("t", "sh", "-c", f"touch {tmp_path / 'ran'}; sleep 100")
    bench.stop("t", grace_s=0.0)
    assert (await bench.ended("t")).reason == "cancelled"


async def test_a_stop_of_an_unknown_attempt_is_answered_and_remembered(bench: Bench, tmp_path: Path) -> None:
    bench.stop("t")
    ended = await bench.ended("t")
    assert (ended.succeeded, ended.reason) == (False, "never started")
    bench.start("t", "touch", str(tmp_path / "ran"))
    await bench.run("other", "true")
    assert not (tmp_path / "ran").exists()
    await until(lambda: '["ended","t",1' in (bench.directory / "ledger").read_text(), "the tombstone on disk")


async def test_signals_to_the_agents_group_do_not_reach_shims_or_tasks(bench: Bench) -> None:
    bench.start("t", "sleep", "100")
    started = await bench.started("t")
    shim = await bench.shim_of("t")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(shim, number)
    assert os.getsid(shim) not in (os.getsid(0), os.getsid(started.pid))
    bench.stop("t", reason="cancelled")
    assert (await bench.ended("t")).reason == "cancelled"


async def test_a_stopped_task_hears_the_stop(bench: Bench) -> None:
    bench.start("t", "sleep", "100")
    started = await bench.started("t")
    os.kill(started.pid, signal.SIGSTOP)
    bench.stop("t", grace_s=600)
    assert (await bench.ended("t")).exit_code == 143


async def test_a_tree_in_its_own_cgroup_is_ended_at_once(data_dir: Path, tmp_path: Path) -> None:
    cgroup = own_cgroup(data_dir)
    if cgroup is None:
        pytest.skip("no cgroup (v2) is delegated to this process")
    async with open_bench(data_dir, cgroup=cgroup) as bench:
        pids = await stubborn(bench, tmp_path / "pids")
        life = bench.spool.life(Key("t", 1))
        assert life is not None
        own = cgroup / group_name(life.shim)
        assert group_of(pids[0], cgroup) == own
        inside = (own / "cgroup.procs").read_text().split()
        assert set(map(str, pids)) <= set(inside)
        bench.stop("t", grace_s=0.0)
        await bench.ended("t")
        assert not any(map(alive, pids))
    assert not cgroup.exists()


async def test_a_killed_shim_takes_its_task_along_and_the_rest_is_hunted(bench: Bench, tmp_path: Path) -> None:
    pids_file = tmp_path / "pids"
    script = (
        f"echo $$ >> {pids_file}; sleep 1000 & echo $! >> {pids_file}; setsid sleep 1000 & echo $! >> {pids_file}; wait"
    )
    bench.start("t", "sh", "-c", script)
    await until(lambda: pids_file.exists() and len(pids_file.read_text().split()) == 3)
    os.kill(await bench.shim_of("t"), signal.SIGKILL)
    ended = await bench.ended("t")
    assert (ended.succeeded, ended.reason) == (False, "lost_shim")
    assert not any(alive(int(pid)) for pid in pids_file.read_text().split())
