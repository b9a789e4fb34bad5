"""Reading fields out of untrusted bodies: every fault is noted with its JSON pointer and its rule, none is raised.

A reader is a function `(faults, pointer, value) -> checked value`; after a fault it returns something harmless of the right type,
so that the rest of the body is still looked at and all faults come back at once. Sizes are bounded here: no text, list or
map of a task is unlimited.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from hetsched.errors import Problem
from hetsched.quantity import QuantityError, type_name

T = TypeVar("T")
Reader = Callable[["Faults", str, object], T]

MOST_FAULTS = 50
"""More are counted, not listed: nobody reads them, and a hostile body must not grow its answer."""

LONGEST_SECONDS = 3_200_000_000.0
"""About a hundred years; in nanoseconds still far from the end of an int64."""


class Faults:
    """The faults of one body, in the order of reading."""

    def __init__(self) -> None:
        self.errors: list[dict[str, str]] = []
        self.uncounted = 0

    def add(self, pointer: str, detail: str) -> None:
        """Note one. `pointer` is a JSON pointer from the body (RFC 6901)."""
        if len(self.errors) < MOST_FAULTS:
            self.errors.append({"pointer": pointer, "detail": detail})
        else:
            self.uncounted += 1

    def wrong_type(self, pointer: str, expected: str, value: object) -> None:
        """Note that `value` is no `expected`."""
        self.add(pointer, f"must be {expected}, not {type_name(value)}")

    def __bool__(self) -> bool:
        return bool(self.errors)

    def problem(self) -> Problem:
        """All of them as one Problem."""
        first = self.errors[0]
        detail = f"{first['pointer'] or 'the body'}: {first['detail']}"
        others = len(self.errors) - 1 + self.uncounted
        if others:
            detail += f" (and {others} more)"
        return Problem(detail, errors=self.errors)


def below(pointer: str, key: object) -> str:
    """The pointer of a member, escaped and cut to a readable length."""
    text = key if isinstance(key, str) else repr(key)
    return f"{pointer}/{printable(text, 128).replace('~', '~0').replace('/', '~1')}"


def printable(text: str, longest: int = 64) -> str:
    """The text without anything that harms a terminal, a log or an encoder."""
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    return _nearest(name, tuple(known)) if len(name) <= 64 else None


@lru_cache(maxsize=1024)
def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    """Remembered, because it is slow and the same slip comes with every task of a list."""
    found = difflib.get_close_matches(name, known, 1, 0.6)
    return found[0] if found else None


def unknown(name: object, known: Iterable[str], what: str = "field") -> str:
    """The sentence about a name that nobody knows."""
    text = printable(name if isinstance(name, str) else repr(name))
    guess = nearest(text, known)
    return f'unknown {what} "{text}"' + (f'; did you mean "{guess}"?' if guess else "")


# ---------------------------------------------------------------------- scalars


def text(longest: int, pattern: re.Pattern[str] | None = None, rule: str = "", empty: bool = False) -> Reader[str]:
    """Reader of a string of 1 (or 0, with `empty`) to `longest` characters, no NUL; `rule` says in words what `pattern` wants."""

    def read(faults: Faults, pointer: str, value: object) -> str:
        if not isinstance(value, str):
            faults.wrong_type(pointer, "a string", value)
        elif not value and not empty:
            faults.add(pointer, "must not be empty")
        elif len(value) > longest:
            faults.add(pointer, f"must be at most {longest} characters, is {len(value)}")
        elif "\0" in value:
            faults.add(pointer, "must not hold a NUL character")
        elif not value.isascii() and _lone_surrogate(value):
            faults.add(pointer, "is not valid Unicode (lone surrogate)")
        elif pattern is not None and not pattern.fullmatch(value):
            faults.add(pointer, f'must be {rule}, not "{printable(value)}"')
        else:
            return value
        return ""

    return read


def _lone_surrogate(value: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in value)


def word(known: Iterable[str], kind: Callable[[str], T]) -> Reader[T]:
    """Reader of one word of a closed set."""
    names = tuple(known)

    def read(faults: Faults, pointer: str, value: object) -> T:
        if not isinstance(value, str):
            faults.wrong_type(pointer, f"one of {', '.join(names)}", value)
        elif value not in names:
            guess = nearest(value, names)
            hint = f'; did you mean "{guess}"?' if guess else ""
            faults.add(pointer, f'must be one of {", ".join(names)}, not "{printable(value)}"{hint}')
        else:
            return kind(value)
        return kind(names[0])

    return read


def flag(faults: Faults, pointer: str, value: object) -> bool:
    """Reader of true or false."""
    if not isinstance(value, bool):
        faults.wrong_type(pointer, "true or false", value)
        return False
    return value


def integer(low: int, high: int) -> Reader[int]:
    """Reader of a whole number from `low` to `high`, both included."""

    def read(faults: Faults, pointer: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            fraction = " without a point" if isinstance(value, float) else ""
            faults.wrong_type(pointer, "a whole number" + fraction, value)
        elif not low <= value <= high:
            faults.add(pointer, f"must be from {low} to {high}")
        else:
            return value
        return low

    return read


def seconds(above_zero: bool = False) -> Reader[float]:
    """Reader of a duration in seconds: finite, not negative, at most a hundred years."""

    def read(faults: Faults, pointer: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            faults.wrong_type(pointer, "a number of seconds", value)
        elif isinstance(value, float) and not math.isfinite(value):
            faults.add(pointer, "must be finite, not NaN or infinity")
        elif value < 0:
            faults.add(pointer, "must not be negative")
        elif value == 0 and above_zero:
            faults.add(pointer, "must be above 0")
        elif value > LONGEST_SECONDS:
            faults.add(pointer, f"must be at most {LONGEST_SECONDS:.0f} seconds")
        else:
            return float(value)
        return 1.0

    return read


def number(low: float, high: float) -> Reader[float]:
    """Reader of a finite number from `low` to `high`."""

    def read(faults: Faults, pointer: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            faults.wrong_type(pointer, "a number", value)
        elif not low <= value <= high:  # also false for NaN
            faults.add(pointer, f"must be from {low:g} to {high:g}")
        else:
            return float(value)
        return low

    return read


def quantity(parse: Callable[[object], int]) -> Reader[int]:
    """Reader of an amount by one of the functions of `hetsched.quantity`."""

    def read(faults: Faults, pointer: str, value: object) -> int:
        try:
            return parse(value)
        except QuantityError as error:
            faults.add(pointer, str(error))
            return 0

    return read


# ---------------------------------------------------------------------- lists, maps, objects


def items(read: Reader[T], most: int, least: int = 0) -> Reader[tuple[T, ...]]:
    """Reader of a list of `least` to `most` things."""

    def read_list(faults: Faults, pointer: str, value: object) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            faults.wrong_type(pointer, "a list", value)
            return ()
        if not least <= len(value) <= most:
            faults.add(pointer, f"must have {least} to {most} entries, has {len(value)}")
            return ()
        return tuple(read(faults, f"{pointer}/{index}", entry) for index, entry in enumerate(value))

    return read_list


def mapping(read_key: Reader[str], read_value: Reader[T], most: int) -> Reader[dict[str, T]]:
    """Reader of a map of at most `most` entries."""

    def read_map(faults: Faults, pointer: str, value: object) -> dict[str, T]:
        if not isinstance(value, dict):
            faults.wrong_type(pointer, "an object", value)
            return {}
        if len(value) > most:
            faults.add(pointer, f"must have at most {most} entries, has {len(value)}")
            return {}
        out: dict[str, T] = {}
        for key, entry in value.items():
            at = below(pointer, key)
            out[read_key(faults, at, key)] = read_value(faults, at, entry)
        return out

    return read_map


def fields(faults: Faults, pointer: str, raw: object, table: Mapping[str, Reader[Any]]) -> dict[str, Any]:
    """Read an object whose members are the keys of `table`; a member that is absent is absent from the result."""
    if not isinstance(raw, dict):
        faults.wrong_type(pointer, "an object", raw)
        return {}
    out: dict[str, Any] = {}
    for key, value in raw.items():
        read = table.get(key) if isinstance(key, str) else None
        at = below(pointer, key)
        if read is None:  # looking for the nearest name is slow: not for faults that nobody will see
            faults.add(at, unknown(key, table) if len(faults.errors) < MOST_FAULTS else "unknown field")
        else:
            out[key] = read(faults, at, value)
    return out
