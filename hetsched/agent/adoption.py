"""What an earlier life of the agent left on disk, as rows of the table.

Each attempt that is not settled is one of: ended; of another boot (nothing of it can live); held; watched by a shim that may or may not
live; ordered and never begun; or spoilt, by a task that runs as the agent's own user. "Never begun" is certain because the lease has
a new generation: a shim that comes late finds itself outdated. To the daemon it is an attempt that this node lacks, and it says what
to do. Of a spoilt one nothing is believed but its name: whatever of it lives will be ended. So it is with a directory of which the
ledger does not know.
"""

from __future__ import annotations

import logging

import msgspec

from hetsched.agent.attempts import Attempt, Key, Outcome, Phase
from hetsched.agent.ledger import Ended, Forgotten, Ordered
from hetsched.agent.shim.life import Life
from hetsched.agent.spool import Entry, Spool, key_of

log = logging.getLogger("hetsched.agent")

REBOOTED = Outcome(False, None, "node_rebooted")
NOBODY = (0, 0)
"""A shim that certainly does not live."""


class Adopted(msgspec.Struct, frozen=True):
    """A row to take in. `shim`: (pid, start time) to watch; if that does not live any more, the attempt's end has to be found out."""

    row: Attempt
    shim: tuple[int, int] | None = None


def look(spool: Spool, boot_id: str) -> list[Adopted]:
    """All attempts that are not settled; forgets those of which nothing ever began, notes the ends that shims have written. Blocks."""
    known = [entry for entry in spool.entries() if not entry.settled_at]
    found = [_adopt(entry, spool, boot_id) for entry in known]
    unknown = [key for path in spool.directories() if (key := key_of(path.name)) and spool.get(key) is None]
    return [one for one in [*found, *(_adopt_unknown(key, spool) for key in unknown)] if one is not None]


def _adopt(entry: Entry, spool: Spool, boot_id: str) -> Adopted | None:
    """None: nothing began and nothing ever will."""
    key, ordered = entry.key, entry.ordered
    if entry.outcome is not None:
        return Adopted(Attempt(key, Phase.ended, outcome=entry.outcome))
    assert ordered is not None, f"{key} is in the ledger, and neither ordered nor ended"
    if ordered.boot_id != boot_id:
        life = _life(key, spool)
        return _ended(key, life, spool, REBOOTED)
    if ordered.argv is None:
        return Adopted(Attempt(key, Phase.running, held=True, held_until_ns=ordered.held_until_ns))
    return _adopt_begun(key, ordered, spool)


def _adopt_begun(key: Key, ordered: Ordered | None, spool: Spool) -> Adopted | None:
    try:
        life = spool.life(key)
    except (OSError, ValueError) as error:
        log.error("%s cannot be believed (%r); whatever of it lives is ended", spool.path(key), error)
        return Adopted(Attempt(key, Phase.running), NOBODY)
    if life is None:
        spool.note(Forgotten(*key))
        return None
    if life.end is not None:
        return _ended(key, life, spool, REBOOTED)
    row = Attempt(key, Phase.running, started_at=life.started_at, pid=life.task_pid)
    if ordered is not None:
        row.holds = ordered.holds
    return Adopted(row, life.shim)


def _adopt_unknown(key: Key, spool: Spool) -> Adopted | None:
    log.error("%s: the ledger does not know of it", spool.path(key))
    return _adopt_begun(key, None, spool)


def _ended(key: Key, life: Life | None, spool: Spool, otherwise: Outcome) -> Adopted:
    """With its end noted: what its shim wrote, else `otherwise`."""
    end, started_at = (life.end, life.started_at) if life is not None else (None, 0.0)
    outcome = otherwise if end is None else Outcome(end.succeeded, end.exit_code, end.reason)
    spool.note(Ended(*key, outcome.succeeded, outcome.exit_code, outcome.reason, end is not None and end.silent))
    return Adopted(Attempt(key, Phase.ended, started_at=started_at, outcome=outcome))


def _life(key: Key, spool: Spool) -> Life | None:
    try:
        return spool.life(key)
    except (OSError, ValueError):
        return None
