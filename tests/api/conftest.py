"""One daemon on memory for all tests of a file that only ask; those that change its fate start their own. What is told of submissions and of
the wire is told to a daemon of one process and to one with front ends, which has to say the same."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.process import DaemonProcess

WITH_FRONT_ENDS_TOO = ("test_bulk", "test_hostile", "test_packed", "test_submit", "test_two_ways", "test_wire")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "workers" in metafunc.fixturenames and metafunc.module.__name__.rpartition(".")[2] in WITH_FRONT_ENDS_TOO:
        metafunc.parametrize("workers", [0, 2], ids=["one process", "front ends"], scope="module")


@pytest.fixture(scope="module")
def workers() -> int:
    """Front ends of the daemon."""
    return 0


@pytest.fixture(scope="module")
def daemon(workers: int) -> Iterator[DaemonProcess]:
    """A daemon on memory:, with small limits that tests can reach."""
    path = Path(tempfile.mkdtemp(prefix="hs-"))
    try:
        with DaemonProcess(
            path,
            server__workers=workers,
            limits__body_bytes=1 << 20,
            server__header_timeout=1.0,
            server__body_timeout=1.5,
            server__longest_wait=5.0,
        ) as process:
            yield process
    finally:
        shutil.rmtree(path, ignore_errors=True)
