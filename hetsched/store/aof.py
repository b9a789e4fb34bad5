"""Reading the journal server's own files, which it refuses to load as soon as one byte of their form is wrong.

Since 7.0 they are several: a manifest names a *base*, what there was when it was written last, and what was appended since. Each is a row of
commands, `*COUNT␍␊` and `$LENGTH␍␊BYTES␍␊` each; what a script did stands between MULTI and EXEC. Promise: `whole_until` is the end of the last
transaction before the first damage, so that what is kept, with nothing of the files after it, is what the server would have had at that moment.
A base that an older configuration wrote as RDB is not looked into.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import NamedTuple

FOLDER, MANIFEST, SINGLE = "appendonlydir", "appendonly.aof.manifest", "appendonly.aof"

EMPTY_RDB_BYTES = 128

COMMANDS = frozenset(
    b"SELECT MULTI EXEC HSET HMSET HDEL HINCRBY XADD XTRIM XDEL XSETID SET DEL UNLINK PEXPIREAT FUNCTION".split()
)
"""All that our scripts become. Another word there is a damaged one."""

_NAMED = re.compile(
    r"file (appendonly\.aof\.(\d+)\.(?:base\.(?:aof|rdb)|incr\.aof)) seq ([1-9]\d*) type ([bih])(?: startoffset \d+)?(?: endoffset \d+)?\n"
)
_COUNT = re.compile(rb"\*(\d{1,7})\r\n")
_LENGTH = re.compile(rb"\$(\d{1,9})\r\n")
_NOTE = re.compile(rb"#[^\r\n]*\r?\n")


class Damage(NamedTuple):
    """`byte`: where it cannot be read on; `whole_until`: up to here it can be, None = nothing is won by cutting it."""

    path: Path
    byte: int
    whole_until: int | None
    reason: str


def find_damage(directory: Path) -> Damage | None:
    """In the files of the server in this directory; None = every command of them can be read, as far as their form goes."""
    damage = _find_unnamed(directory)
    if damage is not None:
        return damage
    return next((damage for path in parts(directory) if (damage := _damage(path)) is not None), None)


def find_grave(directory: Path) -> Damage | None:
    """What a server would not leave as it is: it begins anew over files that no manifest names, and cuts a file that others follow. The end of
    the last one it may cut: nobody was told of what was being written there."""
    return _find_unnamed(directory) or next(
        (damage for path in parts(directory)[:-1] if (damage := _damage(path)) is not None), None
    )


def _damage(path: Path) -> Damage | None:
    if not path.is_file():
        return Damage(path, 0, None, "is missing, and the manifest names it")
    if path.suffix != ".aof" or path.stat().st_size == 0:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _walk(path, data)


class _Named(NamedTuple):
    """A line of the manifest. `kind`: b(ase), i(ncrement), h(istory): given up, to be deleted."""

    path: Path
    seq: int
    kind: str

    @property
    def is_base(self) -> bool:
        return ".base." in self.path.name


def _find_unnamed(directory: Path) -> Damage | None:
    """What the manifest says of the files has to be what a rewrite, or a death on its way, can have left."""
    folder = directory / FOLDER
    path, found = folder / MANIFEST, sorted(folder.glob("appendonly.aof.*.*.*"))
    if not any(each.stat().st_size > (EMPTY_RDB_BYTES if each.suffix == ".rdb" else 0) for each in found):
        return None  # it died at its first start
    try:
        named = _named(folder)
    except FileNotFoundError:
        return Damage(path, 0, None, f"is missing, and there are {', '.join(each.name for each in found)}")
    except ValueError as line:
        return Damage(path, 0, None, f"{str(line)[:80]} names no file")
    reason = _contradiction(named, found)
    return Damage(path, 0, None, reason) if reason else None


def _contradiction(named: list[_Named], found: list[Path]) -> str:
    """Why no server can have written this. One rewrites by naming a new base and giving up the former together with all that was appended to
    it, and names what it appends to before it appends."""
    bases = [each for each in named if each.kind == "b"]
    newer = [each for each in named if each.kind == "i"]
    gone = [each for each in named if each.kind == "h"]
    if len(bases) != 1 or not bases[0].is_base or any(each.is_base for each in newer):
        return "does not name one base"
    if not newer:
        return "names no file that is appended to"
    base, first, last = bases[0], min(each.seq for each in newer), max(each.seq for each in newer)
    if any(each.seq >= (base.seq if each.is_base else first) for each in gone):
        return "gives up what is newer than what it keeps"
    if gone and not any(each.is_base for each in gone):
        return "gives up what was appended to the base that it keeps"
    if base.seq > 1 and base.path.is_file() and base.path.stat().st_size == 0:
        return f"names {base.path.name}, which is empty"
    beyond = [each for each in found if ".incr." in each.name and each.stat().st_size and _number(each) > last]
    return f"does not name {beyond[0].name}, and there is something in it" if beyond else ""


def _number(path: Path) -> int:
    number = path.name.split(".")[2]
    return int(number) if number.isdecimal() else 0


def _named(folder: Path) -> list[_Named]:
    """Raises FileNotFoundError, and ValueError with a line that is none."""
    named = []
    for line in (folder / MANIFEST).read_text(errors="replace").splitlines(keepends=True):
        match = _NAMED.fullmatch(line)
        if match is not None and match[2] == match[3]:
            named.append(_Named(folder / match[1], int(match[3]), match[4]))
        elif not line.startswith("#"):
            raise ValueError(repr(line))
    return named


def parts(directory: Path) -> list[Path]:
    """The files that hold the journal, in the order in which the server reads them, the last one being what it appends to. Servers before 7.0
    have a single one; none: there was no server here yet, or the manifest is spoilt."""
    try:
        named = _named(directory / FOLDER)
    except FileNotFoundError:
        single = directory / SINGLE
        return [single] if single.is_file() else []
    except ValueError:
        return []
    return [each.path for each in sorted(named, key=lambda each: (not each.is_base, each.seq)) if each.kind != "h"]


def behind(damage: Damage, directory: Path) -> list[Path]:
    """Files whose commands come after it."""
    files = parts(directory)
    return files[files.index(damage.path) + 1 :] if damage.path in files else []


def _walk(path: Path, data: mmap.mmap) -> Damage | None:
    at = whole = 0
    inside = False
    while at < len(data):
        note = _NOTE.match(data, at)
        if note is not None:
            at = note.end()
            continue
        after, verb, reason = _command(data, at)
        if reason:
            return Damage(path, at, whole, reason)
        inside = verb == b"MULTI" or (inside and verb != b"EXEC")
        at = after
        whole = whole if inside else at
    return Damage(path, len(data), whole, "ends within a transaction") if whole < len(data) else None


def _command(data: mmap.mmap, at: int) -> tuple[int, bytes, str]:
    """(byte after it, its first word, what is wrong with it or "")."""
    count = _COUNT.match(data, at)
    if count is None or int(count[1]) == 0:
        return at, b"", f"begins with {data[at : at + 12]!r}, which is no command"
    at, verb = count.end(), b""
    for number in range(int(count[1])):
        length = _LENGTH.match(data, at)
        if length is None:
            return at, b"", f"has {data[at : at + 12]!r} where the length of a word is due"
        begin, end = length.end(), length.end() + int(length[1])
        if data[end : end + 2] != b"\r\n":
            return at, b"", f"has a word of {length[1].decode()} bytes that does not end there"
        if number == 0:
            verb = data[begin:end].upper()
        at = end + 2
    return at, verb, "" if verb in COMMANDS else f"{verb[:24]!r} is no command of the journal's"
