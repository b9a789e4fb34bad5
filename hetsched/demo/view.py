"""How the demo looks: a live picture on a terminal, a line a second anywhere else. Draws what the board holds; asks nobody."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hetsched.demo.board import Board

_BARS = "·▁▂▃▄▅▆▇█"
_STORY_LINES = 12


class View(Protocol):
    """Both kinds."""

    def __enter__(self) -> View: ...
    def __exit__(self, *exc: object) -> None: ...


def view_of(board: Board, *, plain: bool) -> View:
    """A picture where somebody can see it move."""
    can_move = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Picture(board) if can_move and not plain else Plain(board)


class Plain:
    """The board's story as it comes, and the figures once a second."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._told = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Plain:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._tell()

    def _run(self) -> None:
        while not self._over.wait(1.0):
            try:
                self._tell()
                print(f"{self._board.elapsed_s:5.1f} s  {figures(self._board)}", flush=True)
            except OSError:
                return  # nobody reads any more; the demo goes on to its verdict

    def _tell(self) -> None:
        """Only the demo's own lines; the events of single tasks would drown them."""
        for line in list(self._board.notes)[self._told :]:
            print(line, flush=True)
            self._told += 1


class Picture:
    """rich's Live, four times a second."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._live = Live(
            get_renderable=self._draw, console=Console(), refresh_per_second=4, transient=True, vertical_overflow="crop"
        )

    def __enter__(self) -> Picture:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)

    def _draw(self) -> Group:
        board = self._board
        head = Text(f"hetsched demo  {board.elapsed_s:5.1f} s  ", style="bold")
        head.append(board.act, style="bold yellow" if "dead" in board.act else "green")
        if not board.daemon_answers:
            head.append("  (the daemon does not answer)", style="red")
        story = Text("\n".join(list(board.story)[-_STORY_LINES:]), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(head, Text(figures(board)), "", self._nodes(), "", story)

    def _nodes(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("node", "state", "tasks", "cores", "devices"):
            table.add_column(column, justify="right" if column in ("tasks", "cores") else "left")
        for node in self._board.nodes:
            style = None if node["state"] in ("up", "ready", "open") else "red"
            cores = f"{node['cpu'] - node['cpu_free']:.1f}/{node['cpu']:.0f}"
            devices = self._devices(node["name"])
            table.add_row(node["name"], Text(node["state"], style=style or ""), str(node["running"]), cores, devices)
        return table

    def _devices(self, node: str) -> Text:
        text = Text()
        kind = None
        for device in list(self._board.ledger.devices):
            if device["node"] != node:
                continue
            if device["kind"] != kind:
                kind = device["kind"]
                text.append(f"{' ' if text else ''}{device['model'] or kind} ", style="dim")
            bar = _BARS[min(len(_BARS) - 1, -(-device["share_used"] * (len(_BARS) - 1) // 1000))]
            text.append(bar, style="green" if device["health"] == "healthy" else "red")
        return text


def figures(board: Board) -> str:
    """One line: how many wait in each lane, run, have ended; what is used."""
    tasks, lanes = board.cluster.get("tasks", {}), board.cluster.get("lanes", {})
    used, capacity = board.cluster.get("used", {}), board.cluster.get("capacity", {})
    waiting = " ".join(f"{name} {lanes.get(name, 0)}" for name in ("immediate", "batch", "backoff"))
    running = sum(tasks.get(state, 0) for state in ("placed", "running", "stopping"))
    kinds = " ".join(f"{k} {used.get(k, 0):g}/{n:g}" for k, n in capacity.items() if k != "memory" and n)
    nodes = board.cluster.get("nodes", {})
    away = nodes.get("total", 0) - nodes.get("open", 0)
    if away:  # their capacity is not counted, what runs there is
        kinds += f"  ({away} of {nodes['total']} nodes away)"
    return (
        f"{waiting}  held {tasks.get('held', 0)}  running {running}  ended {board.ended} of {board.submitted}  "
        f"preempted {board.events['preempted']}  {kinds}"
    )
