"""How the demo looks: a live picture on a terminal, a line a second anywhere else. Draws what the board holds; asks nobody."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hetsched.cli import picture
from hetsched.demo.board import Board

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
        return Group(head, Text(figures(board)), "", picture.nodes(board.nodes, list(board.ledger.devices)), "", story)


def figures(board: Board) -> str:
    """One line: the cluster's figures, and how the demo gets on."""
    return f"{picture.figures(board.cluster)}  ended {board.ended} of {board.submitted}  preempted {board.events['preempted']}"
