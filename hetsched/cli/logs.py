"""`logs`: what a task wrote, as bytes to a pipe or a file, without escape sequences to a terminal."""

from __future__ import annotations

import argparse
import codecs
import sys
import time

from hetsched.cli import exits
from hetsched.cli.output import clean, emit_json
from hetsched.cli.parser import add_reading, client_of
from hetsched.cli.table import Command
from hetsched.client import ENDED, Client

_POLL_S = 0.3


def copy_log(
    client: Client, task_id: str, *, stream: str = "stdout", attempt: int | None = None, offset: int = 0, follow: bool
) -> None:
    """To stdout. Cut at any byte, a character of several bytes is still shown whole."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    terminal = sys.stdout.isatty()
    for piece in client.logs(task_id, stream=stream, follow=follow, offset=offset, attempt=attempt):
        if terminal:
            sys.stdout.write(clean(decoder.decode(piece)))
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the attempt has ended")
    parser.add_argument("--stream", choices=("stdout", "stderr"), default="stdout")
    parser.add_argument("--stderr", dest="stream", action="store_const", const="stderr", help="--stream stderr")
    parser.add_argument("--attempt", type=int, metavar="N", help="of this attempt (else the latest)")
    parser.add_argument("--offset", type=int, default=0, metavar="BYTES", help="from this byte on")
    add_reading(parser)


def _logs(options: argparse.Namespace) -> int:
    client = client_of(options)
    if options.json:
        pieces = client.logs(options.id, stream=options.stream, offset=options.offset, attempt=options.attempt)
        text = b"".join(pieces).decode("utf-8", "replace")
        emit_json({"id": options.id, "stream": options.stream, "offset": options.offset, "text": text})
        return exits.OK
    if options.follow:
        _until_started(client, options.id)
    copy_log(
        client,
        options.id,
        stream=options.stream,
        attempt=options.attempt,
        offset=options.offset,
        follow=options.follow,
    )
    return exits.OK


def _until_started(client: Client, task_id: str) -> None:
    """A follower may come before the task has started."""
    while True:
        task = client.task(task_id)
        if task["state"] in ENDED or any(a.get("started_at") for a in task.get("attempts", ())):
            return
        time.sleep(_POLL_S)


COMMANDS = {"logs": Command(_arguments, _logs)}
