"""One task of the demo as a real process: writes a line when it starts and one when it ends, and holds a lock in between.

    worker.py DIRECTORY SECONDS [fail-first | fail]

The lock goes with the process whatever ends it, so that a second process of the same task which finds it taken is proof that
two of them lived at once; it says so with the word `twice`. Run alone, with the standard library only: 300 of them start.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time


def main() -> int:
    """The exit code: 0, or 1 where it was told to fail."""
    directory, seconds, manner = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    task, attempt = os.environ["HETSCHED_TASK"], os.environ["HETSCHED_ATTEMPT"]
    lines = os.open(os.path.join(directory, "lines"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(word: str) -> None:
        os.write(lines, f"{time.monotonic_ns()} {word} {task} {attempt} {os.getpid()}\n".encode())

    def stopped(*_: object) -> None:
        say("stopped")
        os._exit(128 + signal.SIGTERM)

    lock = os.open(os.path.join(directory, f"lock-{task}"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("twice")
    signal.signal(signal.SIGTERM, stopped)
    say("start")
    print(f"{task} attempt {attempt} on {os.environ.get('HETSCHED_NODE')}", flush=True)
    time.sleep(seconds)
    say("end")
    return int(manner == ["fail"] or (manner == ["fail-first"] and attempt == "1"))


if __name__ == "__main__":
    sys.exit(main())
