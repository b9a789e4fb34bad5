"""`top`: the cluster as it is now, again and again: figures, nodes with a bar a device, tenant queues, the newest events."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from hetsched.cli import exits
from hetsched.cli.output import emit_json, one_line
from hetsched.cli.parser import Usage, add_reading, client_of, seconds
from hetsched.cli.table import Command
from hetsched.client import Client
from hetsched.errors import Gone, HetschedError

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_NODES = 500  # above, rows say nothing that a person could read, and cost the daemon
QUEUES_EVERY = 5  # looks; the daemon counts every waiting task for them
EVENTS = 8


class Look:
    """What was last heard. `answers`: whether the daemon does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._looks = itertools.count()
        self.answers = True
        self.cluster: dict[str, Any] = {}
        self.nodes: list[dict[str, Any]] = []
        self.devices: list[dict[str, Any]] = []
        self.queues: list[dict[str, Any]] = []
        self.story: deque[str] = deque(maxlen=EVENTS)

    def again(self) -> None:
        """Ask once; raises HetschedError where nobody answers."""
        self.cluster = self._client.cluster()
        if self.cluster["nodes"]["total"] <= MOST_NODES:
            self.nodes, self.devices = self._client.nodes()["nodes"], self._client.devices()["devices"]
        if next(self._looks) % QUEUES_EVERY == 0:
            self.queues = self._client.queues()["queues"]

    def follow(self) -> None:
        """The newest events, for ever; a thread's work."""
        while True:
            with contextlib.suppress(Gone, HetschedError, OSError):
                for event in self._client.events(None):
                    subject = event.get("task") or event.get("node") or ""
                    self.story.append(
                        one_line(f"{event['event']:<10} {subject} {event.get('node', '')} {event.get('reason', '')}")
                    )
            time.sleep(1.0)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--every", type=seconds, default=1.0, metavar="SECONDS", help="look again after (1)")
    parser.add_argument("--once", action="store_true", help="one look, printed; the rule where stdout is no terminal")
    add_reading(parser)


def _top(options: argparse.Namespace) -> int:
    if options.every < 0.1:
        raise Usage("--every is at least 0.1 seconds")
    look = Look(client_of(options, patience_s=0.0))
    look.again()
    if options.json:
        emit_json({"cluster": look.cluster, "nodes": look.nodes, "devices": look.devices, "queues": look.queues})
    elif options.once or not sys.stdout.isatty():
        _print(look)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _live(look, options.every)
    return exits.OK


def _print(look: Look) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(_drawn(look))


def _live(look: Look, every_s: float) -> None:
    from rich.live import Live

    threading.Thread(target=look.follow, daemon=True).start()
    with Live(get_renderable=lambda: _drawn(look), refresh_per_second=4, screen=True, vertical_overflow="crop"):
        while True:
            time.sleep(every_s)
            try:
                look.again()
                look.answers = True
            except HetschedError:
                look.answers = False


def _drawn(look: Look) -> RenderableType:
    # rich costs a tenth of a second of every start, for those who look.
    from rich.console import Group
    from rich.text import Text

    from hetsched.cli import picture

    head = Text(picture.figures(look.cluster))
    if not look.answers:
        head.append("  (the daemon does not answer)", style="red")
    total = look.cluster["nodes"]["total"]
    rows = (
        picture.nodes(look.nodes, look.devices)
        if look.nodes or not total
        else Text(f"{total:,} nodes: too many to list", style="dim")
    )
    parts: list[RenderableType] = [head, Text(""), picture.queues(look.queues), Text(""), rows]
    if look.story:
        parts += [Text(""), Text("\n".join(look.story), style="dim", no_wrap=True, overflow="ellipsis")]
    return Group(*parts)


COMMANDS = {"top": Command(_arguments, _top)}
