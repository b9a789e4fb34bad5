"""Fixtures that every room's tests share: the material beside the repository, directories.

Promises: a test that needs what a machine lacks is skipped and says what is missing; nothing is left behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.store.helpers import Server

ROOT = Path(__file__).resolve().parent.parent

# As a shell's background job pytest ignores both, and so would every program that it starts: no story of ctrl-C could be told.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


LONG_S = 1800
"""For tests that are long on purpose and say no time of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_long = item.get_closest_marker("faults") or item.get_closest_marker("slow")
        if is_long and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_S))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory of recordings, traces and acceptance cases: `$HETSCHED_SHARED`, else `../shared`."""
    path = Path(os.environ.get("HETSCHED_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip("no shared directory beside the repository ($HETSCHED_SHARED names another place)")
    return path


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """An empty directory with a short path: a unix socket's may have 107 bytes, and pytest's own are longer."""
    path = Path(tempfile.mkdtemp(prefix="hs-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def server(data_dir: Path) -> AsyncIterator[Server]:
    """A Redis or Valkey server that somebody else runs, with a directory of its own below the test's."""
    (data_dir / "s").mkdir()
    started = await Server(data_dir / "s").start()
    yield started
    await started.kill()
