"""Runs between the daemon and its journal server, for some milliseconds: binds the server's life to the daemon's, then becomes it.

    launcher.py PARENT_PID LOCK_FILE WAIT_SECONDS BINARY ARGUMENTS…

The kernel terminates the server when the daemon dies, however it dies, and the lock is held by the server itself (the open file
survives exec), so a new daemon cannot start a second server on files that an old one is still writing. It imports only the
standard library: it is run as a file, without the package. Exit code 75: the lock stayed taken.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
EXIT_LOCKED = 75


def main(arguments: list[str]) -> int:
    parent, lock_file, wait_s, *command = arguments
    die_with(int(parent))
    lock = hold(lock_file, float(wait_s))
    if lock is None:
        print(f"{lock_file} is held by another server process", file=sys.stderr)
        return EXIT_LOCKED
    os.set_inheritable(lock, True)
    os.execv(command[0], command)


def die_with(parent: int) -> None:
    """SIGTERM for this process, also after exec, once `parent` is gone; at once if it is gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(0)


def hold(lock_file: str, wait_s: float) -> int | None:
    """The lock, by its descriptor; an old server may need a moment to end. None: it has not ended."""
    fd = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    until_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError:
            if time.monotonic() > until_s:
                os.close(fd)
                return None
            time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
