"""Fixtures of the agent's running side: a bench (runner and real shims), a daemon in this process, agents as processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.agent_run.bench import AgentProcess, Bench, Daemon, agents, open_bench


@pytest.fixture(autouse=True)
def nothing_is_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the address of somebody's daemon nor the mask of somebody's devices."""
    for name in ("HETSCHED_URL", "HETSCHED_TOKEN", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NOTIFY_SOCKET"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        yield opened


@pytest.fixture
async def daemon(data_dir: Path) -> AsyncIterator[Daemon]:
    opened = Daemon(data_dir)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def start_agent(data_dir: Path) -> Iterator[Callable[..., AgentProcess]]:
    with agents(data_dir) as begin:
        yield begin
