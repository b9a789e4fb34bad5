"""One remedy, tried: its inputs go into a fresh copy as they would go into the daemon, and what happens then is the promise."""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched import _core
from hetsched.scheduler import messages
from hetsched.scheduler.gangs import awaited
from hetsched.scheduler.messages import SubmitReply
from hetsched.scheduler.rehearse.forecast import Runner
from hetsched.scheduler.rehearse.image import Image, Patience, open_copy
from hetsched.scheduler.rendering import placement_json
from hetsched.scheduler.scheduler import Scheduler

SHOWN = 16
"""Victims and members named in an answer; all are counted."""


class Effect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`starts`: now, after_victims, or later. `eta_seconds`: from now; of `after_victims` at most so long (the victims' grace).
    Of a gang: node and devices of one member, `nodes` of all that start."""

    starts: str
    node: str
    eta_seconds: float
    devices: list[dict[str, Any]] = []
    nodes: list[str] = []
    victims: list[str] = []
    price_device_seconds: float = 0.0


class Trial:
    """A copy after the inputs, each in a turn of its own as calls come one by one, and after the flush of their window.
    `slots`: whose start is watched, `needed` of them."""

    def __init__(
        self, image: Image, inputs: tuple[messages.Input, ...], slots: tuple[int, ...], needed: int, now_ns: int
    ) -> None:
        self.asked_ns = self.now_ns = now_ns
        self.needed = needed
        self.copy = open_copy(image, now_ns)
        replies = [reply.value for asked in inputs for reply in self.copy.step([asked], now_ns).replies]
        while (due_ns := self.copy.window.due_ns()) is not None:
            self.now_ns = max(now_ns, due_ns)
            self.copy.step([], self.now_ns)
        self.slots = _submitted(self.copy, replies[0]) if replies else slots

    def effect(self, is_over: Patience, *, later: bool) -> Effect | None:
        """What comes of it; None: it does not help. `later`: a start in the future is worth something, too."""
        placed = [slot for slot in self.slots if slot in self.copy.books.attempts.live]
        if self.slots and len(placed) >= self.needed:
            return self._now(placed)
        if self.slots and self.copy.core.task(self.slots[0]).flags & _core.CLAIMING:
            return self._claim(self.slots[0])
        return self._later(self.slots[0], is_over) if later and self.slots else None

    def _now(self, placed: list[int]) -> Effect:
        live = self.copy.books.attempts.live
        first = live[placed[0]]
        nodes = [live[slot].node for slot in placed[:SHOWN]] if len(placed) > 1 else []
        return Effect(
            starts="now",
            node=first.node,
            eta_seconds=0.0,
            devices=placement_json(first.node, first.devices)["devices"],
            nodes=nodes,
        )

    def _claim(self, slot: int) -> Effect | None:
        claim, wait_s = self.copy.books.attempts.claims[slot], grace_s(self.copy, slot)
        if self.copy.world.expires_within(slot, wait_s):
            return None
        return Effect(
            starts="after_victims",
            node=claim.node,
            eta_seconds=wait_s,
            devices=placement_json(claim.node, claim.devices)["devices"],
            victims=list(claim.victims[:SHOWN]),
            price_device_seconds=claim.price_device_seconds,
        )

    def _later(self, slot: int, is_over: Patience) -> Effect | None:
        start = Runner(self.copy, self.now_ns, late=False).run({slot}, is_over).starts.get(slot)
        if start is None:
            return None
        return Effect(starts="later", node=start.node, eta_seconds=(start.at_ns - self.asked_ns) / 1e9)


def _submitted(copy: Scheduler, reply: Any) -> tuple[int, ...]:
    """Slots of what was submitted; empty where any of it was refused."""
    if not isinstance(reply, SubmitReply) or reply.rejected:
        return ()
    return tuple(copy.core.find(ident.encode()) for ident in reply.ids if ident is not None)


def grace_s(scheduler: Scheduler, claimer: int) -> float:
    """So long the victims of a claim may take at most, from now."""
    now_ns, ends = scheduler.world.now_ns, [0.0]
    for victim in awaited(scheduler.core, claimer):
        begun_ns = scheduler.core.task(victim).changed_ns
        ends.append((begun_ns - now_ns) / 1e9 + scheduler.world.body(victim).grace)
    return max(ends)
