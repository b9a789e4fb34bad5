"""`hetsched agent`: from its options to a running agent, and from SIGTERM to its end.

Promises: a signal stops the agent and never a task; two agents never share a directory (`DATA/agent/NAME`, one lock each), so several
agents with different names may use one data directory; the service manager hears READY when the tasks of an earlier life are
adopted, and WATCHDOG as long as the event loop turns.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import quote

import uvloop

from hetsched import sdnotify
from hetsched.agent.address import Address
from hetsched.agent.agent import Agent
from hetsched.agent.spool import make_directory
from hetsched.agent.together import until_one_ends
from hetsched.config import Config
from hetsched.errors import ConfigError

EXIT_FIX_ME = 78
"""A person has to change something first; the service manager does not start it again (RestartPreventExitStatus)."""

log = logging.getLogger("hetsched.agent")


def main(
    *,
    data_dir: Path,
    config: Config,
    server: str | None = None,
    name: str | None = None,
    fake: str | None = None,
    token: str | None = None,
) -> int:
    """Runs an agent until SIGTERM or SIGINT; the exit code: 0, or `EXIT_FIX_ME` with a line on stderr."""
    try:
        return uvloop.run(run_agent(data_dir=data_dir, config=config, server=server, name=name, fake=fake, token=token))
    except ConfigError as error:
        print(f"hetsched agent: {error}", file=sys.stderr)
        return EXIT_FIX_ME


async def run_agent(
    *,
    data_dir: Path,
    config: Config,
    server: str | None = None,
    name: str | None = None,
    fake: str | None = None,
    token: str | None = None,
    stop: asyncio.Event | None = None,
) -> int:
    """As `main`, inside a running loop; `stop` ends it from outside. What is not told comes from the configuration's `[agent]`,
    the environment, the data directory, the host's name. Raises ConfigError (a bad profile, a directory in use)."""
    name = name or config.agent.name or socket.gethostname()
    raise_descriptor_limit()
    directory = agent_directory(data_dir, name)
    agent = Agent(name, config, directory, Address(data_dir, server or config.agent.server, token), fake)
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await agent.open()
        sdnotify.notify("READY=1", f"STATUS=agent of {name}")
        log.info("agent of %s, process %d, in %s", name, os.getpid(), directory)
        await until_one_ends(stop.wait(), agent.run(), _feed_watchdog())
    finally:
        sdnotify.notify("STOPPING=1", "STATUS=leaving; the tasks go on")
        await agent.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return 0


def agent_directory(data_dir: Path, name: str) -> Path:
    """Made if need be; absolute, because shims work elsewhere. Other users may pass through an agent's directories where it runs tasks
    as them; files are its own alone."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    data_dir = data_dir.absolute()
    directory = data_dir / "agent" / quote(name, safe="")
    for path in (data_dir, data_dir / "agent", directory, directory / "tasks"):
        make_directory(path, mode)
    return directory


def raise_descriptor_limit() -> None:
    """One descriptor for each running task; a shell's usual 1,024 are few. (`records.Site` has kept what tasks get.)"""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _feed_watchdog() -> None:
    """For ever, whether or not somebody watches."""
    period_s = sdnotify.watchdog_s()
    while True:
        await asyncio.sleep(period_s or 3600.0)
        sdnotify.notify("WATCHDOG=1")
