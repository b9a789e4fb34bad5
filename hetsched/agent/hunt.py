"""After a shim was killed: proving that nothing of its task lives, and ending what does.

Its main process died with it (PDEATHSIG), but what that had forked belongs to nobody now. Three marks find it: the cgroup, where
there is one; the attempt's directory in the environment; the session of the main process, among processes of the same user.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import msgspec

from hetsched.agent.attempts import Key, Outcome
from hetsched.agent.delegation import group_name, members
from hetsched.agent.records import DIRECTORY_VARIABLE
from hetsched.agent.shim import processes
from hetsched.agent.shim.life import Life
from hetsched.agent.spool import Spool

log = logging.getLogger("hetsched.agent")

LOST_SHIM = Outcome(False, None, "lost_shim")
_LOOK_S = 0.05
_LONGEST_LOOK_S = 5.0


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """By what an attempt's processes are known. `session` 0, `cgroup` "": not by that; `uid` None: of our own user."""

    key: Key
    directory: Path
    session: int = 0
    uid: int | None = None
    cgroup: str = ""


async def outcome_without_shim(key: Key, spool: Spool) -> Outcome:
    """How the attempt ended, once nothing of it lives. Its directory may be spoilt; its name is enough."""
    try:
        life = await asyncio.to_thread(spool.life, key)
    except (OSError, ValueError) as error:
        log.error("%s attempt %d: its directory cannot be read: %r", *key, error)
        life = None
    if life is not None and life.end is not None:
        return Outcome(life.end.succeeded, life.end.exit_code, life.end.reason)  # the shim was done
    await end_all(_marks(key, life, spool))
    return LOST_SHIM


def _marks(key: Key, life: Life | None, spool: Spool) -> Marks:
    entry = spool.get(key)
    ordered = None if entry is None else entry.ordered
    cgroup = ordered.cgroup if ordered is not None else ""
    return Marks(
        key=key,
        directory=spool.path(key),
        session=life.task_pid if life is not None else 0,
        uid=ordered.uid if ordered is not None else None,
        cgroup=f"{cgroup}/{group_name(life.shim)}" if cgroup and life is not None else "",
    )


async def end_all(marks: Marks) -> None:
    """Returns when two looks in a row have found nobody. What cannot be killed (another user's, stuck in the kernel) keeps us
    here, and with us the attempt's devices: they are not free."""
    quiet, pause_s = 0, _LOOK_S
    while quiet < 2:
        living = await asyncio.to_thread(survivors, marks)
        quiet = 0 if living else quiet + 1
        for pid in living:
            processes.send(pid, signal.SIGKILL)
        await asyncio.sleep(pause_s)
        if living:
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
            log.warning("%s attempt %d: its shim is dead, ending %s", *marks.key, living)


def survivors(marks: Marks) -> list[int]:
    """Processes of the attempt that live now."""
    marked = set(processes.with_environment(f"{DIRECTORY_VARIABLE}={marks.directory}".encode()))
    if marks.cgroup:
        marked.update(members(Path(marks.cgroup)))
    if marks.session:
        uid = os.geteuid() if marks.uid is None else marks.uid
        marked.update(pid for pid in processes.in_session(marks.session) if _owner(pid) == uid)
    return sorted(marked)


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
