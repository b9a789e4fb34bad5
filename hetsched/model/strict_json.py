"""JSON as RFC 8259 says and not a word more: from bytes to plain values, or a Problem that tells what is wrong and where.

Refused beyond bad syntax: bad UTF-8, keys said twice, NaN and infinity, numbers too long, lone surrogates, nesting over `DEEPEST`.

Why the standard reader and not msgspec: msgspec is three times as fast but keeps the last of two equal keys in silence, and a
task with `gpu` said twice must not run with whichever came last. Measured at 4 µs per 200-byte task, which is small beside HTTP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from hetsched.errors import Problem
from hetsched.model.reader import below, printable

DEEPEST = 32
LONGEST_NUMBER = 400
"""Digits; more cannot be meant."""


def parse_json(body: bytes) -> object:
    """The value in `body`. Raises Problem (400), pointer and all."""
    if not body.strip():
        raise _malformed("is empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"is not UTF-8 at byte {error.start}") from None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _malformed(f"is nested deeper than {DEEPEST}") from None
    except _NumberError as error:
        raise _malformed(str(error), _place_of_number(text)) from None
    _check_whole(value, text)
    return value


def _malformed(detail: str, pointer: str = "") -> Problem:
    return Problem.at(pointer, detail, code="malformed")


class _NumberError(ValueError):
    """A number that JSON or this program does not have."""


class _NoNumber:
    """Stands where such a number is, while its place is looked for."""


def _place_of_number(text: str) -> str:
    """Pointer of the first number that is none. Reads once more, so that what is in order is never searched."""

    def tolerant(read: Callable[[str], object]) -> Callable[[str], object]:
        def stand_in(digits: str) -> object:
            try:
                return read(digits)
            except _NumberError:
                return _NoNumber()

        return stand_in

    decoder = json.JSONDecoder(
        parse_constant=tolerant(_constant), parse_float=tolerant(_float), parse_int=tolerant(_int)
    )
    try:
        value = decoder.decode(text)
    except (json.JSONDecodeError, RecursionError):
        return ""  # broken further on as well; the number is named in words
    return printable(_find(value, lambda entry: isinstance(entry, _NoNumber)) or "", 256)


class _Doubled(dict[str, Any]):
    """An object in which `key` was said twice; found again after reading, when its place is known."""

    key = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    doubled = _Doubled(plain)
    seen: set[str] = set()
    doubled.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return doubled


def _constant(name: str) -> float:
    raise _NumberError(f"holds {name}, which is no JSON number")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _NumberError(f"holds the number {printable(digits, 32)}, which is out of range")
    return value


def _int(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise _NumberError(f"holds a number of {len(digits)} digits, which is out of range")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int)


def _check_whole(value: object, text: str) -> None:
    """What the reader lets pass. Level by level, so that depth is counted without recursion; places are looked for only after a fault."""
    if "\\u" in text and (pointer := _find(value, _holds_surrogate)) is not None:
        raise _malformed("holds a lone surrogate, which is no Unicode text", printable(pointer, 256))
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        if not level:
            return
        if any(type(container) is _Doubled for container in level):
            _refuse_doubled(value)
        level = [
            entry
            for container in level
            for entry in (container.values() if isinstance(container, dict) else container)
            if isinstance(entry, dict | list)
        ]
    if level:
        raise _malformed(f"is nested deeper than {DEEPEST}")


def _refuse_doubled(value: object) -> None:
    found: list[_Doubled] = []

    def is_doubled(entry: object) -> bool:
        if isinstance(entry, _Doubled):
            found.append(entry)
        return bool(found)

    pointer = _find(value, is_doubled) or ""
    key = found[0].key
    raise _malformed(f'says "{printable(key)}" twice', below(pointer, key))


def _holds_surrogate(entry: object) -> bool:
    strings = entry if isinstance(entry, dict) else (entry,)
    return any(isinstance(s, str) and any("\ud800" <= c <= "\udfff" for c in s) for s in strings)


def _find(value: Any, is_it: Callable[[object], bool]) -> str | None:
    """Pointer of the first thing (outermost first) that `is_it`, or None."""
    waiting: list[tuple[str, Any]] = [("", value)]
    for pointer, entry in waiting:
        if is_it(entry):
            return pointer
        if isinstance(entry, dict):
            waiting += [(below(pointer, key), member) for key, member in entry.items()]
        elif isinstance(entry, list):
            waiting += [(f"{pointer}/{index}", member) for index, member in enumerate(entry)]
    return None
