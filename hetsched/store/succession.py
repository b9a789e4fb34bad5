"""Who leads: the inner seam beside `backend.Backend`, for stores that several daemons share, and the leader's term of office.

The leader's record lies in the store with a time to live (`store.lease`) and is renewed four times in that. A daemon may open an epoch
when there is no record, or when it names this daemon: as its predecessor (the data directory is locked, so that one is dead), or because the
leader has passed it on. Looking and opening are one step of the server.

Promises: this is liveness only. A server's clock may jump and end a record early, or a renewal be late; what makes two leaders harmless
is the epoch, which every append is compared with. `Tenure.held` is the leader's own side: it counts from the *sending* of the last renewal
that was answered, on a clock that runs while the machine sleeps, so a leader that was frozen knows before anybody tells it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from hetsched.errors import Deposed, StoreLost
from hetsched.store.backend import Head
from hetsched.store.base import Leader, Standby, Unreachable
from hetsched.store.ending import end

log = logging.getLogger("hetsched.store")

RENEWALS = 4  # in a lease: three may be lost
RETRY_S = 0.1
HUNG_S = 20.0


class Candidate(NamedTuple):
    """Who would lead. `holder`: of the data directory, the same at its next start. `name`, `url`: for people and clients."""

    holder: str
    name: str
    url: str
    lease_s: float


class Succession(Protocol):
    """Every call may raise Unreachable and may then be asked again."""

    async def claim(self, cluster: str, create: bool, candidate: Candidate, dead: Leader | None = None) -> Head:
        """`Backend.open_epoch` and the first term of office in one step; raises Led. `dead`: whose record counts for nothing as long as it is
        this very one."""

    async def renew(self, epoch: int, candidate: Candidate) -> bool:
        """Another lease; False where a higher epoch leads."""

    async def leader(self) -> Leader | None:
        """Whose term runs."""

    async def pass_on(self, epoch: int, candidate: Candidate, to: Standby | None) -> bool:
        """The term ends and `to` has a lease to open the next epoch (None: whoever comes first). False where a higher one leads already."""

    async def stand_by(self, candidate: Candidate, seq: int) -> None:
        """Be known as standby for a lease."""

    async def standbys(self) -> tuple[Standby, ...]: ...


class Vigil:
    """Whether the leader still renews its lease, by the watcher's own clock.

    *Why (2026-11-30).* A record's time to live is the server's to count, and its clock may be set back by a day: a leader that dies then leads
    for a day. Whoever watches knows better: nothing was renewed for longer than a lease. Time in which nobody could look (a server that stands
    still keeps the leader from renewing, too) counts as no more than the pause between two renewals."""

    def __init__(self, lease_s: float) -> None:
        self._pause_s = lease_s / RENEWALS
        self._patience_s = lease_s + self._pause_s
        self._seen: Leader | None = None
        self._looked_s = self._unchanged_s = 0.0

    def is_dead(self, leader: Leader, now_s: float) -> bool:
        """What was read just now. `now_s`: of a clock that is never set."""
        if leader != self._seen or leader.renewals is None:
            self._seen, self._unchanged_s = leader, 0.0
        else:
            self._unchanged_s += min(now_s - self._looked_s, self._pause_s)
        self._looked_s = now_s
        return self._unchanged_s > self._patience_s


class Renewer(Protocol):
    """A connection to the store of a tenure's own."""

    @property
    def succession(self) -> Succession: ...

    async def close(self) -> None: ...


class Tenure:
    """One epoch's term. `on_lost` is told once, if a renewal finds another epoch or a store that cannot be led any more.

    *Why a thread renews (2026-11-30).* A turn over an array of 100,000 tasks may hold the daemon's loop for longer than a lease where the
    machine is busy: two daemons then took the place from each other for ever, each in the midst of the same turn. The thread stops renewing
    for a loop that has not turned for `HUNG_S`: that one leads nothing."""

    def __init__(
        self,
        renewer: Callable[[], Renewer],
        candidate: Candidate,
        epoch: int,
        claimed_ns: int,
        on_lost: Callable[[StoreLost], None],
    ) -> None:
        """`claimed_ns`: when the claim was sent. `renewer` is called in the thread."""
        self._renewer = renewer
        self._candidate = candidate
        self._epoch = epoch
        self._on_lost = on_lost
        self._lease_ns = round(candidate.lease_s * 1e9)
        self._until_ns = claimed_ns + self._lease_ns
        self._turned_ns = now_ns()
        self._ended = asyncio.Event()  # of the thread's loop
        self._loop = asyncio.get_running_loop()
        self._own_loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="store-tenure", daemon=True)
        self._thread.start()
        self._turning = asyncio.create_task(self._turn(), name="store-tenure")

    @property
    def held(self) -> bool:
        """Whether nobody else can have begun to lead, as far as clocks tell."""
        return now_ns() < self._until_ns

    async def end(self) -> None:
        """No more renewals: when this returns none is under way. The term is over."""
        with contextlib.suppress(RuntimeError):  # it is over already
            self._own_loop.call_soon_threadsafe(self._ended.set)
        await end(self._turning)
        await asyncio.to_thread(self._thread.join)
        self._until_ns = 0

    async def _turn(self) -> None:
        while True:
            self._turned_ns = now_ns()
            await asyncio.sleep(
                min(self._candidate.lease_s / RENEWALS, HUNG_S / 4)
            )  # often enough that a long lease never looks hung

    # ------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            self._own_loop.run_until_complete(self._keep())
        except StoreLost as error:
            self._lose(error)
        except Exception as error:
            log.exception("journal: the lease is renewed no more")
            self._lose(StoreLost(f"the lease cannot be renewed: {error!r}"))
        finally:
            self._own_loop.close()

    def _lose(self, error: StoreLost) -> None:
        with contextlib.suppress(RuntimeError):  # the daemon's loop is gone
            self._loop.call_soon_threadsafe(self._on_lost, error)

    async def _keep(self) -> None:
        renewer = self._renewer()
        pause_s = every_s = self._candidate.lease_s / RENEWALS
        try:
            while not await self._ends_within(pause_s):
                if now_ns() - self._turned_ns > HUNG_S * 1e9:
                    continue
                pause_s = every_s if await self._renew(renewer.succession) else min(RETRY_S, every_s)
        finally:
            await renewer.close()

    async def _renew(self, succession: Succession) -> bool:
        """False: nobody answers. Raises StoreLost."""
        sent_ns = now_ns()
        try:
            async with asyncio.timeout(self._candidate.lease_s):
                renewed = await succession.renew(self._epoch, self._candidate)
        except (Unreachable, TimeoutError):
            return False
        if not renewed:
            self._until_ns = 0
            raise Deposed(f"another epoch leads; this daemon opened {self._epoch}")
        self._until_ns = sent_ns + self._lease_ns
        return True

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self._ended.is_set()


def now_ns() -> int:
    """Nanoseconds since boot, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Card(msgspec.Struct, frozen=True):
    """What a leader or standby writes of itself."""

    name: str
    url: str
    seq: int = 0


encode_card = msgspec.json.Encoder().encode
decode_card = msgspec.json.Decoder(Card).decode
