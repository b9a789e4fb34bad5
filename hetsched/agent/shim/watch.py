"""One shim's life: claim the attempt, begin the task, wait, end it when told or when a limit is over, write down how it ended.

Everything that may end the task is looked at in one place (`_why_to_end`) on every wake: a child's death, the agent's nudge, the
nearest limit, and at most `_LOOK_NS` later anyway, because after a sleep of the machine no timer is on time.
Promises: `exit.json` is written only when the tree is dead; a stop, a limit or the lease's end names the reason only if the main
process had not ended by itself before; signals meant for the agent's group reach neither shim nor task.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any

from hetsched.agent.shim import files, lease, processes, streams, tree

SECOND_NS = 1_000_000_000
_LOOK_NS = 5 * SECOND_NS
# Doubled each time, up to a second: what the kernel will not let go is not let go faster by asking.
_KILL_AGAIN_NS = 20_000_000
# What a task leaves behind when its main process has ended: asked to go, and this long later made to.
_LEFT_BEHIND_NS = 2 * SECOND_NS
_WAKERS = (signal.SIGCHLD, signal.SIGUSR1)
# Blocked for good in nursery and shim, so that none is lost between two looks and none of the agent's group ends us.
BLOCKED = (*_WAKERS, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)


class Outcome:
    """How an attempt ended, as `exit.json` keeps it."""

    def __init__(self, succeeded: bool, exit_code: int | None, reason: str) -> None:
        self.succeeded = succeeded
        self.exit_code = exit_code
        self.reason = reason

    @classmethod
    def of_status(cls, status: int) -> Outcome:
        """From a wait status. A signal's exit code is 128 + its number, as shells have it."""
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return cls(True, 0, "")
        return cls(False, code, f"exit {code}") if code > 0 else cls(False, 128 - code, f"signal {-code}")

    def content(self) -> dict[str, Any]:
        return {
            "succeeded": self.succeeded,
            "exit_code": self.exit_code,
            "reason": self.reason,
            "ended_at": time.time(),
        }


class Watch:
    """Watches one attempt. `directory`: its files, open; `record`: its attempt.json."""

    def __init__(self, directory: int, record: dict[str, Any]) -> None:
        self._directory = directory
        self._record = record
        self._lease = os.open(record["lease"], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._tree = tree.Tree(tree.Command(record), directory)
        self._grace_ns = int(record["grace_s"] * SECOND_NS)
        self._limit_ns: int | None = None  # when the time limit is over
        self._kill_ns: int | None = None  # asked to end; from then on it is made to
        self._asked_ns = 0  # when it was asked to
        self._reason: str | None = None  # why; None: the main process had ended by itself
        self._kill_again_ns = _KILL_AGAIN_NS
        self._exec_error: str | None = None
        self.started = False

    def begin(self) -> Outcome | None:
        """Starts the task; an Outcome if it must not or cannot be."""
        why = self._why_to_end(lease.now_ns())
        if why is not None:
            return Outcome(False, None, why[0])
        try:
            self._tree.begin()
        except OSError as error:
            return Outcome(False, None, f"cannot_start: {tree.describe(error, self._record['argv'][0])}")
        if self._record["time_limit_s"] is not None:
            self._limit_ns = lease.now_ns() + int(self._record["time_limit_s"] * SECOND_NS)
        # Not for ever: a work directory on a dead server must not keep us from obeying the lease.
        select.select([self._tree.error_pipe], [], [], 1.0)
        self._exec_error = self._tree.error()
        self.started = self._exec_error in ("", None)
        if self.started:
            self._write_started()
        return None

    def _write_started(self) -> None:
        content = {"pid": self._tree.main_pid, "start_time": processes.start_time(self._tree.main_pid)}
        try:
            files.write_whole(self._directory, "started.json", {**content, "started_at": time.time()}, durable=False)
        except OSError:
            pass  # a full disk; the file only helps to find the task should this shim be killed

    @property
    def pid(self) -> int:
        """Of the task's main process."""
        return self._tree.main_pid

    def finish(self) -> Outcome:
        """Waits until the last process of the task is gone."""
        while not self._tree.reap():
            self._consider(lease.now_ns())
            streams.trim(self._directory, self._record["log_bytes"])
            signal.sigtimedwait(_WAKERS, self._patience_ns() / SECOND_NS)
        self._tree.remove()
        return self._outcome()

    def _outcome(self) -> Outcome:
        error = self._exec_error or self._tree.error()
        if error:
            return Outcome(False, None, f"cannot_start: {error}")
        assert self._tree.main_status is not None, "nobody is left, so the main process has been waited for"
        own = Outcome.of_status(self._tree.main_status)
        return own if self._reason is None else Outcome(False, own.exit_code, self._reason)

    def _consider(self, now_ns: int) -> None:
        """Asks the tree to end if there is a reason to, and makes it end if it was asked long enough ago."""
        if self._tree.main_status is not None and self._kill_ns is None:
            self._ask_to_end(now_ns, min(self._grace_ns, _LEFT_BEHIND_NS))
        if self._tree.main_status is None:
            why = self._why_to_end(now_ns)
            if why is not None:
                self._obey(now_ns, *why)
        if self._kill_ns is not None and now_ns >= self._kill_ns:
            self._tree.signal(signal.SIGKILL)
            self._kill_again_ns = min(2 * self._kill_again_ns, SECOND_NS)

    def _obey(self, now_ns: int, reason: str, grace_ns: int) -> None:
        """The first reason stays; a later one may only shorten the grace."""
        if self._reason is None:
            self._reason = reason
            self._ask_to_end(now_ns, grace_ns)
        elif self._kill_ns is not None:
            self._kill_ns = min(self._kill_ns, self._asked_ns + grace_ns)

    def _ask_to_end(self, now_ns: int, grace_ns: int) -> None:
        self._asked_ns = now_ns
        self._kill_ns = now_ns + grace_ns
        self._tree.signal(signal.SIGTERM)
        self._tree.signal(signal.SIGCONT)  # who is stopped could not hear it

    def _why_to_end(self, now_ns: int) -> tuple[str, int] | None:
        """(reason, grace in ns). A stop wins over the limits."""
        stop = files.read_whole(self._directory, "stop.json")
        if stop is not None:
            return stop["reason"], int(stop["grace_s"] * SECOND_NS)
        if now_ns >= lease.read_deadline(self._lease):
            return "lease", self._grace_ns  # the daemon waits as long before it gives the task to another node
        if self._limit_ns is not None and now_ns >= self._limit_ns:
            return "time_limit", self._grace_ns
        return None

    def _patience_ns(self) -> int:
        """How long nothing can need doing, unless a signal comes."""
        now_ns = lease.now_ns()
        if self._kill_ns is not None:
            return self._kill_again_ns if now_ns >= self._kill_ns else min(self._kill_ns - now_ns, _LOOK_NS)
        ends = [lease.read_deadline(self._lease), now_ns + _LOOK_NS]
        if self._limit_ns is not None:
            ends.append(self._limit_ns)
        return max(0, min(ends) - now_ns)


def claim(directory: int, name: str) -> bool:
    """Makes this process the attempt's shim; False if it has or had one."""
    pid = os.getpid()
    content = {"pid": pid, "start_time": processes.start_time(pid), "name": name}
    return files.create_whole(directory, "shim.pid", content)


def write_outcome(directory: int, outcome: Outcome) -> None:
    """Until it is on disk: a full one must not lose the exit of a task that ran for a week. In a directory that is gone nobody will look."""
    while True:
        try:
            files.write_whole(directory, "exit.json", outcome.content(), durable=True)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(1.0)
