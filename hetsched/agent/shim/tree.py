"""The whole of a task's processes: how it is begun, asked to end, and ended for certain.

The shim is a subreaper, so whoever the task's processes leave behind (double forks, daemons, new sessions) becomes its child:
the tree is dead exactly when the shim has no child left. Where the agent has a cgroup of its own (v2, delegated), the task gets
one below it as well and SIGKILL reaches all of it in one write, which no fork can outrun; the proof stays the same.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from hetsched.agent.shim import processes

# Whatever Python, this shim or the agent's own parent ignores (a shell's background job: SIGINT and SIGQUIT), a task ignores nothing.
_BACK_TO_DEFAULT = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def describe(error: BaseException, subject: str) -> str:
    """One line for the reason `cannot_start: …`."""
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename if isinstance(error.filename, str) else subject}"
    return repr(error)


def _make_cgroup(path: str) -> None:
    """The last task of another moment may be removing the parent just now."""
    for _ in range(100):
        try:
            os.makedirs(path, exist_ok=True)
            return
        except FileNotFoundError:
            continue
    os.makedirs(path, exist_ok=True)


def _limit(path: str, limits: dict[str, str]) -> None:
    """Most that the attempt may use. A limit that cannot be set is said in the task's log; the task runs."""
    if not limits:
        return
    with open(f"{os.path.dirname(path)}/cgroup.subtree_control", "w") as file:
        file.write(" ".join(sorted(f"+{name.partition('.')[0]}" for name in limits)))
    for name, value in limits.items():
        with open(f"{path}/{name}", "w") as file:
            file.write(value)


class Command:
    """What to execute and as whom. `uid` None: as the agent's own user."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.argv: list[str] = record["argv"]
        self.env: dict[str, str] = record["env"]
        self.workdir: str | None = record["workdir"]
        self.uid: int | None = record["uid"]
        self.gid: int | None = record["gid"]
        self.groups: list[int] = record["groups"]
        self.cgroup: str | None = record["cgroup"]
        self.limits: dict[str, str] = record.get("limits", {})  # a record of an older agent has none
        self.executable: str | None = record["executable"]  # None: looked for in the task's PATH
        self.notes: list[str] = record["notes"]  # for its stderr, before its own


class Tree:
    """One task's processes. `directory`: the attempt's, open."""

    def __init__(self, command: Command, directory: int) -> None:
        self._command = command
        self._directory = directory
        self._error_pipe = -1
        self.main_pid = 0
        self.main_status: int | None = None  # as waitpid gave it, once the first process has ended

    def begin(self) -> None:
        """Forks and executes. Why it could not be executed, if so, is known from `error` after the main process has ended."""
        if self._command.cgroup:
            _make_cgroup(self._command.cgroup)
            try:
                _limit(self._command.cgroup, self._command.limits)
            except OSError as error:
                self._command.notes.append(f"hetsched: not limited: {describe(error, self._command.cgroup)}")
        self._prepare_workdir()
        self._error_pipe, write_end = os.pipe()
        os.set_blocking(self._error_pipe, False)
        shim_pid = os.getpid()
        self.main_pid = os.fork()
        if self.main_pid == 0:
            self._become_the_task(write_end, shim_pid)
        os.close(write_end)

    def error(self) -> str | None:
        """Why exec failed; "" = it did not; None = it has neither failed nor succeeded yet."""
        try:
            return os.read(self._error_pipe, 4096).decode(errors="replace")
        except BlockingIOError:
            return None

    @property
    def error_pipe(self) -> int:
        """Readable once it is known whether exec succeeded."""
        return self._error_pipe

    def reap(self) -> bool:
        """Takes in who has ended; True if nobody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.main_pid:
                self.main_status = status

    def signal(self, number: int) -> None:
        """To every process of the tree. SIGKILL has to be repeated until `reap` says that nobody is left."""
        if number == signal.SIGKILL and self._command.cgroup:
            self._kill_cgroup(self._command.cgroup)
        for pid in processes.descendants(os.getpid()):
            processes.send(pid, number)

    def remove(self) -> None:
        """After the last process: its cgroup, and the agent's if it was the last task."""
        if self._command.cgroup:
            try:
                os.rmdir(self._command.cgroup)
                os.rmdir(os.path.dirname(self._command.cgroup))
            except OSError:
                pass  # others are in there, or children of the task's own making; the agent sweeps when it starts

    @staticmethod
    def _kill_cgroup(path: str) -> None:
        try:
            with open(f"{path}/cgroup.kill", "w") as file:
                file.write("1")
        except OSError:
            pass  # kernels before 5.14 lack it; the walk does the same, only slower

    def _prepare_workdir(self) -> None:
        """The task's own directory, where it names none."""
        if self._command.workdir is None:
            os.mkdir("work", 0o700, dir_fd=self._directory)
            if self._command.uid is not None and self._command.gid is not None:
                os.chown("work", self._command.uid, self._command.gid, dir_fd=self._directory)

    def _become_the_task(self, error_pipe: int, shim_pid: int) -> None:
        """Never returns. The order matters: what needs the agent's rights first, the death signal after the change of user."""
        try:
            os.setsid()
            self._restore_signals()
            self._be_killed_first()
            self._redirect()
            if self._command.cgroup:
                with open(f"{self._command.cgroup}/cgroup.procs", "w") as file:
                    file.write("0")
            if self._command.workdir is None:
                os.fchdir(self._open_workdir())
            self._change_user()
            if self._command.workdir is not None:
                os.chdir(self._command.workdir)
            processes.die_with_parent(shim_pid)
            os.umask(0o022)
            self._execute()
        except BaseException as error:
            os.write(error_pipe, describe(error, self._command.argv[0]).encode()[:4000])
        finally:
            os._exit(127)

    def _execute(self) -> None:
        command = self._command
        for note in command.notes:
            os.write(2, f"{note}\n".encode())
        if command.executable is not None:
            os.execve(command.executable, command.argv, command.env)
        os.execvpe(command.argv[0], command.argv, command.env)

    def _open_workdir(self) -> int:
        return os.open("work", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory)

    def _change_user(self) -> None:
        """Groups before user: afterwards the right to change them is gone."""
        if self._command.uid is None or self._command.gid is None:
            return
        os.setgroups(self._command.groups)
        os.setresgid(self._command.gid, self._command.gid, self._command.gid)
        os.setresuid(self._command.uid, self._command.uid, self._command.uid)

    def _redirect(self) -> None:
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(name, flags, 0o600, dir_fd=self._directory)
            if self._command.uid is not None and self._command.gid is not None:
                os.fchown(handle, self._command.uid, self._command.gid)  # for `> /dev/stderr`, which opens it again
            os.dup2(handle, number)

    @staticmethod
    def _be_killed_first() -> None:
        """When memory runs out: the agent and its shims may be shielded from that, tasks are not."""
        with open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) < 0:
                file.seek(0)
                file.write("0")

    @staticmethod
    def _restore_signals() -> None:
        for number in _BACK_TO_DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
