"""What the store's stories are told with: a config, readers, a real server of our own, a proxy that cuts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from hetsched.config import Config, from_mapping
from hetsched.store import MemoryServer, Opened, Store, memory_store, open_store
from hetsched.store.server import find_server


def config(**store: Any) -> Config:
    return from_mapping({"store": store}, simulated=False)


async def replay(opened: Opened) -> list[bytes]:
    return [payload async for payload in opened.frames]


async def everything(opened: Opened) -> list[bytes]:
    """Lines of the snapshot, then the frames: what a daemon would know."""
    return [*(opened.snapshot or b"").splitlines(), *await replay(opened)]


@contextlib.asynccontextmanager
async def opened_store(url: str, data_dir: Path, **settings: Any) -> AsyncIterator[tuple[Store, Opened]]:
    store = await open_store(url, data_dir, config(**settings))
    opened = await store.open()
    try:
        yield store, opened
    finally:
        await store.close()


async def memory(server: MemoryServer) -> tuple[Store, Opened]:
    store = memory_store(server, config())
    return store, await store.open()


async def eventually(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    """Wait for a condition; an assertion that names it when time is over."""
    until = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < until, "this did not come true in time"
        await asyncio.sleep(0.005)


class Server:
    """A Redis or Valkey server somebody else runs: synced always, no password, a unix socket."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "s"
        self.url = f"unix://{self.socket}"
        self._process: asyncio.subprocess.Process | None = None
        self.client = Redis(unix_socket_path=str(self.socket), protocol=2)

    async def start(self, *options: str) -> Server:
        self._process = await asyncio.create_subprocess_exec(
            str(find_server()),
            *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "always", *options),
            stdout=asyncio.subprocess.DEVNULL,
        )
        for _ in range(500):
            with contextlib.suppress(Exception):
                await self.client.ping()
                return self
            await asyncio.sleep(0.01)
        raise AssertionError("the test's server does not start")

    async def kill(self) -> None:
        await self.client.connection_pool.disconnect()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._process is not None:
            await self._process.wait()
        self._process = None


class Proxy:
    """Between daemon and server: passes everything on until told to cut or to hold back."""

    def __init__(self, path: Path, upstream: Path) -> None:
        self.path, self.upstream = path, upstream
        self.cut_requests = (
            0  # so many of the next requests (with a frame in them) end the connection before the server
        )
        self.cut_answers = 0  # … after the server has acted, before its answer
        self.cuts_total = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Proxy:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        return self

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(str(self.upstream))
            both = [self._requests(reader, up_writer), self._answers(up_reader, writer)]
            halves = [asyncio.create_task(half) for half in both]
            try:
                await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for half in halves:
                    half.cancel()
                await asyncio.gather(*halves, return_exceptions=True)
                up_writer.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            if self.cut_requests and b"EVALSHA" in data:
                self.cut_requests -= 1
                self.cuts_total += 1
                return
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            if self.cut_answers and b"STORED" in data:
                self.cut_answers -= 1
                self.cuts_total += 1
                return
            writer.write(data)
            await writer.drain()
