"""The store: frames, lane, snapshots and identity put together over one backend.

Start: lock (held by the caller of `open_store`) → server → identity → epoch → newest valid snapshot → frames. The epoch opens
before anything is read, so nobody else can add a frame behind our back. Where several daemons share the store and another one leads,
`open` raises Led; `follow` and `attend` are then asked until it may be tried again. Promises: those of `base.Store`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from hetsched.config import Store as StoreConfig
from hetsched.errors import Deposed, StoreLost
from hetsched.store.appender import Appender
from hetsched.store.backend import Backend, Head, Health
from hetsched.store.base import (
    START,
    Durability,
    Leader,
    Led,
    Moved,
    Opened,
    Position,
    Regressed,
    Standby,
    StoreStats,
    Unreachable,
)
from hetsched.store.ending import end
from hetsched.store.follower import Follower
from hetsched.store.frames import FramesAfter
from hetsched.store.identity import DirectoryLock, Identity
from hetsched.store.keeper import SnapshotKeeper
from hetsched.store.patience import patiently
from hetsched.store.succession import RENEWALS, Candidate, Renewer, Succession, Tenure, Vigil, now_ns

log = logging.getLogger("hetsched.store")

T = TypeVar("T")

OPEN_PATIENCE_S = 30.0
CLOSE_PATIENCE_S = 5.0
HEALTH_EVERY_S = 1.0
IDENTITY_EVERY_S = 10.0
IDENTITY_SHARED_EVERY_S = 1.0  # a replica that takes over may lack the last of what was confirmed: this is what tells
ADMIT_SHARE = 0.8  # of the server's memory limit: above, snapshots and completions need the rest
NO_HEALTH = Health(Durability.UNKNOWN)


class Journal:
    """`base.Store` over a backend. `identity` None: nothing outlives the process (memory). `succession` with `candidate`: several daemons
    may share the store, and this is who would lead, with a `renewer` of its lease; None: it is ours alone."""

    def __init__(
        self,
        backend: Backend,
        config: StoreConfig,
        identity: Identity | None = None,
        lock: DirectoryLock | None = None,
        succession: Succession | None = None,
        candidate: Candidate | None = None,
        renewer: Callable[[], Renewer] | None = None,
    ) -> None:
        self.failed: asyncio.Future[StoreLost] = asyncio.get_running_loop().create_future()
        self._backend = backend
        self._identity = identity
        self._lock = lock
        self._succession = succession if candidate is not None else None
        self._candidate = candidate
        self._renewer = renewer
        self._tenure: Tenure | None = None
        self._standbys: tuple[Standby, ...] = ()
        self._attended_s = self._attended_note_s = 0.0
        self._vigil = Vigil(candidate.lease_s if candidate is not None else 0.0)
        self._dead: Leader | None = None
        self._appender: Appender | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._health = NO_HEALTH
        self._keeper = SnapshotKeeper(backend, config, self._ask)
        self._replayed: FramesAfter | None = None
        self._followed_bytes = 0
        self._noted_next = START
        self._one_note = asyncio.Lock()
        self._reached = False
        self._closed = False

    # ------------------------------------------------------------------ opening

    async def open(self, followed: Follower | None = None) -> Opened:
        if self._appender is not None:
            raise AssertionError("a store opens once")
        try:
            return await self._open(followed)
        except Led:
            raise
        except BaseException:
            await self.close()
            raise

    async def _open(self, followed: Follower | None) -> Opened:
        await self._reach()
        if followed is not None and self._identity is not None:
            self._identity.know(followed.at)
        claimed_ns = now_ns()
        head = await self._open_epoch()
        state, base = None, START
        if followed is not None:
            await self._keeper.trust(head)
            base, self._followed_bytes = followed.at, followed.read_bytes
        else:
            manifest, state = await self._keeper.load(head)
            base = manifest.position if manifest else START
        self._appender = Appender(self._backend.dial, head.epoch, head.position, self._lost)
        if self._renewer is not None and self._candidate is not None:
            self._tenure = Tenure(self._renewer, self._candidate, head.epoch, claimed_ns, self._appender.lose)
        self._upkeep = asyncio.create_task(self._keep_up(), name="store-upkeep")
        log.info("journal: epoch %d opened at %s, read from %s", head.epoch, head.position.id, base.id)
        self._replayed = FramesAfter(self._backend, base, head, self._ask)
        return Opened(head.epoch, state, self._replayed, head.cluster, head.position)

    async def _reach(self) -> None:
        """The server answers."""
        if not self._reached:
            await self._backend.start()
            self._health = await self._ask(self._backend.health)
            self._reached = True

    async def _open_epoch(self) -> Head:
        """Check who we are, then fence everybody else."""
        head = await self._ask(self._backend.head)
        if self._identity is None:
            cluster = head.cluster if head else "memory"
        else:
            self._identity.check(head)
            cluster = head.cluster if head else self._identity.cluster
            if not self._identity.known:
                self._identity.save(cluster, START)  # so that a start cut short here goes on with the same id
        opened = await self._ask(partial(self._claim, cluster, head is None))
        if self._identity is not None:
            self._identity.check(opened)
            surely = opened if self._health.durability is not Durability.RELAXED else head
            if surely is not None:
                self._identity.save(opened.cluster, Position(surely.epoch, surely.seq))
            self._noted_next = Position(opened.epoch, opened.seq)
        return opened

    async def _claim(self, cluster: str, create: bool) -> Head:
        if self._succession is None or self._candidate is None:
            return await self._backend.open_epoch(cluster, create)
        return await self._succession.claim(cluster, create, self._candidate, self._dead)

    # ------------------------------------------------------------------ following

    async def follow(self) -> Follower:
        await self._reach()
        head = await self._ask(self._backend.head)
        if self._identity is not None and head is not None:
            self._identity.check(head)
            self._identity.save(head.cluster, Position(head.epoch, head.seq))
        return Follower(self._backend, patiently)

    async def attend(self, at: Position) -> Leader | None:
        succession, candidate = self._shared
        leader = await patiently(succession.leader)
        now_s = time.monotonic()
        if now_s - self._attended_s > candidate.lease_s / RENEWALS:
            self._attended_s = now_s
            await patiently(partial(succession.stand_by, candidate, at.seq))
        if now_s - self._attended_note_s > self._note_every_s and self._identity is not None:
            self._attended_note_s = now_s
            await self._note(self._identity, Position(at.epoch, at.seq))
        if leader is None or leader.holder == candidate.holder:
            return None
        self._dead = leader if self._vigil.is_dead(leader, now_s) else None
        if self._dead is not None:
            log.warning(
                "%s has not renewed its lease, whatever the server's clock says: this daemon takes its place",
                leader.url,
            )
        return None if self._dead is not None else leader

    async def _others_standing_by(self) -> tuple[Standby, ...]:
        """Without ourselves, who may have stood by a moment ago."""
        succession, candidate = self._shared
        return tuple(found for found in await succession.standbys() if found.holder != candidate.holder)

    @property
    def _shared(self) -> tuple[Succession, Candidate]:
        if self._succession is None or self._candidate is None:
            raise AssertionError("nobody else can lead this store")
        return self._succession, self._candidate

    # ------------------------------------------------------------------ leading

    @property
    def shared(self) -> bool:
        return self._succession is not None

    @property
    def leads(self) -> bool:
        return self._tenure is None or self._tenure.held

    @property
    def takeover_s(self) -> float:
        return 0.0 if self._candidate is None else self._candidate.lease_s

    def standbys(self) -> tuple[Standby, ...]:
        return self._standbys

    async def hand_over(self, to: Standby | None) -> None:
        if self._tenure is None:
            return
        succession, candidate = self._shared
        await self._lane.drained()
        await self._tenure.end()
        await self._ask(partial(succession.pass_on, self._epoch, candidate, to))

    # ------------------------------------------------------------------ running

    def append(self, facts: bytes) -> asyncio.Future[None]:
        return self._lane.append(facts)

    @property
    def position(self) -> Position:
        return self._lane.assigned

    @property
    def snapshot_due(self) -> bool:
        return self._keeper.due(self._journal_bytes())

    async def save_snapshot(self, state: bytes, at: Position | None = None) -> None:
        lane = self._lane
        at = at or lane.assigned
        try:
            await self._keeper.save(state, at, self._journal_bytes(), lambda: lane.kept(at.seq))
        except Deposed as error:
            lane.lose(error)
            raise

    def stats(self) -> StoreStats:
        lane, health = self._appender, self._health
        refusal = self.refusal()
        return StoreStats(
            kind=self._backend.kind,
            durability=health.durability,
            admit=not refusal,
            reason=refusal,
            connected=lane.connected if lane else False,
            epoch=self._epoch if lane else 0,
            assigned_seq=lane.assigned.seq if lane else 0,
            confirmed_seq=lane.confirmed.seq if lane else 0,
            in_flight=lane.in_flight if lane else 0,
            appends_total=lane.appends_total if lane else 0,
            appended_bytes_total=lane.bytes_total if lane else 0,
            resent_total=lane.resent_total if lane else 0,
            reconnects_total=max(0, lane.links_total - 1) if lane else 0,
            server_restarts_total=self._backend.restarts_total,
            last_append_ns=lane.last_append_ns if lane else 0,
            since_snapshot_bytes=self._keeper.since_bytes(self._journal_bytes()),
            since_snapshot_ns=self._keeper.since_ns(),
            snapshots_total=self._keeper.saved_total,
            memory_used_bytes=health.memory_used_bytes,
            memory_limit_bytes=health.memory_limit_bytes,
        )

    @property
    def durability(self) -> Durability:
        return self._health.durability

    def refusal(self) -> str:
        lane, health = self._appender, self._health
        if lane is None:
            return "the store is not open"
        if lane.error is not None:
            return str(lane.error)
        if lane.refusal:
            return f"the store refuses to write: {lane.refusal}"
        if lane.stuck:
            return "the store does not answer"
        if not self.leads:
            return "the lease is over and the store does not answer; another daemon may lead"
        if health.memory_limit_bytes and health.memory_used_bytes >= ADMIT_SHARE * health.memory_limit_bytes:
            return f"the store has used {health.memory_used_bytes} of {health.memory_limit_bytes} bytes of memory"
        return health.refusal

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._tenure is not None:
            await self._tenure.end()
        if self._upkeep is not None:
            await end(self._upkeep)
        if self._appender is not None:
            await self._appender.close(CLOSE_PATIENCE_S)
            if self._health.durability is not Durability.RELAXED:
                await self._note_identity()
        async with self._one_note:  # nobody writes in the directory of whoever comes next
            pass
        await self._backend.close()
        if self._lock is not None:
            self._lock.release()

    # ------------------------------------------------------------------ inside

    @property
    def _lane(self) -> Appender:
        if self._appender is None:
            raise AssertionError("the store is not open")
        return self._appender

    @property
    def _note_every_s(self) -> float:
        return IDENTITY_EVERY_S if self._succession is None else IDENTITY_SHARED_EVERY_S

    @property
    def _epoch(self) -> int:
        return self._lane.epoch

    def _journal_bytes(self) -> int:
        """Read since a snapshot, while following or at the start, and appended since."""
        replayed_bytes = self._replayed.bytes if self._replayed else 0
        return self._followed_bytes + replayed_bytes + (self._appender.bytes_total if self._appender else 0)

    def _lost(self, error: StoreLost) -> None:
        log.error("journal: lost for good: %s", error)
        if not self.failed.done():
            self.failed.set_result(error)

    async def _keep_up(self) -> None:
        """Ask every second how the server is and whether we still lead; let the identity follow every ten."""
        next_note_s = time.monotonic() + self._note_every_s
        silent = 0
        while True:
            await asyncio.sleep(HEALTH_EVERY_S)
            try:
                self._health = await self._backend.health()
                silent = 0
                await self._check_lead()
                if self._succession is not None:
                    self._standbys = await self._others_standing_by()
                if time.monotonic() >= next_note_s:
                    next_note_s = time.monotonic() + self._note_every_s
                    await self._note_identity()
            except Unreachable as error:
                log.debug("journal: no health: %s", error)
                silent += 1
                if (
                    silent > 1
                ):  # once may be a server that is being restarted; nothing may be in flight that would notice
                    self._health = self._health._replace(refusal="the store does not answer")
            except Moved as error:
                self._lane.lose(error)
            except Exception:
                log.exception("journal: upkeep failed; it goes on")

    async def _check_lead(self) -> None:
        """A daemon that has nothing to append would not notice by itself that it was deposed."""
        head = await self._backend.head()
        if head is None:
            self._lane.lose(Regressed("the store came back empty"))
        elif head.epoch > self._epoch:
            self._lane.lose(Deposed(f"epoch {head.epoch} leads; this daemon opened {self._epoch}"))

    async def _note_identity(self) -> None:
        """Write down what is confirmed; under relaxed durability what was when last asked, as the server may yet lose the rest."""
        if self._identity is None:
            return
        now = Position(self._epoch, self._lane.confirmed.seq)
        surely = self._noted_next if self._health.durability is Durability.RELAXED else now
        self._noted_next = now
        if surely != self._identity.confirmed:
            await self._note(self._identity, surely)

    async def _note(self, identity: Identity, at: Position) -> None:
        """One after the other, and each to its end though whoever waits for it be cancelled: a thread is not, and two of them would take the
        new file away from each other."""

        async def note() -> None:
            async with self._one_note:
                await asyncio.to_thread(identity.save, identity.cluster, at)

        await asyncio.shield(note())

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer: half a minute while opening, then as long as the lane lives."""
        if self._appender is None:
            return await patiently(ask, OPEN_PATIENCE_S)
        lane = self._appender
        return await patiently(ask, over=lambda: lane.error)
