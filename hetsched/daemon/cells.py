"""What a daemon does for its cell beside the journal: tell the others of it, know them, and carry letters.

Promises: letters leave after the turn that wrote them is durable, in order for each cell; our inbox is trimmed only behind what is durably
dealt with; a cell that cannot be reached holds up nobody else. Everything may be cut off at any point: the next leader begins with what
stands in the journal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable
from typing import Any, NamedTuple

import msgspec

from hetsched.config import Config
from hetsched.daemon.daemon import Daemon
from hetsched.errors import HetschedError, StoreLost
from hetsched.scheduler.cells import digest as digests
from hetsched.scheduler.cells import letters
from hetsched.scheduler.cells.digest import Digest
from hetsched.scheduler.cells.letters import Delivered, Letter, Verdict
from hetsched.scheduler.messages import DigestsHeard, LettersHeard, Remind
from hetsched.store import Entry, Post
from hetsched.store.base import Unreachable
from hetsched.store.ending import end
from hetsched.store.patience import Backoff

log = logging.getLogger("hetsched.cells")

RECEIVE_S = 1.0
ANSWER_S = 1.0
"""So long one cell's server may take over a question."""

MOST_QUEUED = 1_000
"""Letters for one cell that wait for its server; more are written again later."""


class Known(NamedTuple):
    """`heard_s`: when its digest last said something new, on our monotonic clock."""

    digest: Digest
    heard_s: float


class Office:
    """One a process. `known`: the other cells, by name."""

    def __init__(self, config: Config, post: Post) -> None:
        self.own = config.store.cell
        self.known: dict[str, Known] = {}
        self._config = config.cells
        self._post = post
        self._daemon: Daemon | None = None
        self._sequence = 0
        self._outboxes: dict[str, asyncio.Queue[Letter]] = {}
        self._couriers: list[asyncio.Task[None]] = []
        self._looking: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ reading

    def is_silent(self, cell: str) -> bool:
        """Whether nothing new was heard of it for `cells.digest_keep`."""
        return time.monotonic() - self.known[cell].heard_s >= self._config.digest_keep

    def url_of(self, cell: str) -> str:
        """Where its leader answers, as last told; "" = not known."""
        return self.known[cell].digest.url if cell in self.known else ""

    def told(self) -> list[dict[str, Any]]:
        """For `GET /v1/cells`: ours as it is now where we lead, the others as last heard."""
        now_s = time.monotonic()
        found = [_row(known.digest, now_s - known.heard_s, self.is_silent(cell)) for cell, known in self.known.items()]
        if self._daemon is not None:
            found.append(_row(self._digest(self._daemon), 0.0, False))
        return sorted(found, key=lambda row: str(row["name"]))

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin to look around."""
        self._looking = asyncio.create_task(self._look_always(), name="cells")

    async def close(self) -> None:
        await self.rest()
        if self._looking is not None:
            await end(self._looking)
        await self._post.close()

    async def lead(self, daemon: Daemon) -> None:
        """Before anybody is served: tell the others who leads, and hear of them, so that nobody is kept who could only be served there.
        Then carry letters."""
        self._daemon = daemon
        try:
            await self._look()
        except (Unreachable, StoreLost) as error:
            log.warning("leading cell %s without having heard of all others: %s", self.own, error)
        self._declare_gauges(daemon)
        daemon.carry = self._carry
        daemon.turns.tell(self._heard())
        daemon.turns.tell(Remind(after_ns=0))
        self._couriers = [asyncio.create_task(self._receive_always(daemon), name="inbox")]

    def _declare_gauges(self, daemon: Daemon) -> None:
        gauge, known, by_cell = daemon.metrics.gauge, self.known, ("cell",)
        gauge(
            "hetsched_cell_backlog",
            "Tasks that wait there",
            by_cell,
            lambda: (((row["name"],), row["backlog"]) for row in self.told()),
        )
        gauge(
            "hetsched_cell_digest_age_seconds",
            "Since something new was heard of it",
            by_cell,
            lambda: (((cell,), time.monotonic() - found.heard_s) for cell, found in known.items()),
        )
        gauge(
            "hetsched_cell_tasks_on_their_way",
            "Tasks sent to other cells that have not answered",
            (),
            lambda: [((), daemon.scheduler.books.crossings.tasks_open)],
        )

    async def rest(self) -> None:
        """We lead no more."""
        self._daemon = None
        couriers, self._couriers = self._couriers, []
        self._outboxes.clear()
        await end(*couriers)

    # ------------------------------------------------------------------ looking around

    async def _look_always(self) -> None:
        reminded_s = time.monotonic()
        while True:
            await asyncio.sleep(self._config.digest_every)
            try:
                await self._look()
            except (Unreachable, StoreLost) as error:
                log.debug("cells: %s", error)
            except Exception:
                log.exception("cells: looking around failed; it goes on")
            if self._daemon is None:
                continue
            try:
                self._daemon.turns.tell(self._heard())
                if time.monotonic() - reminded_s >= self._config.remind_after:
                    reminded_s = time.monotonic()
                    self._daemon.turns.tell(Remind(after_ns=round(self._config.remind_after * 1e9)))
            except HetschedError:  # it is stopping
                continue

    async def _look(self) -> None:
        """Tell of ourselves, then read what all others tell; one that does not answer stays as it was, and nobody waits for it."""
        steps = [self._publish(), self._post.introduce(), *(self._read(cell) for cell in self._post.others)]
        before = set(self._post.others)
        said = await asyncio.gather(*map(_briefly, steps))
        said += await asyncio.gather(*(_briefly(self._read(cell)) for cell in self._post.others if cell not in before))
        for error in said:
            if error is not None:
                raise error

    async def _publish(self) -> None:
        if self._daemon is not None:
            self._sequence += 1
            await self._post.publish(digests.encode(self._digest(self._daemon)))

    async def _read(self, cell: str) -> None:
        found = await self._post.digest(cell)
        if found is None:
            self.known.pop(cell, None)
            return
        try:
            digest = digests.decode(found)
        except msgspec.MsgspecError as error:
            log.warning("the digest of cell %s cannot be read: %s", cell, error)
            return
        before = self.known.get(cell)
        if before is None:  # it may be of yesterday, and counts as old until it says something else
            self.known[cell] = Known(digest, time.monotonic() - self._config.digest_keep)
        elif _moment(before.digest) != _moment(digest):
            self.known[cell] = Known(digest, time.monotonic())

    def _heard(self) -> DigestsHeard:
        silent = frozenset(cell for cell in self.known if self.is_silent(cell))
        return DigestsHeard(digests=tuple(known.digest for known in self.known.values()), silent=silent)

    def _digest(self, daemon: Daemon) -> Digest:
        return digests.digest_of(daemon.view, daemon.url, self._sequence)

    # ------------------------------------------------------------------ letters

    def _carry(self, found: Iterable[Letter]) -> None:
        """Of a turn that is durable."""
        for letter in found:
            outbox = self._outboxes.get(letter.to)
            if outbox is None:
                outbox = self._outboxes[letter.to] = asyncio.Queue(MOST_QUEUED)
                self._couriers.append(asyncio.create_task(self._send_always(letter.to, outbox), name="outbox"))
            if not outbox.full():
                outbox.put_nowait(letter)

    async def _send_always(self, cell: str, outbox: asyncio.Queue[Letter]) -> None:
        daemon, backoff = self._daemon, Backoff()
        assert daemon is not None
        while True:
            letter = await outbox.get()
            data = letters.encode(letter.body)
            while True:
                try:
                    await self._post.send(cell, self._sender(daemon), data)
                    backoff.reset()
                    break
                except (Unreachable, StoreLost) as error:
                    if backoff.worth_telling:
                        log.warning("cell %s: its inbox does not answer: %s", cell, error)
                    await backoff.pause()

    async def _receive_always(self, daemon: Daemon) -> None:
        at, backoff = daemon.scheduler.books.crossings.heard, Backoff()
        while True:
            try:
                entries = await self._post.receive(at, RECEIVE_S)
                if entries:
                    delivered = tuple(self._delivered(entry, daemon) for entry in entries)
                    await daemon.ask(LettersHeard(letters=delivered))
                    at = entries[-1].at
                    await self._post.forget(at)
                backoff.reset()
            except (Unreachable, StoreLost) as error:
                if backoff.worth_telling:
                    log.warning("our inbox does not answer: %s", error)
                await backoff.pause()
            except HetschedError as error:  # we stop, or the journal is lost: the next leader reads on from there
                log.debug("letters are read no more: %s", error)
                return

    def _delivered(self, entry: Entry, daemon: Daemon) -> Delivered:
        body: letters.Body | None = None
        try:
            body = letters.decode(entry.data)
        except msgspec.MsgspecError as error:
            log.error("letter %s from %s cannot be read and is passed over: %s", entry.at, entry.sender[:80], error)
        if isinstance(body, Verdict) and body.sender != self._sender(daemon):
            body = None  # on a parcel of another life of this cell
        return Delivered(entry.at, entry.sender, body)

    def _sender(self, daemon: Daemon) -> str:
        return f"{self.own}/{daemon.cluster_id}"


async def _briefly(step: Awaitable[None]) -> Unreachable | StoreLost | None:
    """Do it, within `ANSWER_S`; what went wrong."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await step
    except TimeoutError:
        return Unreachable(f"no answer for {ANSWER_S:g} s")
    except (Unreachable, StoreLost) as error:
        return error
    return None


def _moment(digest: Digest) -> tuple[int, int]:
    return digest.epoch, digest.sequence


def _row(digest: Digest, age_s: float, silent: bool) -> dict[str, Any]:
    return {
        "name": digest.cell,
        "leader": digest.url,
        "epoch": digest.epoch,
        "silent": silent,
        "age": round(age_s, 3),
        "nodes": digest.nodes,
        "capacity": digest.capacity,
        "used": digest.used,
        "widest_gang": digest.gang,
        "backlog": digest.backlog,
        "running": digest.running,
        "on_their_way": digest.away_open,
    }
