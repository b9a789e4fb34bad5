"""The story of each task's attempts: where, when, how it ended and why. Bounded: it goes when the task is forgotten.

Of what lives and of what succeeded the core's tables know all but the words (`_core/story.pxi`), so nothing is done here for a task that runs
through. The rest is fed by the packed facts, live and at replay alike, so that the story survives a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from hetsched._core import SUCCEEDED, Placement
from hetsched.scheduler.lifecycle import LIVE_CODES, LIVE_MASK
from hetsched.scheduler.reasons import Reason

if TYPE_CHECKING:
    from hetsched.scheduler.books import Books


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try. Times in ns since 1970, 0 = not yet. `outcome`: "" while alive, else succeeded, failed, cancelled, preempted, lost …
    Frozen: copies of the books share it.

    `predicted_ms`: how long it would run, as was thought when it was placed; 0 = nobody knew, or nobody wants to know (no feedback).
    `node` and `devices` are names, kept because the node may be gone when somebody asks.
    """

    number: int
    node: str
    devices: tuple[tuple[str, int], ...]
    lane: str
    placed_ns: int
    started_ns: int = 0
    ended_ns: int = 0
    outcome: str = ""
    reason: str = ""
    exit_code: int | None = None
    predicted_ms: int = 0


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What a preemptor claimed, at what price and on what proof; kept until the task is forgotten."""

    node: str
    devices: tuple[tuple[str, int], ...]
    victims: tuple[str, ...]
    price_device_seconds: float
    at_ns: int
    proof: str


def _slot(pair: tuple[int, object]) -> int:
    return pair[0]


class SavedAttempts(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Pairs of (task slot, value), ordered by slot: the same bytes for the same state. `live`: those of which `predicted_ms` is known."""

    live: list[tuple[int, Attempt]]
    past: list[tuple[int, list[Attempt]]]
    stopping: list[tuple[int, int]]
    claims: list[tuple[int, Claimed]]


class Live(Mapping[int, Attempt]):
    """The attempts that have devices now, by task slot: made from the core's tables whenever somebody asks."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._core = attempts.core

    def __getitem__(self, task: int) -> Attempt:
        placement = self._core.placement(task)
        if placement is None:
            raise KeyError(task)
        return self._attempts.from_core(task, placement)

    def __contains__(self, task: object) -> bool:
        return isinstance(task, int) and self._core.placement(task) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self._core.page(0, len(self), LIVE_MASK))

    def __len__(self) -> int:
        counts = self._core.counts()
        return sum(counts[code] for code in LIVE_CODES)


class Attempts:
    """By task slot. `past`: those that are over, but for the one that succeeded, which the core remembers. `predicted_ms`: of live ones."""

    def __init__(self, books: Books) -> None:
        self.core = books.core
        self._books = books
        self.live = Live(self)
        self.past: dict[int, list[Attempt]] = {}
        self.stopping: dict[int, Reason] = {}
        self.claims: dict[int, Claimed] = {}
        self.predicted_ms: dict[int, int] = {}
        self._note: dict[int, tuple[str, int | None]] = {}

    def from_core(self, task: int, placement: Placement) -> Attempt:
        """In words what the core knows in numbers."""
        node, devices = self._books.cluster.faces[placement.node]
        return Attempt(
            number=placement.attempt,
            node=node,
            devices=tuple((devices[index], share) for index, share in placement.devices),
            lane=self._books.lane(self.core.task(task).qos),
            placed_ns=placement.placed_ns,
            started_ns=placement.started_ns,
            predicted_ms=self.predicted_ms.get(task, 0),
        )

    def last(self, task: int) -> Attempt | None:
        """The one that was over with the fact that is being recorded; of a task that succeeded at any time."""
        story = self.core.story(task)
        return None if story is None else self.from_core(task, story)

    def succeeded(self, task: int) -> Attempt | None:
        """The attempt with which the task succeeded, if it did and it is not in `past`."""
        row = self.core.task(task)
        attempt = self.last(task) if row.state == SUCCEEDED else None
        if attempt is None:
            return None
        exit_code = None if self._books.body(task).command is None else 0
        return msgspec.structs.replace(attempt, ended_ns=row.changed_ns, outcome="succeeded", exit_code=exit_code)

    def note(self, task: int, text: str, exit_code: int | None) -> None:
        """The agent's words on the end that the next fact of the task will state."""
        self._note[task] = (text, exit_code)

    def over(self, task: int, outcome: str, reason: Reason, now_ns: int) -> None:
        """The attempt's end, if there was one, in another way than by success."""
        text, exit_code = self._forget_live(task)
        attempt, past = self.last(task), self.past.get(task)
        if attempt is None or (past and past[-1].number == attempt.number):  # requeued and then expired in one turn
            return
        ended = msgspec.structs.replace(
            attempt,
            ended_ns=now_ns,
            outcome=outcome,
            exit_code=exit_code,
            reason=text or ("" if reason is Reason.NONE else reason.word),
        )
        self.past.setdefault(task, []).append(ended)

    def done(self, task: int) -> None:
        """It succeeded: the core keeps the story."""
        self._forget_live(task)

    def _forget_live(self, task: int) -> tuple[str, int | None]:
        self.stopping.pop(task, None)
        self.predicted_ms.pop(task, None)
        return self._note.pop(task, ("", None))

    def write_down(self, node: int) -> None:
        """The node's slot will mean something else: put in words what succeeded there."""
        for task in self.core.stories_on(node):
            attempt = self.succeeded(task)
            assert attempt is not None
            self.past.setdefault(task, []).append(attempt)
            self.core.drop_story(task)

    def ended(self, task: int) -> list[Attempt]:
        """Those that are over, oldest first."""
        last = self.succeeded(task)
        return self.past.get(task, []) + ([] if last is None else [last])

    def all(self, task: int) -> list[Attempt]:
        """Oldest first, the live one last."""
        live = self.live.get(task)
        return self.ended(task) + ([live] if live is not None else [])

    def forget(self, task: int) -> None:
        self.past.pop(task, None)
        self.claims.pop(task, None)

    # -- snapshot

    def save(self) -> SavedAttempts:
        return SavedAttempts(
            live=self._predicted(),
            past=sorted(self.past.items(), key=_slot),
            stopping=sorted((task, int(reason)) for task, reason in self.stopping.items()),
            claims=sorted(self.claims.items(), key=_slot),
        )

    def present(self) -> SavedAttempts:
        """What a copy needs to go on from here: no past, and in no order."""
        stopping = [(task, int(reason)) for task, reason in self.stopping.items()]
        return SavedAttempts(live=self._predicted(), past=[], stopping=stopping, claims=list(self.claims.items()))

    def _predicted(self) -> list[tuple[int, Attempt]]:
        return [(task, self.live[task]) for task in sorted(self.predicted_ms)]

    def load(self, saved: SavedAttempts) -> None:
        self.past, self.claims = dict(saved.past), dict(saved.claims)
        self.predicted_ms = {task: attempt.predicted_ms for task, attempt in saved.live if attempt.predicted_ms}
        self.stopping = {task: Reason(reason) for task, reason in saved.stopping}
