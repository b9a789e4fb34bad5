"""`hetsched demo`: the whole thing on this machine, in a directory of its own, to watch and to believe.

A daemon with its embedded store, four agents that pretend to have GPUs, TPUs and many cores, a mixed workload of thousands of tasks
and 300 real processes; a preemption, an agent and the daemon killed with -9 on the way. Ends by itself with a summary that is
checked against what was promised; exit code 0 only if all of it held. Everything started is ended, whatever happens.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hetsched.client import Client
from hetsched.demo.board import Board
from hetsched.demo.processes import PROFILES, DemoFault, Processes
from hetsched.demo.script import Script
from hetsched.demo.verdict import judge, lines_of
from hetsched.demo.view import view_of
from hetsched.demo.workload import Workload

LEASES, PROCESSES = 7800, 300
_JOIN_S = 30.0


def run(*, seconds: float = 60.0, plain: bool = False, keep: bool = False, as_json: bool = False) -> int:
    """The exit code: 0 if every promise was held, 1 if not. `seconds`: how long work arrives."""
    directory = Path(tempfile.mkdtemp(prefix="hetsched-demo-"))
    programs = Processes(directory)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stopped either way, it cleans up
    try:
        summary = _play(programs, seconds, plain or as_json)
        keep = keep or not summary["ok"]
    except KeyboardInterrupt:
        print("hetsched demo: stopped; ending what it started", file=sys.stderr)
        raise
    except DemoFault as fault:
        keep = True
        print(f"hetsched demo: {fault}", file=sys.stderr)
        return 1
    except Exception:
        keep = True
        raise
    finally:
        programs.close()
        _leave(directory, keep)
    print(json.dumps(summary, indent=2) if as_json else "\n".join(lines_of(summary)))
    return 0 if summary["ok"] else 1


def _leave(directory: Path, keep: bool) -> None:
    """What went wrong can be looked into."""
    if keep:
        print(f"logs and data are left in {directory}", file=sys.stderr)
    else:
        shutil.rmtree(directory, ignore_errors=True)


def _play(programs: Processes, seconds: float, plain: bool) -> dict[str, Any]:
    print("starting a daemon and four agents …", file=sys.stderr)
    programs.start_daemon()
    for profile in PROFILES:
        programs.start_agent(profile)
    client = programs.client()
    _wait_for_nodes(client, programs)
    work = programs.directory / "work"
    work.mkdir()
    board = Board(client, programs.impatient_client())
    script = Script(client, programs, board, Workload(work), seconds)
    board.start()
    with view_of(board, plain=plain):
        try:
            script.play(leases=LEASES, processes=PROCESSES)
        finally:
            board.stop()
    return judge(client, script, board, work / "lines")


def _wait_for_nodes(client: Client, programs: Processes) -> None:
    deadline = time.monotonic() + _JOIN_S
    while time.monotonic() < deadline:
        if sum(node["connected"] for node in client.nodes()["nodes"]) == len(PROFILES):
            return
        programs.check()
        time.sleep(0.1)
    raise DemoFault(f"not all agents joined within {_JOIN_S:g} s:\n{programs.last_lines('agent-' + PROFILES[0].name)}")
