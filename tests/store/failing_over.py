"""Stories of a primary that dies while frames are appended, whoever replaces it: sentinels, or the nodes of a cluster."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Protocol

import pytest

from hetsched.errors import StoreLost
from hetsched.store import IdentityMismatch, Moved, Store, open_store
from tests.store.helpers import config, replay
from tests.store.sentinels import Node


class Replaced(Protocol):
    """Servers of which one is primary, and others take over."""

    url: str

    @property
    def primary(self) -> Node: ...

    @property
    def replicas(self) -> list[Node]: ...

    def settled(self) -> None: ...

    def until_replaced(self, dead: Node) -> None: ...


async def appended_until_lost(store: Store, kept: list[bytes], begin: int) -> StoreLost:
    """Append four at a time until the store is lost; what was confirmed is in `kept`, in order."""
    number = begin
    while True:
        frames = [b"%d" % (number + ahead) for ahead in range(4)]
        number += 4
        answers = await asyncio.gather(*(store.append(frame) for frame in frames), return_exceptions=True)
        for frame, answer in zip(frames, answers, strict=True):
            if answer is None:
                kept.append(frame)
            else:
                assert isinstance(answer, StoreLost), answer
        if any(answers):
            return await store.failed


async def failovers(watched: Replaced, data_dir: Path, runs: int) -> int:
    """Kill one primary after the other under appends; the number of frames confirmed, all of which are there in the end."""
    kept: list[bytes] = []
    for run in range(runs + 1):
        store = await open_store(watched.url, data_dir / "d", config(durability="replicated"))
        opened = await store.open()
        there = await replay(opened)
        assert [frame for frame in there if frame in set(kept)] == kept, "nothing confirmed is lost or out of order"
        assert opened.epoch >= run + 1
        if run < runs:
            dead = watched.primary
            losing = asyncio.create_task(appended_until_lost(store, kept, run * 1_000_000))
            await asyncio.sleep(0.3)
            dead.kill()
            assert isinstance(await losing, Moved)
            await asyncio.to_thread(watched.until_replaced, dead)
            await asyncio.to_thread(dead.start)  # a replica again: without one nothing is replicated
            await asyncio.to_thread(watched.settled)
        await store.close()
    return len(kept)


async def regress(watched: Replaced, data_dir: Path) -> None:
    """Frames that only the primary has are confirmed under fsync, then it dies."""
    store = await open_store(watched.url, data_dir / "d", config(durability="fsync"))
    await store.open()
    await store.append(b"on all")
    dead, replicas = watched.primary, watched.replicas
    dead.client.set("{hetsched}:told", 1)
    assert dead.client.wait(len(replicas), 10_000) == len(replicas), "all have what was appended so far"
    for replica in replicas:
        replica.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
    dead.client.client_kill_filter(_type="replica")  # else the kernel keeps for them what follows
    for number in range(10):
        await store.append(b"%d" % number)
    dead.kill()
    for replica in replicas:
        replica.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
    await asyncio.to_thread(watched.until_replaced, dead)
    lost = store.append(b"one more")
    with pytest.raises(StoreLost):
        await lost
    await store.close()
    again = await open_store(watched.url, data_dir / "d", config(durability="fsync"))
    with pytest.raises(IdentityMismatch, match="before that"):
        await again.open()
