"""Reading the journal server's own file, which it refuses to load as soon as one byte of its form is wrong.

The file is a row of commands, `*COUNT␍␊` and `$LENGTH␍␊BYTES␍␊` each; what a script did stands between MULTI and EXEC. Promise: `whole_until`
is the end of the last transaction before the first damage, so that what is kept is what the server would have had at that moment.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

COMMANDS = frozenset(
    b"SELECT MULTI EXEC HSET HDEL HINCRBY XADD XTRIM XDEL XSETID SET DEL UNLINK PEXPIREAT FUNCTION".split()
)
"""All that our scripts become. Another word there is a damaged one."""

_COUNT = re.compile(rb"\*(\d{1,7})\r\n")
_LENGTH = re.compile(rb"\$(\d{1,9})\r\n")
_NOTE = re.compile(rb"#[^\r\n]*\r?\n")


class Damage(NamedTuple):
    """`byte`: where it cannot be read on; `whole_until`: up to here it can be."""

    path: Path
    byte: int
    whole_until: int
    reason: str


def find_damage(directory: Path) -> Damage | None:
    """In the newest file of the server in this directory; None = every command of it can be read, as far as its form goes."""
    path = newest_file(directory)
    return None if path is None else _walk(path, path.read_bytes())


def newest_file(directory: Path) -> Path | None:
    """To which the server appends; None: there is none yet. Servers before 7.0 have one file, newer ones a directory of them."""
    parts = list(directory.glob("appendonlydir/*.incr.aof"))
    if parts:
        return max(parts, key=lambda path: int(path.name.split(".")[-3]))
    old = directory / "appendonly.aof"
    return old if old.is_file() else None


def _walk(path: Path, data: bytes) -> Damage | None:
    at = whole = 0
    inside = False
    while at < len(data):
        note = _NOTE.match(data, at)
        if note is not None:
            at = note.end()
            continue
        after, words, reason = _command(data, at)
        if reason:
            return Damage(path, at, whole, reason)
        inside = words[0].upper() == b"MULTI" or (inside and words[0].upper() != b"EXEC")
        at = after
        whole = whole if inside else at
    return Damage(path, len(data), whole, "ends within a transaction") if whole < len(data) else None


def _command(data: bytes, at: int) -> tuple[int, list[bytes], str]:
    """(byte after it, its words, what is wrong with it or "")."""
    count = _COUNT.match(data, at)
    if count is None or int(count[1]) == 0:
        return at, [], f"begins with {data[at : at + 12]!r}, which is no command"
    at, words = count.end(), []
    for _ in range(int(count[1])):
        length = _LENGTH.match(data, at)
        if length is None:
            return at, [], f"has {data[at : at + 12]!r} where the length of a word is due"
        begin, end = length.end(), length.end() + int(length[1])
        if data[end : end + 2] != b"\r\n":
            return at, [], f"has a word of {length[1].decode()} bytes that does not end there"
        words.append(data[begin:end])
        at = end + 2
    if words[0].upper() not in COMMANDS:
        return at, [], f"{words[0][:24]!r} is no command of the journal's"
    return at, words, ""
