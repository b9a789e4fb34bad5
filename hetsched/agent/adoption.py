"""What an earlier life of the agent left on disk, as rows of the table.

Each attempt's directory is one of: settled (of no further interest here); ended (the shim wrote how); of another boot (nothing of it
can live); held; watched by a shim that may or may not live; recorded and never begun; or spoilt, by a task that runs as the agent's own
user. "Never begun" is made certain by taking the shim's place, then removed: to the daemon it is an attempt that this node lacks,
and it says what to do. Of a spoilt one nothing is believed but its name: whatever of it lives will be ended.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from hetsched.agent.attempts import Attempt, Outcome, Phase
from hetsched.agent.spool import Found, Spool, key_of
from hetsched.agent.use import holds_of

log = logging.getLogger("hetsched.agent")

REBOOTED = Outcome(False, None, "node_rebooted")
NOBODY = (0, 0)
"""A shim that certainly does not live."""


class Adopted(msgspec.Struct, frozen=True):
    """A row to take in. `shim`: (pid, start time) to watch; if that does not live any more, the attempt's end has to be found out."""

    row: Attempt
    shim: tuple[int, int] | None = None


def look(spool: Spool, boot_id: str) -> list[Adopted]:
    """Reads all directories of attempts that are not settled and clears away those in which nothing ever began. Blocks."""
    adopted = []
    for path in spool.directories():
        if not spool.is_settled(path):
            one = _look_into(path, spool, boot_id)
            if one is None:
                spool.remove(path)
            else:
                adopted.append(one)
    return adopted


def _look_into(path: Path, spool: Spool, boot_id: str) -> Adopted | None:
    """None: nothing began and nothing ever will."""
    try:
        found = spool.find(path)
        return None if found is None else _adopt(found, spool, boot_id)
    except (OSError, KeyError, TypeError, ValueError) as error:
        key = key_of(path.name)
        if key is None:
            raise
        log.error("%s cannot be believed (%r); whatever of it lives is ended", path, error)
        return Adopted(Attempt(key, Phase.running), NOBODY)


def _adopt(found: Found, spool: Spool, boot_id: str) -> Adopted | None:
    record = found.record
    if found.outcome is not None:
        return Adopted(Attempt(found.key, Phase.ended, started_at=found.started_at, outcome=found.outcome))
    if "argv" not in record:
        return None  # a tombstone whose inscription is missing; nobody has been told of it
    if record["boot_id"] != boot_id:
        spool.write_outcome(found.key, REBOOTED)
        return Adopted(Attempt(found.key, Phase.ended, started_at=found.started_at, outcome=REBOOTED))
    if record["argv"] is None:
        return Adopted(Attempt(found.key, Phase.running, held=True, held_until_ns=record["held_until_ns"]))
    if found.shim is None and spool.take_from_shims(found.key):
        return None
    if found.shim is None:  # a shim of the old nursery was faster
        found = spool.find(spool.path(found.key)) or found
    row = Attempt(
        found.key,
        Phase.running,
        started_at=found.started_at,
        pid=found.task_pid or 0,
        holds=holds_of(record["env"]),
    )
    return Adopted(row, found.shim or NOBODY)
