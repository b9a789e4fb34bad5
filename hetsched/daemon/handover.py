"""A planned change of leader: an operator asks, the standby is chosen here, `main.py` does it between two lives of this process.

Promise: what was taken before is answered before; what comes meanwhile is refused with a 503 that may be tried again at once and names the
successor, so a client that retries loses nothing.
"""

from __future__ import annotations

import asyncio

from hetsched.errors import Conflict, NotFound, Unavailable
from hetsched.store import Standby, Store


class Handover:
    """`asked` resolves with the chosen standby."""

    def __init__(self, store: Store) -> None:
        self._store = store
        loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[Standby] = loop.create_future()
        self._done: asyncio.Future[None] = loop.create_future()

    async def to(self, name: str | None) -> Standby:
        """Ask, and wait until the standby may lead. `name`: of it, or its URL; None = the one that is furthest.

        Raises Conflict (nobody to hand over to, or it is under way), NotFound, Unavailable (given up)."""
        successor = self._choose(name)
        if self.asked.done():
            raise Conflict("a hand-over is under way")
        self.asked.set_result(successor)
        await asyncio.shield(self._done)
        return successor

    def done(self, error: Unavailable | None = None) -> None:
        """Tell whoever asked."""
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
            self._done.exception()  # seen: nobody may be waiting

    def _choose(self, name: str | None) -> Standby:
        standbys = self._store.standbys()
        if not standbys:
            raise Conflict("no standby follows this store; start another hetsched serve with the same --store")
        if name is None:
            return max(standbys, key=lambda standby: standby.seq)
        found = [standby for standby in standbys if name in (standby.name, standby.url)]
        if len(found) != 1:
            known = ", ".join(f"{standby.name} ({standby.url})" for standby in standbys)
            raise NotFound(f"{'no' if not found else 'more than one'} standby is {name!r}; there are {known}")
        return found[0]
