"""Telling the service manager how we are (sd_notify): READY, STOPPING, STATUS, WATCHDOG. Nothing where there is none.

Spoken by daemon and agent. The socket is `$NOTIFY_SOCKET`: a path, or with a leading `@` an abstract name.
"""

from __future__ import annotations

import os
import socket


def notify(*lines: str) -> bool:
    """Sends `lines` ("READY=1", "STATUS=…") in one message; False where nobody listens. Never raises, never waits."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        try:
            channel.setblocking(False)
            channel.sendto("\n".join(lines).encode(), address)
        except OSError:
            return False
    return True


def watchdog_s() -> float | None:
    """How often to send WATCHDOG=1: half of what the manager allows; None = it does not watch this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        allowed_us = int(os.environ.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return allowed_us / 2e6 if allowed_us > 0 else None
