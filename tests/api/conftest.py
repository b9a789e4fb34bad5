"""One daemon on memory for all tests of a file that only ask; those that change its fate start their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.process import DaemonProcess


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon on memory:, with small limits that tests can reach."""
    path = Path(tempfile.mkdtemp(prefix="hs-"))
    try:
        with DaemonProcess(
            path,
            limits__body_bytes=1 << 20,
            server__header_timeout=1.0,
            server__body_timeout=1.5,
            server__longest_wait=5.0,
        ) as process:
            yield process
    finally:
        shutil.rmtree(path, ignore_errors=True)
