"""What is printed: JSON for programs, tables for people, progress on stderr. Text from tasks never steers the terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

# CSI, OSC and other escape sequences whole, then every control character but newline and tab.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_COLOURS = {
    "running": "32", "placed": "36", "stopping": "33", "backoff": "33", "held": "35", "failed": "31", "succeeded": "2",
    "ready": "32", "healthy": "32", "silent": "33", "suspect": "33", "lost": "31", "down": "31",
}  # fmt: skip


def clean(text: object) -> str:
    """Without escape sequences, control characters and marks that reverse the direction of text."""
    return _CONTROLS.sub("", _ESCAPES.sub("", str(text)))


def one_line(text: object) -> str:
    """`clean`, and on one line: what a cell of a table can bear."""
    return " ".join(clean(text).split())


def emit(text: str = "") -> None:
    """A line to stdout."""
    sys.stdout.write(text + "\n")


def emit_json(value: Any) -> None:
    """A value to stdout: indented, keys in the order the daemon gave them."""
    emit(json.dumps(value, indent=2, ensure_ascii=False))


def emit_json_line(value: Any) -> None:
    """One object a line, for streams."""
    emit(json.dumps(value, ensure_ascii=False))
    sys.stdout.flush()


def note(text: str) -> None:
    """A line to stderr."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, nothing: str = "") -> None:
    """Aligned by column. Piped, it is never cut short; on a terminal the last column is, to keep one row a line."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    if not cells:
        note(nothing)
        return
    widths = [max(len(row[i]) for row in [list(columns), *cells]) for i in range(len(columns))]
    width = _terminal_width()
    emit(_style(_row(columns, widths, width), "1"))
    for row in cells:
        emit(_coloured(_row(row, widths, width), row))


def pairs(rows: Iterable[tuple[str, object]]) -> None:
    """`name  value` a line; values that are None or empty are left out."""
    kept = [(name, value) for name, value in rows if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        emit(f"{_style(name.ljust(width), '1')}  {one_line(value)}")


def _row(cells: Sequence[str], widths: Sequence[int], limit: int | None) -> str:
    line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def _coloured(line: str, row: Sequence[str]) -> str:
    for cell in row:
        if cell in _COLOURS and f" {cell}" in f" {line}":
            return line.replace(cell, _style(cell, _COLOURS[cell]), 1) if line.count(cell) == 1 else line
    return line


def _style(text: str, code: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def _terminal_width() -> int | None:
    if not sys.stdout.isatty():
        return None
    return os.get_terminal_size(sys.stdout.fileno()).columns or None
