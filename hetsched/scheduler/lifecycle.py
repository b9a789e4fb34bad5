"""The life of a task as a table: which fact may move it from which state to which, and the picture in the README is drawn from it.

The core enforces the numbers; this table is what people read, what the view translates with and what the tests compare the core against.
"""

from __future__ import annotations

from hetsched import _core
from hetsched.model import State

STATE_OF_CODE: dict[int, State] = {
    _core.QUEUED: State.queued,
    _core.HELD: State.held,
    _core.BACKOFF: State.backoff,
    _core.PLACED: State.placed,
    _core.RUNNING: State.running,
    _core.STOPPING: State.stopping,
    _core.SUCCEEDED: State.succeeded,
    _core.FAILED: State.failed,
    _core.CANCELLED: State.cancelled,
    _core.EXPIRED: State.expired,
    _core.SKIPPED: State.skipped,
}
CODE_OF_STATE = {state: code for code, state in STATE_OF_CODE.items()}
EVENT_OF_END = {code: str(state) for code, state in STATE_OF_CODE.items() if code >= _core.SUCCEEDED}

WAITING_CODES = (_core.QUEUED, _core.HELD, _core.BACKOFF)
LIVE_CODES = (_core.PLACED, _core.RUNNING, _core.STOPPING)

#: fact → {state before: state after}. `ended` goes to any of the five ends, whichever the fact names.
MOVES: dict[str, dict[State, tuple[State, ...]]] = {
    "placed": {State.queued: (State.placed,)},
    "started": {State.placed: (State.running,)},
    "stopping": {State.placed: (State.stopping,), State.running: (State.stopping,)},
    "requeued": dict.fromkeys((State.placed, State.running, State.stopping), (State.queued, State.held)),
    "backed_off": dict.fromkeys((State.placed, State.running, State.stopping), (State.backoff,)),
    "ready": {State.backoff: (State.queued,), State.held: (State.queued,)},
    "held": dict.fromkeys((State.queued, State.backoff, State.held), (State.held,)),
    "ended": {
        State.queued: (State.cancelled, State.expired, State.skipped, State.failed),
        State.held: (State.cancelled, State.expired, State.skipped, State.failed),
        State.backoff: (State.cancelled, State.expired, State.failed),
        State.placed: (State.failed, State.cancelled),
        State.running: (State.succeeded, State.failed, State.cancelled),
        State.stopping: (State.succeeded, State.failed, State.cancelled),
    },
}


def is_terminal(code: int) -> bool:
    """Whether a state code of the core is one of the five ends."""
    return code >= _core.SUCCEEDED


def states_mask(codes: tuple[int, ...]) -> int:
    """Bit mask of state codes, as `Core.page` takes it."""
    mask = 0
    for code in codes:
        mask |= 1 << code
    return mask


TERMINAL_MASK = states_mask(tuple(EVENT_OF_END))
WAITING_MASK = states_mask(WAITING_CODES)
LIVE_MASK = states_mask(LIVE_CODES)
EVERY_MASK = TERMINAL_MASK | WAITING_MASK | LIVE_MASK
