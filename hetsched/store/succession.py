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
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from hetsched.errors import Deposed, StoreLost
from hetsched.store.backend import Head
from hetsched.store.base import Leader, Standby, Unreachable
from hetsched.store.ending import end

RENEWALS = 4  # in a lease: three may be lost
RETRY_S = 0.1


class Candidate(NamedTuple):
    """Who would lead. `holder`: of the data directory, the same at its next start. `name`, `url`: for people and clients."""

    holder: str
    name: str
    url: str
    lease_s: float


class Succession(Protocol):
    """Every call may raise Unreachable and may then be asked again."""

    async def claim(self, cluster: str, create: bool, candidate: Candidate) -> Head:
        """`Backend.open_epoch` and the first term of office in one step; raises Led."""

    async def renew(self, epoch: int, candidate: Candidate) -> bool:
        """Another lease; False where a higher epoch leads."""

    async def leader(self) -> Leader | None:
        """Whose term runs."""

    async def pass_on(self, epoch: int, candidate: Candidate, to: Standby | None) -> bool:
        """The term ends and `to` has a lease to open the next epoch (None: whoever comes first). False where a higher one leads already."""

    async def stand_by(self, candidate: Candidate, seq: int) -> None:
        """Be known as standby for a lease."""

    async def standbys(self) -> tuple[Standby, ...]: ...


class Tenure:
    """One epoch's term. `on_lost` is told once, if a renewal finds another epoch or a store that cannot be led any more."""

    def __init__(
        self,
        succession: Succession,
        candidate: Candidate,
        epoch: int,
        claimed_ns: int,
        on_lost: Callable[[StoreLost], None],
    ) -> None:
        """`claimed_ns`: when the claim was sent."""
        self._succession = succession
        self._candidate = candidate
        self._epoch = epoch
        self._on_lost = on_lost
        self._lease_ns = round(candidate.lease_s * 1e9)
        self._until_ns = claimed_ns + self._lease_ns
        self._task = asyncio.create_task(self._keep(), name="store-tenure")

    @property
    def held(self) -> bool:
        """Whether nobody else can have begun to lead, as far as clocks tell."""
        return now_ns() < self._until_ns

    async def pass_on(self, to: Standby | None) -> bool:
        """No more renewals; `to` may lead. From here on the term is over, whatever the answer."""
        await end(self._task)
        self._until_ns = 0
        return await self._succession.pass_on(self._epoch, self._candidate, to)

    async def close(self) -> None:
        await end(self._task)
        self._until_ns = 0

    async def _keep(self) -> None:
        pause_s = self._candidate.lease_s / RENEWALS
        while True:
            await asyncio.sleep(pause_s)
            sent_ns = now_ns()
            try:
                async with asyncio.timeout(self._candidate.lease_s):
                    renewed = await self._succession.renew(self._epoch, self._candidate)
            except (Unreachable, TimeoutError):
                pause_s = min(RETRY_S, self._candidate.lease_s / RENEWALS)
                continue
            except StoreLost as error:
                self._on_lost(error)
                return
            if not renewed:
                self._until_ns = 0
                self._on_lost(Deposed(f"another epoch leads; this daemon opened {self._epoch}"))
                return
            self._until_ns = sent_ns + self._lease_ns
            pause_s = self._candidate.lease_s / RENEWALS


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
