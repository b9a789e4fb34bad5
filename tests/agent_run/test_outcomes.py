"""How attempts end, each as a real process under a real shim."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from hetsched.agent.attempts import Key
from tests.agent_run.bench import Bench, until


@pytest.mark.parametrize(
    ("script", "succeeded", "exit_code", "reason"),
    [
        ("exit 0", True, 0, ""),
        ("exit 3", False, 3, "exit 3"),
        ("kill -9 $$", False, 137, "signal 9"),
        ("kill -TERM $$", False, 143, "signal 15"),
    ],
)
async def test_an_exit_says_itself(bench: Bench, script: str, succeeded: bool, exit_code: int, reason: str) -> None:
    ended = await bench.run("t", "sh", "-c", script)
    assert (ended.succeeded, ended.exit_code, ended.reason) == (succeeded, exit_code, reason)


@pytest.mark.parametrize(
    ("command", "more", "reason"),
    [
        (["no-such-program"], {}, "cannot_start: No such file or directory: no-such-program"),
        (["true"], {"workdir": "/no/such/place"}, "cannot_start: No such file or directory: /no/such/place"),
        (["true"], {"devices": (("gpu-99", 1000),)}, "cannot_start: this node has no gpu-99"),
        (["/dev"], {}, "cannot_start: Permission denied: /dev"),
    ],
)
async def test_what_cannot_start_says_why(
    bench: Bench, command: list[str], more: dict[str, object], reason: str
) -> None:
    ended = await bench.run("t", *command, **more)
    assert (ended.succeeded, ended.exit_code, ended.reason) == (False, None, reason)


async def test_the_time_limit_ends_a_task_with_its_children(bench: Bench) -> None:
    ended = await bench.run("t", "sh", "-c", "sleep 100 & sleep 100", time_limit_s=0.2)
    assert (ended.succeeded, ended.reason) == (False, "time_limit")


@pytest.mark.parametrize("code", [0, 1, 77])
async def test_over_its_time_limit_the_reason_stays_however_it_ends_in_its_grace(bench: Bench, code: int) -> None:
    script = f"trap 'exit {code}' TERM; while :; do sleep 0.02; done"
    ended = await bench.run("t", "sh", "-c", script, time_limit_s=0.5)
    assert (ended.succeeded, ended.exit_code, ended.reason) == (False, code, "time_limit")


@pytest.mark.parametrize("reason", ["preempted", "cancelled", "device_failed", "operator", "gang", "reclaim"])
async def test_told_to_stop_the_reason_stays_though_it_fails_in_its_grace(bench: Bench, reason: str) -> None:
    bench.start("t", "sh", "-c", "trap 'exit 1' TERM; echo ready; while :; do sleep 0.02; done")
    await bench.file(bench.spool.path(Key("t", 1)) / "stdout")
    bench.stop("t", reason=reason)
    ended = await bench.ended("t")
    assert (ended.succeeded, ended.exit_code, ended.reason) == (False, 1, reason)


async def test_a_task_may_clean_up_in_its_grace(bench: Bench) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    bench.start("t", "sh", "-c", script)
    await bench.file(bench.spool.path(Key("t", 1)) / "stdout")
    bench.stop("t", reason="preempted")
    ended = await bench.ended("t")
    assert (ended.succeeded, ended.exit_code, ended.reason) == (False, 0, "preempted")
    assert bench.stream("t") == "ready\nsaved\n"


async def test_what_a_task_leaves_behind_is_ended_and_the_exit_stays_its_own(bench: Bench, tmp_path: Path) -> None:
    left = tmp_path / "left"
    ended = await bench.run("t", "sh", "-c", f"setsid sleep 100 & echo $! > {left}; exit 0")
    assert ended.succeeded
    assert not Path(f"/proc/{left.read_text().strip()}").exists()


async def test_a_double_start_runs_once(bench: Bench, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for _ in range(3):
        bench.start("t", "sh", "-c", f"echo once >> {ran}; sleep 0.3")
    await bench.started("t")
    bench.start("t", "sh", "-c", f"echo twice >> {ran}")
    await bench.ended("t")
    bench.start("t", "sh", "-c", f"echo thrice >> {ran}")
    await asyncio.sleep(0.1)
    assert ran.read_text() == "once\n"
    assert len([one for one in bench.said if type(one).__name__ == "Ended"]) == 2


async def test_the_record_is_there_before_the_process(bench: Bench) -> None:
    ended = await bench.run(
        "t",
        sys.executable,
        "-c",
        "import os; print(open(os.environ['HETSCHED_ATTEMPT_DIR'] + '/../../ledger').read())",
    )
    assert ended.succeeded, bench.stream("t", "stderr")
    assert bench.stream("t").startswith('["ordered","t",1,')


async def test_a_task_starts_with_clean_signals_no_descriptors_and_its_own_session(bench: Bench) -> None:
    program = (
        "import os, signal\n"
        "print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4], os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        # Without this Python's own SIGPIPE and SIGXFSZ, and without 32 and 33: the C library's, which make hands down ignored
        # and no program can set.
        "ignored = int(status['SigIgn'], 16) & ~(1 << 12 | 1 << 24 | 3 << 31)\n"
        "print(int(status['SigBlk'], 16), ignored, status['Groups'].split() == [str(g) for g in os.getgroups()])"
    )
    ended = await bench.run("t", sys.executable, "-c", program)
    assert ended.succeeded, bench.stream("t", "stderr")
    # 3: the directory that is being listed
    assert bench.stream("t") == "[0, 1, 2, 3] True True\n0 0 True\n"


async def test_many_at_once_all_end(bench: Bench) -> None:
    for number in range(60):
        bench.start(f"many/{number}", "sh", "-c", f"exit {number % 3}")
    ends = [await bench.ended(f"many/{number}") for number in range(60)]
    assert [ended.exit_code for ended in ends] == [number % 3 for number in range(60)]


async def test_a_dead_spawner_is_replaced_and_no_start_is_lost(bench: Bench) -> None:
    import os
    import signal

    await bench.run("first", "true")
    os.kill(bench.runner.spawner_pid, signal.SIGKILL)
    for number in range(5):
        bench.start(f"t{number}", "true")
    for number in range(5):
        assert (await bench.ended(f"t{number}")).succeeded
    await until(lambda: bench.runner.spawner_pid, "another spawner")


async def test_a_held_attempt_has_no_process_and_ends_by_time(bench: Bench) -> None:
    bench.start("t", duration_s=0.2)
    started = await bench.started("t")
    assert started.pid == 0
    assert (await bench.ended("t")).succeeded
    assert bench.spool.life(Key("t", 1)) is None


async def test_a_task_that_removes_its_own_directory_ends_like_any_other(bench: Bench) -> None:
    ended = await bench.run("t", "sh", "-c", 'rm -r "$HETSCHED_ATTEMPT_DIR"; exit 3')
    assert (ended.succeeded, ended.reason) == (False, "exit 3")
    assert (await bench.run("u", "true")).succeeded


async def test_what_a_task_left_is_not_there_for_the_next_one(bench: Bench) -> None:
    """Shims keep the directory of a task that left nothing for the next one; only of such a one."""
    look = "ls -A; ls -A .. | tr '\\n' ' '; stat -c '%s %a' ../stdout ../stderr ."
    await bench.run("silent", "true")
    await bench.run("t", "sh", "-c", look)
    first = bench.stream("t")
    for number, script in enumerate(
        ("touch x", "echo said", "echo said >&2", "chmod 755 .", "ln ../stdout ../more", "rm ../stderr")
    ):
        await bench.run(f"u{number}", "sh", "-c", script)
        await bench.run(f"v{number}", "sh", "-c", look)
        assert bench.stream(f"v{number}") == first, script


async def test_directories_of_silent_tasks_are_used_again(bench: Bench) -> None:
    for number in range(30):
        await bench.run(f"t{number}", "true")
    assert len(bench.spool.directories()) < 5
