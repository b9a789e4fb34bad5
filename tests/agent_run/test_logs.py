"""Logs: windows, following, what is kept of a stream and of old attempts, and what no link may open."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hetsched import wire
from hetsched.agent import retention
from hetsched.agent.attempts import Key
from hetsched.agent.logs import Logs
from hetsched.agent.policy import Policy
from hetsched.agent.retention import Kept
from tests.agent_run.bench import Bench, open_bench, until


class Reader:
    """Reads a bench's logs as a link does."""

    def __init__(self, bench: Bench) -> None:
        self.got: list[wire.LogData] = []
        self.logs = Logs(bench.runner.attempts, bench.spool, self._send)
        self._requests = 0

    async def _send(self, data: wire.LogData) -> None:
        self.got.append(data)

    async def read(
        self, task: str, *, attempt: int = 0, stream: str = "stdout", offset: int = 0, limit: int = 1000
    ) -> wire.LogData:
        self._requests += 1
        self.logs.open(wire.ReadLog(self._requests, task, attempt, stream, offset, limit))
        request = self._requests
        return await until(lambda: next((one for one in self.got if one.request == request), None))


@pytest.fixture
def reader(bench: Bench) -> Reader:
    return Reader(bench)


async def test_a_window_at_a_time_to_the_end(bench: Bench, reader: Reader) -> None:
    await bench.run("t", "printf", "0123456789")
    first = await reader.read("t", limit=4)
    assert (first.offset, first.data, first.end) == (0, b"0123", False)
    last = await reader.read("t", offset=4, limit=100)
    assert (last.offset, last.data, last.end) == (4, b"456789", True)
    beyond = await reader.read("t", offset=50)
    assert (beyond.data, beyond.end, beyond.error) == (b"", True, "")


async def test_both_streams_and_the_latest_attempt_by_default(bench: Bench, reader: Reader) -> None:
    await bench.run("t", "sh", "-c", "echo first")
    bench.said.clear()
    await bench.run("t", "sh", "-c", "echo second; echo bad >&2", attempt=2)
    assert (await reader.read("t")).data == b"second\n"
    assert (await reader.read("t", stream="stderr")).data == b"bad\n"
    assert (await reader.read("t", attempt=1)).data == b"first\n"
    bench.runner.settle(Key("t", 1))
    bench.runner.settle(Key("t", 2))
    assert (await reader.read("t")).data == b"second\n"


async def test_what_is_not_there_has_a_code(bench: Bench, reader: Reader) -> None:
    await bench.run("t", "true")
    assert (await reader.read("t", attempt=9)).error == "gone"
    assert (await reader.read("nobody")).error == "gone"
    assert (await reader.read("t", stream="../../ledger")).error == "unknown"


async def test_a_running_task_that_is_silent_is_not_at_its_end(bench: Bench, reader: Reader) -> None:
    bench.start("t", "sleep", "100")
    await bench.started("t")
    read = await reader.read("t")
    assert (read.data, read.end, read.error) == (b"", False, "")


async def test_held_attempts_have_an_empty_log(bench: Bench, reader: Reader) -> None:
    bench.start("t", duration_s=100.0)
    await bench.started("t")
    assert (await reader.read("t")).error == ""


@pytest.mark.parametrize("make", ["link", "directory_link", "fifo"])
async def test_nothing_but_a_plain_file_of_the_attempt_is_opened(
    bench: Bench, reader: Reader, tmp_path: Path, make: str
) -> None:
    await bench.run("t", "echo", "x")
    path = bench.spool.path(Key("t", 1))
    (path / "stdout").unlink()
    (tmp_path / "stdout").write_text("secret")
    if make == "link":
        (path / "stdout").symlink_to(tmp_path / "stdout")
    elif make == "fifo":
        os.mkfifo(path / "stdout")
    else:
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path)
    read = await reader.read("t")
    assert (read.data, read.end, read.error) == (b"", True, "unreadable")


async def test_following_gives_what_comes_and_ends_with_the_attempt(
    bench: Bench, reader: Reader, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    bench.start("t", "sh", "-c", f"printf a; while [ ! -e {go} ]; do sleep 0.02; done; printf b")
    reader.logs.open(wire.ReadLog(1, "t", 0, "stdout", 0, 1000, follow=True))
    await until(lambda: b"".join(one.data for one in reader.got) == b"a")
    go.touch()
    await until(lambda: reader.got[-1].end)
    assert b"".join(one.data for one in reader.got) == b"ab"


async def test_following_stops_at_the_window_and_when_nobody_reads(bench: Bench, reader: Reader) -> None:
    bench.start("t", "sh", "-c", "while :; do echo 0123456789; sleep 0.01; done")
    await bench.started("t")
    reader.logs.open(wire.ReadLog(1, "t", 0, "stdout", 0, 30, follow=True))
    await until(lambda: sum(len(one.data) for one in reader.got) == 30)
    reader.logs.open(wire.ReadLog(2, "t", 0, "stdout", 0, 10**6, follow=True))
    await until(lambda: any(one.request == 2 for one in reader.got))
    reader.logs.close(2)
    await asyncio.sleep(0)
    count = len(reader.got)
    await asyncio.sleep(0.2)
    assert len(reader.got) == count


async def test_of_an_endless_stream_the_last_part_is_kept(data_dir: Path) -> None:
    keep = 1 << 20
    async with open_bench(data_dir, policy=Policy(allow_root=True, log_bytes=keep)) as bench:
        await bench.run("t", "sh", "-c", "head -c 4194304 /dev/zero | tr '\\0' x; echo end")
        status = os.stat(bench.spool.path(Key("t", 1)) / "stdout")
        assert status.st_size == 4 * keep + 4
        if status.st_blocks * 512 > 3 * keep:
            pytest.skip("this file system does not punch holes")
        reader = Reader(bench)
        read = await reader.read("t", limit=2 * keep)
        assert read.offset > 2 * keep
        assert read.data.endswith(b"x" * 100 + b"end\n")


def test_retention_goes_by_age_number_and_size_oldest_first() -> None:
    kept = [Kept(Key(str(age), 1), 1000.0 - age, 10) for age in range(5)]
    rules = Policy(log_retention=3.5, log_attempts=100, log_total_bytes=1000)
    assert [one.key.task for one in retention.to_remove(kept, rules, 1000.0)] == ["4"]
    rules = Policy(log_retention=100, log_attempts=3, log_total_bytes=1000)
    assert [one.key.task for one in retention.to_remove(kept, rules, 1000.0)] == ["3", "4"]
    rules = Policy(log_retention=100, log_attempts=100, log_total_bytes=25)
    assert [one.key.task for one in retention.to_remove(kept, rules, 1000.0)] == ["2", "3", "4"]


async def test_only_settled_attempts_may_go_and_links_in_them_are_not_followed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    await bench.run("t", "ln", "-s", str(tmp_path), "there")
    await bench.run("u", "echo", "x")
    bench.runner.settle(Key("t", 1))
    (kept,) = retention.settled(bench.spool, bench.spool.entries())
    assert kept.key == Key("t", 1)
    bench.spool.remove(bench.spool.path(Key("t", 1)))
    assert [path.name for path in bench.spool.directories()] == ["u.1"]
    assert (tmp_path / "precious").exists()
