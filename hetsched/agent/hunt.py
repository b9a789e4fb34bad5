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

from hetsched.agent.attempts import Key, Outcome
from hetsched.agent.delegation import members
from hetsched.agent.records import DIRECTORY_VARIABLE
from hetsched.agent.shim import processes
from hetsched.agent.spool import Found, Spool

log = logging.getLogger("hetsched.agent")

LOST_SHIM = Outcome(False, None, "lost_shim")
_LOOK_S = 0.05
_LONGEST_LOOK_S = 5.0


async def outcome_without_shim(key: Key, spool: Spool) -> Outcome:
    """How the attempt ended, once nothing of it lives. Its directory may be spoilt; its name is enough."""
    path = spool.path(key)
    try:
        found = await asyncio.to_thread(spool.find, path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("%s attempt %d: its directory cannot be read: %r", *key, error)
        found = None
    if found is not None and found.outcome is not None:
        return found.outcome  # the shim was done
    await end_all(found or Found(key=key, record={}), path)
    return LOST_SHIM


async def end_all(found: Found, directory: Path) -> None:
    """Returns when two looks in a row have found nobody. What cannot be killed (another user's, stuck in the kernel) keeps us
    here, and with us the attempt's devices: they are not free."""
    quiet, pause_s = 0, _LOOK_S
    while quiet < 2:
        living = await asyncio.to_thread(survivors, found, directory)
        quiet = 0 if living else quiet + 1
        for pid in living:
            processes.send(pid, signal.SIGKILL)
        await asyncio.sleep(pause_s)
        if living:
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
            log.warning("%s attempt %d: its shim is dead, ending %s", *found.key, living)


def survivors(found: Found, directory: Path) -> list[int]:
    """Processes of the attempt that live now."""
    marked = set(processes.with_environment(f"{DIRECTORY_VARIABLE}={directory}".encode()))
    if found.record.get("cgroup"):
        marked.update(members(Path(found.record["cgroup"])))
    if found.task_pid is not None:
        uid = found.record.get("uid")
        uid = os.geteuid() if uid is None else uid
        marked.update(pid for pid in processes.in_session(found.task_pid) if _owner(pid) == uid)
    return sorted(marked)


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
