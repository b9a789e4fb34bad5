"""systemd's side of the notify socket, played by the test."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.daemon.process import DaemonProcess


def test_ready_watchdog_and_stopping_are_told_over_a_real_notify_socket(data_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(data_dir / "notify"))
        heard.settimeout(10)
        env = {"NOTIFY_SOCKET": str(data_dir / "notify"), "WATCHDOG_USEC": "200000"}
        with DaemonProcess(data_dir, env=env) as daemon:
            first = heard.recv(4096).decode().splitlines()
            assert first[0] == "READY=1" and first[1].startswith("STATUS=serving on http://")
            assert [heard.recv(4096) for _ in range(5)] == [b"WATCHDOG=1"] * 5
            assert daemon.stop() == 0
            said = []
            heard.settimeout(0.5)
            while not said or not said[-1].startswith("STOPPING=1"):
                said.append(heard.recv(4096).decode())
