"""A generator process: it is late for nothing that it was not told of."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.generator import ARRAY, Plan, generate

MS = 1_000_000
spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def test_it_waits_for_the_word_to_begin_so_that_its_own_start_counts_as_nobodys_waiting(
    listening: socket.socket, tmp_path: Path
) -> None:
    plan = Plan(
        number=0,
        directory=tmp_path,
        capacity=1000,
        host="127.0.0.1",
        port=listening.getsockname()[1],
        token="secret",
        run="r",
        mode=ARRAY,
        mix="cpu",
        rate_per_s=100.0,
        start_ns=0,
        end_ns=0,
        tick_s=0.01,
        batch=100,
        connections=1,
        timeout_s=0.1,
        seed=1,
    )
    line, theirs = spawn.Pipe()
    process = spawn.Process(target=generate, args=(plan, theirs), daemon=True)
    process.start()
    try:
        assert line.poll(30), "it says that it is there"
        with pytest.raises(TimeoutError):
            listening.accept()
        now_ns = time.monotonic_ns()
        line.send((now_ns, now_ns + 100 * MS))
        listening.settimeout(30)
        connection, _ = listening.accept()
        with connection:
            assert connection.recv(4) == b"POST"
    finally:
        process.kill()
        process.join()
