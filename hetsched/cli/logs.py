"""`logs`: what a task wrote, as bytes to a pipe or a file, without escape sequences to a terminal.

`submit --follow` copies both streams of an attempt at once, each to its own of ours.
"""

from __future__ import annotations

import argparse
import codecs
import sys
import threading
import time
from typing import TextIO

from hetsched.cli import exits
from hetsched.cli.output import clean, emit_json, note
from hetsched.cli.parser import add_reading, client_of, whole
from hetsched.cli.table import Command
from hetsched.client import ENDED, Client
from hetsched.errors import HetschedError

_POLL_S = 0.3


def copy_log(
    client: Client,
    task_id: str,
    *,
    stream: str = "stdout",
    attempt: int | None = None,
    offset: int = 0,
    follow: bool,
    to: TextIO | None = None,
) -> int:
    """To stdout, or `to`; how many bytes. Cut at any byte, a character of several bytes is still shown whole."""
    out = to or sys.stdout
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    terminal = out.isatty()
    copied = 0
    for piece in client.logs(task_id, stream=stream, follow=follow, offset=offset, attempt=attempt):
        copied += len(piece)
        if terminal:
            out.write(clean(decoder.decode(piece)))
            out.flush()
        else:
            out.buffer.write(piece)
            out.buffer.flush()
    return copied


def copy_attempt(client: Client, task_id: str, attempt: int) -> None:
    """What one attempt writes, until it has ended: its stdout to ours, its stderr to ours."""
    errors = threading.Thread(target=_copy_errors, args=(client, task_id, attempt), daemon=True)
    errors.start()
    copy_log(client, task_id, attempt=attempt, follow=True)
    errors.join()


def _copy_errors(client: Client, task_id: str, attempt: int) -> None:
    """A failure here is told and no more: stdout, which fails in the same way, ends the command."""
    try:
        copy_log(client, task_id, stream="stderr", attempt=attempt, follow=True, to=sys.stderr)
    except HetschedError as error:
        note(f"hetsched: the rest of its stderr is missing: {error.detail}")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the attempt has ended")
    parser.add_argument("--stream", choices=("stdout", "stderr"), default="stdout")
    parser.add_argument("--stderr", dest="stream", action="store_const", const="stderr", help="--stream stderr")
    parser.add_argument("--attempt", type=whole, metavar="N", help="of this attempt (else the latest)")
    parser.add_argument("--offset", type=whole, default=0, metavar="BYTES", help="from this byte on")
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
    copied = copy_log(
        client,
        options.id,
        stream=options.stream,
        attempt=options.attempt,
        offset=options.offset,
        follow=options.follow,
    )
    if not copied and options.stream == "stdout" and sys.stderr.isatty():
        note("nothing on stdout; hetsched logs --stderr shows the other stream")
    return exits.OK


def _until_started(client: Client, task_id: str) -> None:
    """A follower may come before the task has started."""
    while True:
        task = client.task(task_id)
        if task["state"] in ENDED or any(a.get("started_at") for a in task.get("attempts", ())):
            return
        time.sleep(_POLL_S)


COMMANDS = {"logs": Command(_arguments, _logs)}
