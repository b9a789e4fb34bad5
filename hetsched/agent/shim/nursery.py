"""The nursery: forks a shim for every order of the agent, and is gone when the agent is.

Spoken over one SOCK_SEQPACKET pair. In: the path of an attempt's directory. Out, from the shims themselves: a JSON object
`{"key": directory's name, "event": "started" | "ended" | "claimed", …}`. These are hints that
save the agent a look; the truth is in the files, so an agent that does not listen (stopped, dead) holds up nobody.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import time

from hetsched.agent.shim import files, processes, watch


def main(channel_fd: int) -> None:
    """Runs until the agent closes its end. Started by `hetsched.agent.nursery`, never by hand."""
    signal.pthread_sigmask(signal.SIG_BLOCK, watch.BLOCKED)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are nobody's zombies
    processes.set_name("hs-nursery")
    channel = socket.socket(fileno=channel_fd)
    gc.disable()
    gc.freeze()  # what is here now stays shared with every shim
    while True:
        path = _next_order(channel)
        if not path:
            return
        if os.fork() == 0:
            _be_a_shim(path, channel)


def _next_order(channel: socket.socket) -> str:
    """ "" when the agent is gone. (It may have died with words of shims unread; that is a reset.)"""
    try:
        return channel.recv(8192).decode()
    except ConnectionResetError:
        return ""


def _be_a_shim(path: str, channel: socket.socket) -> None:
    """Never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        processes.become_subreaper()
        processes.set_name("hs-shim")
        os.umask(0o077)
        _live(path, channel)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{path}: {error!r}\n".encode())
        os._exit(70)


def _live(path: str, channel: socket.socket) -> None:
    key = os.path.basename(path)
    directory = files.open_directory(path)
    record = files.read_whole(directory, "attempt.json")
    assert record is not None, "the agent writes the record before it gives the order"
    if not watch.claim(directory, key):
        _tell(channel, {"key": key, "event": "claimed"})
        return
    shim = watch.Watch(directory, record)
    outcome = shim.begin()
    if outcome is None:
        if shim.started:
            _tell(channel, {"key": key, "event": "started", **_self(), "pid": shim.pid, "at": time.time()})
            channel.close()  # from here on the agent, or the one after it, watches this process
        outcome = shim.finish()
    watch.write_outcome(directory, outcome)
    _tell(channel, {"key": key, "event": "ended"})


def _self() -> dict[str, object]:
    return {"shim": os.getpid(), "shim_start_time": processes.start_time(os.getpid())}


def _tell(channel: socket.socket, message: dict[str, object]) -> None:
    try:
        channel.send(json.dumps(message).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        pass  # nobody listens; see above
