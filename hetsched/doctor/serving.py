"""Where a daemon would listen, whom its tokens are open to, and how the one is that runs here already."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from hetsched.client import Client
from hetsched.daemon.binding import bind_to
from hetsched.doctor.check import Check, fail, ok, warn
from hetsched.errors import ConfigError, HetschedError

TOKENS = ("token", "agent-token")


def checks(data_dir: Path, listen: str) -> Iterator[Check]:
    """For the daemon."""
    running = _running(data_dir)
    if running is not None:
        yield running
    yield _port(listen, _own_port(data_dir) if running is not None else None)
    yield from _tokens(data_dir)


def _running(data_dir: Path) -> Check | None:
    """The daemon of this directory, if it answers."""
    try:
        url = (data_dir / "url").read_text().strip()
        health = Client(url, patience_s=0.0, reach_s=0.0, timeout_s=2.0).health()
    except (OSError, HetschedError):
        return None
    if health["state"] == "safe":
        return fail(
            "daemon",
            f"{url}: {health.get('reason', 'safe mode')}",
            "hetsched status names the command that mends the journal",
        )
    return ok("daemon", f"{url} is {health['state']}")


def _own_port(data_dir: Path) -> int | None:
    return urlsplit((data_dir / "url").read_text().strip()).port


def _port(listen: str, own: int | None) -> Check:
    try:
        binding = bind_to(listen, insecure=True)
    except ConfigError as error:
        return fail("port", error.detail, "--listen HOST:PORT")
    if own == binding.port:
        return ok("port", f"{listen}: our daemon's")
    family = socket.AF_INET6 if ":" in binding.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((binding.host, binding.port))
        except OSError as error:
            return fail(
                "port", f"{listen}: {error.strerror}", "--listen HOST:PORT names another place, port 0 any free one"
            )
    if binding.insecure:
        fix = "server.tls_cert and server.tls_key; or listen on 127.0.0.1"
        return warn("port", f"{listen} is free, and can be reached from other machines", f"it needs TLS: {fix}")
    return ok("port", f"{listen} is free")


def _tokens(data_dir: Path) -> Iterator[Check]:
    for name in TOKENS:
        path = data_dir / name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            yield ok(name, "not there yet: the first start makes it, mode 0600")
            continue
        except OSError as error:
            yield fail(name, f"{path}: {error.strerror}", "run this as the user of the daemon")
            continue
        if mode & 0o077:
            yield fail(name, f"{path} has mode {mode:04o}: others can read it", f"chmod 600 {path}")
        else:
            yield ok(name, f"mode {mode:04o}")
