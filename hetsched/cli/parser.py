"""argparse with the manners that we want: no guessed abbreviations, and an unknown word is answered with the nearest known.

argparse and not cyclopts: `hetsched version` takes 40 ms with the one and 120 with the other, and scripts call us in loops.
"""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from hetsched.client import Client


class Usage(Exception):
    """A command line that cannot be meant; exit code 2. `usage`: the line that shows how it is written."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """Raises Usage instead of leaving the program."""

    def __init__(self, name: str, description: str, usage: str | None = None) -> None:
        super().__init__(
            prog=f"hetsched {name}", description=description, usage=usage, allow_abbrev=False, add_help=False
        )
        self.add_argument("-h", "--help", action="help", help="show this and leave")

    def error(self, message: str) -> NoReturn:
        raise Usage(self._with_nearest(message), self.format_usage().strip())

    def _with_nearest(self, message: str) -> str:
        marker = "unrecognized arguments: "
        if not message.startswith(marker):
            return message
        word = message.removeprefix(marker).split()[0]
        if not word.startswith("-"):
            hint = "; a command is written after --" if "COMMAND" in self.format_usage() else ""
            return f"{word!r} is one word too many{hint}"
        return f"no option {word.split('=')[0]}" + nearest(word.split("=")[0], self._option_string_actions)


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint "did you mean …?", or nothing where nothing is near."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def add_connection(parser: argparse.ArgumentParser, *names: str) -> None:
    """Where the daemon is; see hetsched.client.address for what is tried without them. `names`: other spellings of
    --data-dir; `submit` has none, because `--data` is a field of a task there."""
    group = parser.add_argument_group("the daemon")
    group.add_argument(
        "--url", metavar="URL", help="its address, or several with commas (HETSCHED_URL; else the data directory)"
    )
    group.add_argument("--token", metavar="TOKEN", help="the token (HETSCHED_TOKEN; else the data directory)")
    about = "data directory of a daemon on this machine (HETSCHED_DATA)"
    group.add_argument("--data-dir", *names, dest="data_dir", metavar="DIR", help=about)


def add_json(parser: argparse.ArgumentParser) -> None:
    """For programs."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """What every command has that asks the daemon for something."""
    add_json(parser)
    add_connection(parser, "--data")


def client_of(options: argparse.Namespace, **limits: float) -> Client:
    """The daemon that the command line names. Loaded here, so that `hetsched version` does not pay for HTTP."""
    from hetsched.client import Client

    return Client.local(options.url, options.token, options.data_dir, **limits)


def whole(text: str) -> int:
    """A whole number, at most 2^53 as everywhere."""
    value = int(text)
    if abs(value) > 2**53:
        raise ValueError(text)
    return value


def number(text: str) -> int | float | str:
    """As a JSON number where it is one; "16Gi", and what is wrong, as it was written: the daemon says how it is wrong."""
    if not text.isascii() or "_" in text or text.strip() != text:
        return text
    for read in (int, float):
        try:
            value = read(text)
        except ValueError:
            continue
        return value if abs(value) < math.inf else text
    return text


def seconds(text: str) -> float:
    """Seconds in "90", "1.5", "10m", "2h", "1d"."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}.get(text[-1:], None)
    value = float(text if unit is None else text[:-1]) * (unit or 1.0)
    if not 0 <= value < 1e12:
        raise ValueError(text)
    return value
