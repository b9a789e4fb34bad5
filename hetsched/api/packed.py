"""msgpack bodies, as strictly read as JSON ones: only what JSON can say, and no key twice.

msgspec keeps the last of two equal keys in silence, and a task with `gpu` said twice must not run with whichever came last. So where a
body is not exactly what we would have written ourselves, its keys are walked once more, as bytes.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from hetsched.errors import Problem
from hetsched.model.reader import below, printable

MAX_DEPTH = 32

_encode = msgspec.msgpack.Encoder().encode


def unpack(body: bytes) -> Any:
    """The value in `body`; a Problem says what is wrong and where."""
    try:
        value = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise Problem(f"the body is no msgpack: {error}", code="malformed") from None
    _check_plain(value)
    # Written in the shortest form and in its own order it would be the same bytes, had no key been lost: so most bodies are not walked.
    if _encode(value) != body:
        _Keys(body).check()
    return value


def _check_plain(value: Any) -> None:
    """What msgpack can say and JSON cannot, and nesting, are refused with the place."""
    rest: list[tuple[str, Any, int]] = [("", value, 1)]
    while rest:
        pointer, item, depth = rest.pop()
        if depth > MAX_DEPTH:
            raise Problem.at(pointer, f"nested deeper than {MAX_DEPTH}", code="malformed")
        if isinstance(item, dict):
            for key, inner in item.items():
                if not isinstance(key, str):
                    raise Problem.at(pointer, f"keys have to be text, {key!r:.40} is not", code="malformed")
                rest.append((f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", inner, depth + 1))
        elif isinstance(item, list):
            rest.extend((f"{pointer}/{index}", inner, depth + 1) for index, inner in enumerate(item))
        elif isinstance(item, float) and not math.isfinite(item):
            raise Problem.at(pointer, "NaN and infinity are no numbers here", code="malformed")
        elif item is not None and not isinstance(item, bool | int | float | str):
            raise Problem.at(pointer, f"{type(item).__name__} has no meaning here", code="malformed")


# First bytes of values of fixed size, and the bytes that follow them; of values that begin with a length, and the bytes of that.
_FOLLOWING = dict.fromkeys((*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3), 0)
_FOLLOWING |= dict(zip(range(0xCA, 0xD9), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17), strict=True))
_TEXT = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXTENSION = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_LENGTH = {**_TEXT, **_EXTENSION, 0xC4: 1, 0xC5: 2, 0xC6: 4}
_LIST = {0xDC: 2, 0xDD: 4}
_MAP = {0xDE: 2, 0xDF: 4}


class _Keys:
    """A walk over well-formed msgpack."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def check(self) -> None:
        """Problem (400) with the place of the first key that is said twice."""
        self._value("", 1)

    def _value(self, pointer: str, depth: int) -> None:
        """Past the value that begins here."""
        if depth > MAX_DEPTH + 1:  # in what was said first and is lost; the rest has been looked at
            raise Problem.at(pointer, f"nested deeper than {MAX_DEPTH}", code="malformed")
        first = self._body[self._at]
        self._at += 1
        if first in _FOLLOWING:
            self._at += _FOLLOWING[first]
        elif 0x80 <= first < 0x90 or first in _MAP:
            self._map(first & 15 if first < 0x90 else self._number(_MAP[first]), pointer, depth)
        elif 0x90 <= first < 0xA0 or first in _LIST:
            for index in range(first & 15 if first < 0xA0 else self._number(_LIST[first])):
                self._value(f"{pointer}/{index}", depth + 1)
        elif 0xA0 <= first < 0xC0:
            self._at += first & 31
        else:
            length = self._number(_LENGTH[first]) + (first in _EXTENSION)
            self._at += length

    def _map(self, entries: int, pointer: str, depth: int) -> None:
        seen = set()
        for _ in range(entries):
            key = self._key(pointer, depth)
            if key in seen:
                raise Problem.at(below(pointer, key), f'the body says "{printable(key)}" twice', code="malformed")
            seen.add(key)
            self._value(below(pointer, key), depth + 1)

    def _key(self, pointer: str, depth: int) -> str:
        """However its length is written."""
        first = self._body[self._at]
        if not (0xA0 <= first < 0xC0 or first in _TEXT):
            raise Problem.at(pointer, "keys have to be text", code="malformed")
        begin = self._at
        self._value(pointer, depth)
        return self._body[begin + 1 + _TEXT.get(first, 0) : self._at].decode()

    def _number(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._body[self._at - size : self._at], "big")
