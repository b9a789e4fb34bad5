"""The daemon under load: our own on loopback, or one that runs already. And what its process costs.

Promises: an own daemon gets a directory of its own and is gone afterwards, whatever happened; a foreign address is refused unless
the user says that the host is theirs.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

import psutil

START_S = 60.0
STOP_S = 30.0


class ServerError(Exception):
    """The daemon could not be used; the message says why, for people."""


class Server(NamedTuple):
    """Where it is, who may talk to it, and its process if it is ours."""

    url: str
    host: str
    port: int
    token: str
    agent_token: str
    pid: int | None

    def get(self, path: str) -> Any:
        """Decoded JSON of a GET; raises ServerError."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.load(response)
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise ServerError(f"GET {path} at {self.url}: {error}") from None

    def cost(self) -> dict[str, float]:
        """CPU seconds so far and resident memory, of the daemon and its children, and the journal server's part; empty if it is not ours."""
        if self.pid is None:
            return {}
        cost = dict.fromkeys(("cpu_s", "rss_bytes", "journal_cpu_s", "journal_rss_bytes"), 0.0)
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            for each in [process, *process.children(recursive=True)]:
                times, rss_bytes = each.cpu_times(), each.memory_info().rss
                is_journal = any(word in each.name() for word in ("valkey", "redis"))
                for part in ("", "journal_") if is_journal else ("",):
                    cost[f"{part}cpu_s"] += times.user + times.system
                    cost[f"{part}rss_bytes"] += rss_bytes
        return cost


def existing(url: str, *, token: str, agent_token: str, foreign_allowed: bool) -> Server:
    """A daemon that runs already and takes the token. Raises ServerError, for an address beyond this machine unless
    `foreign_allowed` too."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise ServerError(f"{url!r}: expected http://HOST:PORT")
    if not foreign_allowed and not _is_loopback(parts.hostname):
        raise ServerError(
            f"{parts.hostname} is not this machine; load is for hosts of your own: --i-own-this-host says so"
        )
    found = Server(url.rstrip("/"), parts.hostname, parts.port or 80, token, agent_token, None)
    found.get("/v1/cluster")
    return found


@contextlib.contextmanager
def own(*, store: str | None, sets: list[str], nice: int = 0) -> Iterator[Server]:
    """A daemon for this run alone, on a free port of the loopback. `nice`: as `Nice` of a systemd unit."""
    data = Path(tempfile.mkdtemp(prefix="hs-load-"))
    try:
        with over(data, store=store, sets=sets, nice=nice) as daemon:
            yield daemon
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextlib.contextmanager
def over(data: Path, *, store: str | None = None, sets: Sequence[str] = (), nice: int = 0) -> Iterator[Server]:
    """A daemon of our own over this directory, which stays. Whoever kills it before the end may."""
    command = ["nice", "-n", str(nice)] if nice else []
    command += [sys.executable, "-m", "hetsched", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    command += [part for text in sets for part in ("--set", text)] + (["--store", store] if store else [])
    with (data / "daemon.log").open("ab") as log_file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log_file)
        try:
            url = _listening(process, data / "daemon.log")
            parts = urlsplit(url)
            token, agent_token = ((data / name).read_text().strip() for name in ("token", "agent-token"))
            yield Server(url, parts.hostname or "127.0.0.1", parts.port or 80, token, agent_token, process.pid)
        finally:
            _stop(process)


@contextlib.contextmanager
def agent(daemon: Server) -> Iterator[int]:
    """A real agent of this machine, for a run whose tasks are processes; its pid. Raises ServerError."""
    data = Path(tempfile.mkdtemp(prefix="hs-load-agent-"))
    command = [sys.executable, "-m", "hetsched", "agent", "--server", daemon.url, "--token", daemon.agent_token]
    command += ["--name", "load-agent", "--data", str(data), "--set", "agent.allow_root=true"]
    with (data / "agent.log").open("wb") as log_file:
        process = subprocess.Popen(command, stdout=log_file, stderr=log_file)
        try:
            deadline = time.monotonic() + START_S
            while not any(node["state"] == "ready" for node in daemon.get("/v1/nodes")["nodes"]):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ServerError(f"the agent is not ready within {START_S:.0f} s:\n{_tail(data / 'agent.log')}")
                time.sleep(0.05)
            yield process.pid
        finally:
            _stop(process)
            shutil.rmtree(data, ignore_errors=True)


def _listening(process: subprocess.Popen[bytes], log_path: Path) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True)
    reader.start()
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        for line in lines:
            if line.startswith("listening on "):
                return line.removeprefix("listening on ").strip()
        if process.poll() is not None:
            raise ServerError(f"the daemon ended at once, exit {process.returncode}:\n{_tail(log_path)}")
        time.sleep(0.02)
    raise ServerError(f"the daemon did not listen within {START_S:.0f} s:\n{_tail(log_path)}")


def _read_lines(stream: IO[bytes], lines: list[str]) -> None:
    for line in stream:  # to its end: a full pipe would block the daemon
        lines.append(line.decode(errors="replace"))
        del lines[:-20]


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-10:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
