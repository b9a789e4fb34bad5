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
from hetsched.store.base import Durability, Leader, Led, Position, Standby, Unreachable
from hetsched.store.frame import Frame
from hetsched.store.memory import MemoryBackend, MemoryServer
from hetsched.store.succession import Candidate, Tenure
from tests.simulation.clockwork import Machine, Process, VirtualLoop
from tests.simulation.network import End, Network

ADDRESS = "store"
Op = tuple[str, tuple[Any, ...]]
WRITES = ("append", "claim", "renew", "pass_on", "stand_by", "announce", "put_chunk", "publish", "drop_chunks")


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

    def before(self, seq: int) -> Disk | None:
        """As it was just before frame `seq` was applied; None where that is too long ago."""
        state = _copy(self._base)
        if state.head is not None and state.head.seq >= seq:
            return None
        older = Disk()
        for op in self._ops:
            if op[0] == "append" and op[1][0].position.seq >= seq:
                older.state, older._base = state, _copy(state)
                return older
            with contextlib.suppress(StoreLost):
                _do(state, op)
        return None

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
        self.refusal = ""  # full: certainly not written
        self.is_replica = False
        self.answers_to_lose = 0
        self.published: Callable[[], None] = lambda: None
        self._whole: Disk | None = None  # what was there before it regressed
        self._term: tuple[Leader, float] | None = None  # who leads, until when by this machine's wall clock
        self._standbys: dict[str, tuple[Standby, float]] = {}
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

    def regress(self, below_seq: int) -> bool:
        """A primary that comes back without its last frames, or with none: less than `below_seq`. False where it kept too little to say."""
        older = self.disk.before(self.rng.randint(max(1, below_seq - 50), below_seq)) if below_seq > 0 else None
        if older is None or self._whole is not None:
            return False
        self._whole, self.disk = self.disk, Disk() if self.rng.random() < 0.3 else older
        self.kill()
        self.start()
        return True

    def restore(self) -> None:
        """The operator brings back what there was."""
        if self._whole is not None:
            self.kill()
            self.disk, self._whole = self._whole, None
            self.start()

    async def _serve(self, end: End) -> None:
        while (asked := await end.receive()) is not None:
            name, args = asked
            answer = self._refused(name)
            if answer is None:
                answer = self._answer(name, args)
                disk, upto = self.disk, self.disk.written
                # One thread: no answer leaves before what was written ahead of it is on disk.
                if name in WRITES or disk.synced < upto:
                    await asyncio.sleep(self.sync_s * (0.5 + self.rng.random()))
                    disk.sync(upto)
                    if name == "append" and self.answers_to_lose:
                        self.answers_to_lose -= 1
                        end.cut()
                        return
            try:
                await end.send((answer,))
            except ConnectionError:
                return

    def _refused(self, name: str) -> Any:
        """What it says to a write instead of doing it; None: it does it."""
        if self.refusal and name in ("append", "put_chunk", "claim", "renew", "announce"):
            return Verdict(Answer.REFUSED, self.refusal) if name == "append" else Unreachable(self.refusal)
        if self.is_replica and name in WRITES:
            said = "READONLY You can't write against a read only replica."
            return Verdict(Answer.BROKEN, said) if name == "append" else StoreLost(said)
        return None

    def _answer(self, name: str, args: tuple[Any, ...]) -> Any:
        try:
            if name in ("claim", "renew", "leader", "pass_on", "stand_by", "standbys_now"):
                return getattr(self, f"_{name}")(*args)
            if name not in WRITES:
                return _do(self.disk.state, (name, args))
            answer = self.disk.apply((name, args))
        except (StoreLost, Led) as error:
            return error
        if name == "append" and answer.answer is Answer.STORED:
            self._appended(args[0])
        if name == "publish":
            self.published()
        return answer

    # ------------------------------------------------------------------ who leads

    def _now_s(self) -> float:
        return self.machine.monotonic_s(self.loop.true_s) + self.machine.wall_offset_s

    def _claim(self, cluster: str, create: bool, candidate: Candidate, dead: Leader | None) -> Head:
        leader = self._leader()
        if leader is not None and leader.holder != candidate.holder and leader != dead:
            raise Led(leader)
        head: Head = self.disk.apply(("open_epoch", (cluster, create)))
        self._lend(candidate, candidate.lease_s)
        return head

    def _lend(self, to: Candidate | Standby, lease_s: float, renewals: int = 0) -> None:
        self._term = (Leader(to.holder, to.name, to.url, renewals), self._now_s() + lease_s)

    def _renew(self, epoch: int, candidate: Candidate) -> bool:
        leads = self.disk.state.head is not None and self.disk.state.head.epoch <= epoch
        if leads:
            leader = self._leader()
            self._lend(candidate, candidate.lease_s, 1 + (leader.renewals or 0 if leader is not None else 0))
        return leads

    def _leader(self) -> Leader | None:
        return self._term[0] if self._term is not None and self._now_s() < self._term[1] else None

    def _pass_on(self, epoch: int, candidate: Candidate, to: Standby | None) -> bool:
        leads = self.disk.state.head is not None and self.disk.state.head.epoch <= epoch
        if leads:
            self._term = None
            if to is not None:
                self._lend(to, candidate.lease_s)
        return leads

    def _stand_by(self, candidate: Candidate, seq: int) -> None:
        standby = Standby(candidate.holder, candidate.name, candidate.url, seq)
        self._standbys[candidate.holder] = (standby, self._now_s() + candidate.lease_s)

    def _standbys_now(self) -> tuple[Standby, ...]:
        return tuple(standby for standby, until_s in self._standbys.values() if self._now_s() < until_s)


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


class RemoteSuccession:
    """`store.succession.Succession`, the same way."""

    def __init__(self, backend: RemoteBackend) -> None:
        self._ask = backend.ask

    async def claim(self, cluster: str, create: bool, candidate: Candidate, dead: Leader | None = None) -> Head:
        return await self._ask("claim", cluster, create, candidate, dead)

    async def renew(self, epoch: int, candidate: Candidate) -> bool:
        return await self._ask("renew", epoch, candidate)

    async def leader(self) -> Leader | None:
        return await self._ask("leader")

    async def pass_on(self, epoch: int, candidate: Candidate, to: Standby | None) -> bool:
        return await self._ask("pass_on", epoch, candidate, to)

    async def stand_by(self, candidate: Candidate, seq: int) -> None:
        await self._ask("stand_by", candidate, seq)

    async def standbys(self) -> tuple[Standby, ...]:
        return await self._ask("standbys_now")


class RemoteRenewer:
    """`store.succession.Renewer`, over a connection of its own."""

    def __init__(self, network: Network) -> None:
        self._backend = RemoteBackend(network)
        self.succession = RemoteSuccession(self._backend)

    async def close(self) -> None:
        await self._backend.close()


class SimulatedTenure(Tenure):
    """Its thread is a task: here nobody holds the loop for long."""

    def __init__(
        self,
        renewer: Callable[[], RemoteRenewer],
        candidate: Candidate,
        epoch: int,
        claimed_ns: int,
        on_lost: Callable[[StoreLost], None],
    ) -> None:
        self._renewer = renewer
        self._candidate = candidate
        self._epoch = epoch
        self._on_lost = on_lost
        self._lease_ns = round(candidate.lease_s * 1e9)
        self._until_ns = claimed_ns + self._lease_ns
        self._turned_ns = claimed_ns
        self._ended = asyncio.Event()
        self._turning = asyncio.create_task(self._turn())
        self._keeping = asyncio.create_task(self._keep_here())

    async def _keep_here(self) -> None:
        try:
            await self._keep()
        except StoreLost as error:
            self._on_lost(error)

    async def end(self) -> None:
        self._ended.set()
        self._turning.cancel()
        await asyncio.wait([self._keeping, self._turning])
        self._until_ns = 0


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
        return await self.ask("head")

    async def dial(self) -> Connection:
        try:
            async with asyncio.timeout(5.0):
                return Connection(await self._network.dial(ADDRESS))
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"cannot connect: {error!r}") from None

    async def read(self, after: Position, count: int) -> list[tuple[str, bytes]]:
        return await self.ask("read", after, count)

    async def announce(self, manifest: Manifest) -> None:
        await self.ask("announce", manifest)

    async def put_chunk(self, name: str, index: int, data: bytes) -> None:
        await self.ask("put_chunk", name, index, data)

    async def get_chunk(self, name: str, index: int) -> bytes | None:
        return await self.ask("get_chunk", name, index)

    async def publish(self, epoch: int, snapshots: tuple[Manifest, ...], trim: Position | None) -> None:
        await self.ask("publish", epoch, snapshots, trim)

    async def drop_chunks(self, manifest: Manifest) -> None:
        await self.ask("drop_chunks", manifest)

    async def health(self) -> Health:
        await self.ask("head")
        return Health(Durability.FSYNC)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def ask(self, name: str, *args: Any) -> Any:
        async with self._turn:
            if self._connection is None:
                self._connection = await self.dial()
            try:
                return await self._connection.ask(name, *args)
            except BaseException:  # who is cut off or cancelled leaves an answer behind: it is nobody's
                connection, self._connection = self._connection, None
                await connection.close()
                raise
