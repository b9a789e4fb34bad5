"""The default store: a private server child, started, watched and stopped by the daemon.

When the server dies it is started again, with growing pauses; frames in flight are resent by the lane, so callers see a pause
and nothing else. When the daemon dies, the kernel ends the server (`launcher.py`). Promise: at most one server ever writes the
directory's files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hetsched.config import Store as StoreConfig
from hetsched.errors import StoreLost
from hetsched.store import launcher, server
from hetsched.store.aof import Damage, find_damage, find_grave, parts
from hetsched.store.backend import Health
from hetsched.store.base import FileDamaged, Unreachable
from hetsched.store.ending import end
from hetsched.store.redis import RedisBackend, connection_pool

log = logging.getLogger("hetsched.store")

LOCK_PATIENCE_S = 20.0
RESTART_FIRST_S = 0.02
RESTART_LAST_S = 5.0
STEADY_S = 10.0  # a server that ran for so long is started again without a pause
STOP_PATIENCE_S = 10.0
DEATHS_AT_START = 3
LOG_BYTES = 4 * 1024 * 1024
MIN_FREE_BYTES = 512 * 1024 * 1024  # the server ends itself when the disk is full: stop taking work in before


class Supervisor:
    """Keeps one server process running in `access.directory` until `stop`."""

    def __init__(self, program: Path, access: server.Access) -> None:
        self._program = program
        self._directory = access.directory
        self._task: asyncio.Task[None] | None = None
        self._pause_s = RESTART_FIRST_S
        self.process: asyncio.subprocess.Process | None = None
        self.deaths_total = 0

    async def start(self) -> None:
        self.process = await self._launch()
        self._task = asyncio.create_task(self._watch(self.process), name="store-supervisor")

    async def unwatch(self) -> None:
        """From here on the server's end is wanted."""
        if self._task is not None:
            await end(self._task)

    async def stop(self, asked: bool) -> None:
        """See to it that the server ends. `asked`: it was told to shut down and gets a while to do so by itself."""
        await self.unwatch()
        process = self.process
        if process is None:
            return
        ends = [process.terminate, process.kill]
        for act in [(lambda: None), *ends] if asked else ends:
            with contextlib.suppress(ProcessLookupError):
                act()
            try:
                await asyncio.wait_for(process.wait(), STOP_PATIENCE_S)
                return
            except TimeoutError:
                log.warning("journal server %d does not stop, insisting", process.pid)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        while True:
            started_s = time.monotonic()
            code = await process.wait()
            self.deaths_total += 1
            self._pause_s = RESTART_FIRST_S if time.monotonic() - started_s > STEADY_S else self._pause_s
            log.error(
                "journal server ended (%s), started again in %.2f s: %s",
                code,
                self._pause_s,
                server.log_tail(self._directory),
            )
            process = await self._launch_after_pause()

    async def _launch_after_pause(self) -> asyncio.subprocess.Process:
        while True:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, RESTART_LAST_S)
            try:
                self.process = await self._launch()
                return self.process
            except OSError as error:
                log.error("journal server cannot be started: %s", error)

    async def _launch(self) -> asyncio.subprocess.Process:
        """By way of the launcher, in a session of its own: a Ctrl-C meant for the daemon must not reach the journal first."""
        with self._log_file() as output:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", launcher.__file__),
                *(str(os.getpid()), str(self._directory / server.LOCK), str(LOCK_PATIENCE_S)),
                *(str(self._program), server.CONFIG),
                cwd=self._directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _log_file(self) -> contextlib.AbstractContextManager[int]:
        path = self._directory / server.LOG
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
        return _closing(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))


class EmbeddedBackend(RedisBackend):
    kind = "embedded"

    def __init__(self, data_dir: Path, config: StoreConfig) -> None:
        """ConfigError: no server program."""
        program = server.find_server(config.server)
        fsync = "everysec" if config.durability == "relaxed" else "always"
        directory = data_dir.resolve() / "valkey"
        self._access = server.prepare(directory, fsync, config.memory_bytes, config.snapshot_bytes)
        self.supervisor = Supervisor(program, self._access)
        super().__init__(connection_pool(self._access.url))

    @property
    def restarts_total(self) -> int:
        return self.supervisor.deaths_total

    async def start(self) -> None:
        damage = await asyncio.to_thread(self._grave)
        if damage is not None:
            raise _damaged(damage)
        await self.supervisor.start()
        while True:
            try:
                await self._do("PING")
                break
            except Unreachable:
                if self.supervisor.deaths_total >= DEATHS_AT_START:
                    await self.supervisor.stop(asked=False)
                    raise self._why_not() from None
                await asyncio.sleep(0.005)
        await super().start()

    def _grave(self) -> Damage | None:
        """Looked for while no server has the files: that of a daemon which was killed needs a moment to end, and may be rewriting them."""
        lock = launcher.hold(str(self._access.directory / server.LOCK), LOCK_PATIENCE_S)
        if lock is None:
            return None  # ours will not get it either, and says so
        try:
            return find_grave(self._access.directory)
        finally:
            os.close(lock)

    def _why_not(self) -> StoreLost:
        """A file of it is damaged, or else its own last words."""
        directory = self._access.directory
        damage, words = find_damage(directory), server.log_tail(directory)
        if damage is None and "RDB" in words:
            damage = next((Damage(path, 0, None, words) for path in parts(directory) if path.suffix == ".rdb"), None)
        return (
            StoreLost(f"the journal server does not start in {directory}: {words}")
            if damage is None
            else _damaged(damage)
        )

    async def health(self) -> Health:
        health = await super().health()
        space = os.statvfs(self._access.directory)
        free_bytes = space.f_bavail * space.f_frsize
        if free_bytes < min(MIN_FREE_BYTES, space.f_blocks * space.f_frsize // 10):
            return health._replace(refusal=f"the disk of {self._access.directory} has only {free_bytes} bytes left")
        return health

    async def close(self) -> None:
        """Everything confirmed is in the append-only file; no other file is to be written at the end."""
        await self.supervisor.unwatch()
        asked = await self._ask_to_end()
        await super().close()
        await self.supervisor.stop(asked)

    async def _ask_to_end(self) -> bool:
        """Whether the server heard: it then closes the connection instead of answering."""
        try:
            await self._do("PING")
        except (Unreachable, StoreLost):
            return False
        with contextlib.suppress(Unreachable, StoreLost):
            await self._do("SHUTDOWN", "NOSAVE")
        return True


def _damaged(damage: Damage) -> FileDamaged:
    cut = "" if damage.whole_until is None else f"byte:{damage.whole_until}"
    return FileDamaged(f"file {damage.path}", damage.byte, damage.reason, cut=cut)


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
