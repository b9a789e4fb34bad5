"""The journal's server: what it applied, what its disk has, and a daemon's connection to it.

Facts it keeps to (RELIABILITY, Facts to build on): an append is applied, then written, then synced, then answered; kill -9 loses what was
not applied, a power cut any suffix of what was not synced; a cut leaves the fate of what was asked unknown; a full server refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

from hetsched.errors import StoreLost
from hetsched.store.backend import Answer, Head, Health, Manifest, Verdict
from hetsched.store.base import Durability, Position, Unreachable
from hetsched.store.frame import Frame
from hetsched.store.memory import MemoryBackend, MemoryServer
from tests.simulation.clockwork import Machine, Process, VirtualLoop
from tests.simulation.network import End, Network

ADDRESS = "store"
Op = tuple[str, tuple[Any, ...]]
WRITES = ("append", "open_epoch", "announce", "put_chunk", "publish", "drop_chunks")


class Disk:
    """Everything written, as operations since a base: state at any moment is a replay of a prefix. `written`, `synced`: operations ever."""

    def __init__(self) -> None:
        self.state = MemoryServer()
        self.synced = 0
        self._base, self._base_at = MemoryServer(), 0
        self._ops: list[Op] = []

    @property
    def written(self) -> int:
        return self._base_at + len(self._ops)

    def apply(self, op: Op) -> Any:
        """Answer of the operation; raises what it raises."""
        self._ops.append(op)
        return _do(self.state, op)

    def sync(self, upto: int) -> None:
        self.synced = max(self.synced, upto)
        if len(self._ops) > 512 and self.synced == self.written:
            self._base, self._base_at, self._ops = _copy(self.state), self.written, []

    def cut(self, keep: int) -> None:
        """Only the first `keep` operations ever happened."""
        state = _copy(self._base)
        self._ops = self._ops[: keep - self._base_at]
        for op in self._ops:
            with contextlib.suppress(StoreLost):
                _do(state, op)
        self.state, self.synced = state, keep


def _copy(state: MemoryServer) -> MemoryServer:
    copy = MemoryServer()
    copy.head, copy.frames, copy.chunks = state.head, list(state.frames), dict(state.chunks)
    return copy


def _do(state: MemoryServer, op: Op) -> Any:
    name, args = op
    if name == "append":
        return state.append(*args)
    work = getattr(MemoryBackend(state), name)(*args)
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError(f"{name} waits")


class Server:
    """The server on its machine; started and killed by fate. `appended(frame)` hears of every frame stored."""

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        machine: Machine,
        rng: random.Random,
        appended: Callable[[Frame], None],
    ) -> None:
        self.loop = loop
        self.network = network
        self.machine = machine
        self.rng = rng
        self.disk = Disk()
        self.process: Process | None = None
        self.sync_s = 0.001
        self.refusal = ""
        self._appended = appended

    def start(self) -> None:
        if self.process is not None and self.process.alive:
            return
        self.process = Process(self.loop, self.machine, "server")
        self.network.listen(ADDRESS, self.process, self._serve)

    def kill(self, *, power: bool = False) -> None:
        """kill -9; with the machine's `power`, some of what was not synced is gone."""
        if self.process is not None:
            self.process.kill()
        if power:
            self.disk.cut(self.rng.randint(self.disk.synced, self.disk.written))

    async def _serve(self, end: End) -> None:
        while (asked := await end.receive()) is not None:
            name, args = asked
            if self.refusal and name in ("append", "put_chunk"):
                answer: Any = Verdict(Answer.REFUSED, self.refusal) if name == "append" else Unreachable(self.refusal)
            else:
                answer = self._answer(name, args)
                if name in WRITES:
                    upto = self.disk.written
                    await asyncio.sleep(self.sync_s * (0.5 + self.rng.random()))
                    self.disk.sync(upto)
            try:
                await end.send((answer,))
            except ConnectionError:
                return

    def _answer(self, name: str, args: tuple[Any, ...]) -> Any:
        try:
            if name not in WRITES:
                return _do(self.disk.state, (name, args))
            answer = self.disk.apply((name, args))
        except StoreLost as error:
            return error
        if name == "append" and answer.answer is Answer.STORED:
            self._appended(args[0])
        return answer


class Connection:
    """One connection of the client: asks in order; a cut or ten seconds without an answer is Unreachable."""

    def __init__(self, end: End) -> None:
        self._end = end

    async def send(self, frame: Frame) -> None:
        await self._put(("append", (frame,)))

    async def receive(self) -> Any:
        answer = await self._end.receive()
        if answer is None:
            raise Unreachable("the server closed the connection")
        return answer[0]

    async def ask(self, name: str, *args: Any) -> Any:
        try:
            async with asyncio.timeout(10.0):
                await self._put((name, args))
                answer = await self.receive()
        except TimeoutError:
            raise Unreachable("no answer") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self._end.shut()

    async def _put(self, message: Any) -> None:
        try:
            await self._end.send(message)
        except ConnectionError as error:
            raise Unreachable(str(error)) from None


class RemoteBackend:
    """`store.backend.Backend` over the simulated network."""

    kind = "redis"
    restarts_total = 0

    def __init__(self, network: Network) -> None:
        self._network = network
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        return None

    async def head(self) -> Head | None:
        return await self._ask("head")

    async def open_epoch(self, cluster: str, create: bool) -> Head:
        return await self._ask("open_epoch", cluster, create)

    async def dial(self) -> Connection:
        try:
            async with asyncio.timeout(5.0):
                return Connection(await self._network.dial(ADDRESS))
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"cannot connect: {error!r}") from None

    async def read(self, after: Position, count: int) -> list[tuple[str, bytes]]:
        return await self._ask("read", after, count)

    async def announce(self, manifest: Manifest) -> None:
        await self._ask("announce", manifest)

    async def put_chunk(self, name: str, index: int, data: bytes) -> None:
        await self._ask("put_chunk", name, index, data)

    async def get_chunk(self, name: str, index: int) -> bytes | None:
        return await self._ask("get_chunk", name, index)

    async def publish(self, epoch: int, snapshots: tuple[Manifest, ...], trim: Position | None) -> None:
        await self._ask("publish", epoch, snapshots, trim)

    async def drop_chunks(self, manifest: Manifest) -> None:
        await self._ask("drop_chunks", manifest)

    async def health(self) -> Health:
        await self._ask("head")
        return Health(Durability.FSYNC)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def _ask(self, name: str, *args: Any) -> Any:
        async with self._turn:
            if self._connection is None:
                self._connection = await self.dial()
            try:
                return await self._connection.ask(name, *args)
            except BaseException:  # who is cut off or cancelled leaves an answer behind: it is nobody's
                connection, self._connection = self._connection, None
                await connection.close()
                raise
