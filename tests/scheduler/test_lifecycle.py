"""The table of moves against the core: what the table allows happens in some world, and nothing else ever does."""

from __future__ import annotations

from hetsched import _core
from hetsched.model import TERMINAL, State
from hetsched.scheduler.lifecycle import MOVES, STATE_OF_CODE
from hetsched.scheduler.telling import NAME
from tests.scheduler.test_replay import eventful

FACT_NAMES = {fact: name for fact, name in NAME.items() if name in MOVES}


def moves_seen(seed: int) -> set[tuple[str, State | None, State]]:
    """(fact, state before, state after) of every packed fact of an eventful world, found by replaying it record by record."""
    story = eventful(seed, 60)
    seen = set()
    again = type(story.scheduler).restore(story.config, None)
    states: dict[int, State] = {}
    for frame in story.frames:
        for begin, end, fact in _core.split_facts(frame):
            again.apply(frame[begin:end])
            task = fact[1]
            assert isinstance(task, int)
            if fact[0] in FACT_NAMES:
                after = STATE_OF_CODE[again.core.task(task).state]
                seen.add((FACT_NAMES[fact[0]], states.get(task), after))  # type: ignore[index]
                states[task] = after
            if fact[0] == _core.F_FORGOTTEN:
                states.pop(task, None)
    return seen


def test_no_world_leaves_the_table_and_together_they_walk_most_of_it() -> None:
    seen = set().union(*(moves_seen(seed) for seed in range(8)))
    for fact, before, after in seen:
        if before is not None:
            assert after in MOVES[fact][before], f"{fact}: {before} → {after} is not in the table"
    walked = {(fact, str(before)) for fact, before, _ in seen if before is not None}
    assert walked >= {
        ("placed", "queued"),
        ("started", "placed"),
        ("stopping", "running"),
        ("requeued", "stopping"),
        ("backed_off", "running"),
        ("ready", "backoff"),
        ("ended", "running"),
        ("ended", "stopping"),
    }


def test_nothing_leaves_a_terminal_state() -> None:
    assert all(before not in TERMINAL for table in MOVES.values() for before in table)
