"""`handover`: the leader gives its place to a standby; ends when that one leads."""

from __future__ import annotations

import argparse
import time
from typing import Any

from hetsched.cli import exits
from hetsched.cli.output import emit, emit_json, one_line
from hetsched.cli.parser import add_reading, client_of
from hetsched.cli.table import Command
from hetsched.client import Client

_LOOK_S = 0.02


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", metavar="NAME", help="the standby's name or URL (else the one that is furthest)")
    add_reading(parser)


def _handover(options: argparse.Namespace) -> int:
    client = client_of(options)
    epoch = client.cluster()["epoch"]
    began_s = time.monotonic()
    chosen = client.hand_over(options.to)
    now = _new_leader(client, epoch)
    told = {**chosen, "epoch": now["epoch"], "seconds": round(time.monotonic() - began_s, 3)}
    if options.json:
        emit_json(told)
    else:
        emit(one_line(f"{told['to']} at {told['leader']} leads in epoch {told['epoch']}, after {told['seconds']:g} s"))
    return exits.OK


def _new_leader(client: Client, before: int) -> dict[str, Any]:
    """The cluster as the next leader shows it; the client waits for that one by itself, and gives up by itself."""
    while (cluster := client.cluster())["epoch"] <= before or cluster["role"] != "leader":
        time.sleep(_LOOK_S)
    return cluster


COMMANDS = {"handover": Command(_arguments, _handover)}
