"""What an earlier life of the agent left on disk, as rows of the table.

Each attempt's directory is one of: ended (the shim wrote how); of another boot (nothing of it can live); held; watched by a shim
that may or may not live; or recorded and never begun. The last is made certain by taking the shim's place, then removed: to the
daemon it is an attempt that this node lacks, and it says what to do.
"""

from __future__ import annotations

import msgspec

from hetsched.agent.attempts import Attempt, Key, Outcome, Phase
from hetsched.agent.spool import Found, Spool

REBOOTED = Outcome(False, None, "node_rebooted")


class Adopted(msgspec.Struct, frozen=True):
    """A row to take in. `shim`: (pid, start time) to watch; if that does not live any more, the attempt's end has to be found out."""

    row: Attempt
    shim: tuple[int, int] | None = None


def look(spool: Spool, boot_id: str) -> list[Adopted]:
    """Reads all directories and clears away those in which nothing ever began. Blocks."""
    adopted = []
    for path in spool.directories():
        found = spool.find(path)
        one = None if found is None else _adopt(found, spool, boot_id)
        if one is None:
            spool.remove(path)
        else:
            adopted.append(one)
    return adopted


def _adopt(found: Found, spool: Spool, boot_id: str) -> Adopted | None:
    """None: nothing began and nothing ever will."""
    if found.outcome is not None:
        return Adopted(_ended(found, found.outcome))
    if "argv" not in found.record:
        return None  # a tombstone whose inscription is missing; nobody has been told of it
    if found.record["boot_id"] != boot_id:
        spool.write_outcome(found.key, REBOOTED)
        return Adopted(_ended(found, REBOOTED))
    if found.record["argv"] is None:
        return Adopted(_running(found, held_until_ns=found.record["held_until_ns"], held=True))
    if found.shim is not None:
        return Adopted(_running(found), found.shim)
    if spool.take_from_shims(found.key):
        return None
    again = spool.find(spool.path(found.key))  # a shim of the old nursery was faster
    assert again is not None and again.shim is not None, f"{found.key}: somebody has claimed it"
    return Adopted(_running(again), again.shim)


def _ended(found: Found, outcome: Outcome) -> Attempt:
    phase = Phase.settled if found.settled else Phase.ended
    return Attempt(found.key, phase, started_at=found.started_at, outcome=outcome)


def _running(found: Found, *, held: bool = False, held_until_ns: int | None = None) -> Attempt:
    return Attempt(
        Key(*found.key),
        Phase.running,
        held=held,
        held_until_ns=held_until_ns,
        started_at=found.started_at,
        pid=found.task_pid or 0,
    )
