"""Who leads, in a Redis or Valkey server: `succession.Succession` over the keys and scripts of `scripts.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hetsched.store import scripts
from hetsched.store.backend import Head
from hetsched.store.base import Leader, Led, Standby
from hetsched.store.head import opened
from hetsched.store.scripts import Keys
from hetsched.store.succession import Candidate, Card, decode_card, encode_card


class RedisSuccession:
    """`script`: EVAL of a text on keys, with arguments. `opening`: the same, as durable as a frame."""

    def __init__(
        self,
        script: Callable[..., Awaitable[Any]],
        opening: Callable[..., Awaitable[Any]],
        keys: Keys,
    ) -> None:
        self._script = script
        self._opening = opening
        self._keys = keys

    async def claim(self, cluster: str, create: bool, candidate: Candidate, dead: Leader | None = None) -> Head:
        was = (dead.holder, dead.renewals) if dead is not None and dead.renewals is not None else ("", "")
        answer = await self._opening(
            scripts.CLAIM,
            [self._keys.head, self._keys.journal, self._keys.leader],
            *(cluster, "1" if create else "", scripts.FORMAT, candidate.holder, _card(candidate), _lease_ms(candidate)),
            *was,
        )
        if answer[0] == b"LED":
            raise Led(_leader(*answer[1:]))
        return opened(self._keys, answer)

    async def renew(self, epoch: int, candidate: Candidate) -> bool:
        arguments = (epoch, candidate.holder, _card(candidate), _lease_ms(candidate))
        return bool(await self._script(scripts.RENEW, [self._keys.head, self._keys.leader], *arguments))

    async def leader(self) -> Leader | None:
        found = await self._script(scripts.WHO, [self._keys.leader])
        if not found:
            return None
        return _leader(*found)

    async def pass_on(self, epoch: int, candidate: Candidate, to: Standby | None) -> bool:
        card = encode_card(Card(to.name, to.url)) if to else b""
        arguments = (epoch, to.holder if to else "", card, _lease_ms(candidate))
        return bool(await self._script(scripts.PASS_ON, [self._keys.head, self._keys.leader], *arguments))

    async def stand_by(self, candidate: Candidate, seq: int) -> None:
        await self._script(
            scripts.STAND_BY, [self._keys.standbys], candidate.holder, _card(candidate, seq), _lease_ms(candidate)
        )

    async def standbys(self) -> tuple[Standby, ...]:
        found = await self._script(scripts.STANDBYS_NOW, [self._keys.standbys])
        cards = ((found[at].decode(), decode_card(found[at + 1])) for at in range(0, len(found), 2))
        return tuple(Standby(holder, card.name, card.url, card.seq) for holder, card in cards)


def _leader(holder: bytes, card: bytes, renewals: bytes | None = None) -> Leader:
    who = decode_card(card)
    return Leader(holder.decode(), who.name, who.url, None if renewals is None else int(renewals))


def _card(candidate: Candidate, seq: int = 0) -> bytes:
    return encode_card(Card(candidate.name, candidate.url, seq))


def _lease_ms(candidate: Candidate) -> int:
    return round(candidate.lease_s * 1000)
