"""What goes between cells: digests that anybody reads, and an inbox for each, a stream. Over the same servers as the journals.

Every cell's keys lie in its own slot, so each is reached by a connection of its own, and a cell whose server is gone holds up nobody else.
Nothing here is a promise by itself: what is lost is sent again, what comes twice is recognised, by what stands in the journals
(`scheduler/cells`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hetsched.store import scripts
from hetsched.store.redis import RedisBackend
from hetsched.store.scripts import Keys

MOST_WAITING = 10_000
"""Letters in an inbox that nobody reads; older ones go, and are sent again when somebody does."""

AT_ONCE = 64
FORGOTTEN_S = 7 * 86_400
"""A cell that has told nothing for so long is none any more."""


class Entry(NamedTuple):
    """One letter as it lies in an inbox."""

    at: str
    sender: str
    data: bytes


class Post:
    """Of cell `own`. `backend_of(cell)`: who reaches that cell's keys. Everything raises Unreachable and may be asked again."""

    def __init__(self, own: str, backend_of: Callable[[str], RedisBackend]) -> None:
        self.own = own
        self._backend_of = backend_of
        self._backends: dict[str, RedisBackend] = {}
        self._names: set[str] = set()

    async def publish(self, digest: bytes) -> None:
        """What we tell of ourselves from now on."""
        await self._at(self.own).do("SET", Keys(self.own).digest, digest, "EX", FORGOTTEN_S)

    async def introduce(self) -> None:
        """Be known, and learn who else is there."""
        registry = self._at("cells")
        await registry.do("HSET", scripts.NAMES, self.own, "")
        self._names |= {name.decode() for name in await registry.do("HKEYS", scripts.NAMES)}

    async def digest(self, cell: str) -> bytes | None:
        """As it was last published; None: nothing is known of it any more."""
        found: bytes | None = await self._at(cell).do("GET", Keys(cell).digest)
        return found

    @property
    def others(self) -> list[str]:
        """Cells that we have heard of."""
        return sorted(self._names - {self.own})

    async def send(self, cell: str, sender: str, data: bytes) -> None:
        """Into its inbox, at least once."""
        fields = ("from", sender, "letter", data)
        await self._at(cell).do("XADD", Keys(cell).inbox, "MAXLEN", "~", MOST_WAITING, "*", *fields)

    async def receive(self, after: str, wait_s: float) -> list[Entry]:
        """What came into ours after that place, in order; waits so long for the first."""
        block_ms = max(1, round(wait_s * 1000))
        found = await self._at(self.own).do(
            "XREAD", "COUNT", AT_ONCE, "BLOCK", block_ms, "STREAMS", Keys(self.own).inbox, after
        )
        if not found:
            return []
        streams = found.values() if isinstance(found, dict) else [entries for _, entries in found]
        return [_entry(at, fields) for entries in streams for at, fields in entries]

    async def forget(self, upto: str) -> None:
        """All up to there has been dealt with, for good."""
        milliseconds, _, number = upto.partition("-")
        after = f"{milliseconds}-{int(number) + 1}"
        await self._at(self.own).do("XTRIM", Keys(self.own).inbox, "MINID", after)

    async def close(self) -> None:
        for backend in self._backends.values():
            await backend.close()

    def _at(self, cell: str) -> RedisBackend:
        if cell not in self._backends:
            self._backends[cell] = self._backend_of(cell)
        return self._backends[cell]


def _entry(at: bytes, fields: object) -> Entry:
    """One without our fields is of nobody we know, and is passed over by who reads it."""
    known = fields if isinstance(fields, dict) else {}
    return Entry(at.decode(), known.get(b"from", b"").decode(errors="replace"), known.get(b"letter", b""))
