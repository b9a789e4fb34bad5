"""The story of each task's attempts: where, when, how it ended and why. Bounded: it goes when the task is forgotten.

Fed by the packed facts, live and at replay alike, so that the story survives a restart.
"""

from __future__ import annotations

import msgspec

from hetsched.scheduler.reasons import Reason


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
    """Pairs of (task slot, value), ordered by slot: the same bytes for the same state."""

    live: list[tuple[int, Attempt]]
    past: list[tuple[int, list[Attempt]]]
    stopping: list[tuple[int, int]]
    claims: list[tuple[int, Claimed]]


class Attempts:
    """By task slot. `live` is the attempt that has devices now."""

    def __init__(self) -> None:
        self.live: dict[int, Attempt] = {}
        self.past: dict[int, list[Attempt]] = {}
        self.stopping: dict[int, Reason] = {}
        self.claims: dict[int, Claimed] = {}
        self._note: dict[int, tuple[str, int | None]] = {}

    def placed(self, task: int, attempt: Attempt) -> None:
        self.live[task] = attempt

    def started(self, task: int, now_ns: int) -> None:
        self.live[task] = msgspec.structs.replace(self.live[task], started_ns=now_ns)

    def note(self, task: int, text: str, exit_code: int | None) -> None:
        """The agent's words on the end that the next fact of the task will state."""
        self._note[task] = (text, exit_code)

    def over(self, task: int, outcome: str, reason: Reason, now_ns: int, exit_code: int | None = None) -> None:
        """The live attempt's end, if there is one. `exit_code`: known from the outcome; else what the agent noted."""
        self.stopping.pop(task, None)
        text, noted = self._note.pop(task, ("", None))
        attempt = self.live.pop(task, None)
        if attempt is None:
            return
        ended = msgspec.structs.replace(
            attempt,
            ended_ns=now_ns,
            outcome=outcome,
            exit_code=noted if exit_code is None else exit_code,
            reason=text or ("" if reason is Reason.NONE else reason.word),
        )
        self.past.setdefault(task, []).append(ended)

    def all(self, task: int) -> list[Attempt]:
        """Oldest first, the live one last."""
        live = self.live.get(task)
        return self.past.get(task, []) + ([live] if live is not None else [])

    def forget(self, task: int) -> None:
        self.past.pop(task, None)
        self.claims.pop(task, None)

    # -- snapshot

    def save(self) -> SavedAttempts:
        return SavedAttempts(
            live=sorted(self.live.items(), key=_slot),
            past=sorted(self.past.items(), key=_slot),
            stopping=sorted((task, int(reason)) for task, reason in self.stopping.items()),
            claims=sorted(self.claims.items(), key=_slot),
        )

    def present(self) -> SavedAttempts:
        """What a copy needs to go on from here: no past, and in no order."""
        stopping = [(task, int(reason)) for task, reason in self.stopping.items()]
        return SavedAttempts(live=list(self.live.items()), past=[], stopping=stopping, claims=list(self.claims.items()))

    def load(self, saved: SavedAttempts) -> None:
        self.live, self.past, self.claims = dict(saved.live), dict(saved.past), dict(saved.claims)
        self.stopping = {task: Reason(reason) for task, reason in saved.stopping}
