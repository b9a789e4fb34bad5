"""`events`: the log of what happened, as it is kept; `-f` goes on as it grows."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime
from typing import Any

from hetsched.cli import exits
from hetsched.cli.output import emit, emit_json_line, one_line
from hetsched.cli.parser import add_reading, client_of, whole
from hetsched.cli.table import Command
from hetsched.client import Client
from hetsched.errors import Gone

_SHOWN_APART = ("seq", "t", "event", "task", "attempt")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="go on as it grows")
    about = "after this event (default: all that are kept; with -f: from now)"
    parser.add_argument("--since", type=whole, metavar="SEQ", help=about)
    parser.add_argument("--task", metavar="ID", help="only of this task")
    add_reading(parser)


def _events(options: argparse.Namespace) -> int:
    client = client_of(options)
    since = options.since if options.since is not None or options.follow else _before_oldest(client)
    for event in client.events(since, follow=options.follow):
        if options.task is None or event.get("task") == options.task:
            emit_json_line(event) if options.json else _show(event)
    return exits.OK


def _before_oldest(client: Client) -> int:
    """The number to read after for all that is kept; the daemon names it when it refuses older ones."""
    try:
        next(client.events(0, follow=False), None)
    except Gone as error:
        found = re.search(r"from (\d+) on", error.detail)
        return int(found[1]) - 1 if found else 0
    return 0


def _show(event: dict[str, Any]) -> None:
    when = datetime.fromtimestamp(event.get("t", 0)).strftime("%H:%M:%S.%f")[:-3]
    subject = event.get("task") or event.get("node") or ""
    attempt = f" #{event['attempt']}" if event.get("attempt", 0) > 1 else ""
    rest = " ".join(f"{name}={_short(value)}" for name, value in event.items() if name not in _SHOWN_APART)
    emit(one_line(f"{event.get('seq', ''):>8} {when} {event.get('event', ''):<10} {subject}{attempt} {rest}"))
    sys.stdout.flush()


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_short(item) for item in value)
    if isinstance(value, dict):
        return f"{value['id']}:{value['share']}" if {"id", "share"} <= value.keys() else str(value.get("detail", value))
    return str(value)


COMMANDS = {"events": Command(_arguments, _events)}
