"""msgpack bodies are read as strictly as JSON ones, however they are written."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from hetsched.api.packed import unpack
from hetsched.errors import Problem


def pack(value: Any, rng: random.Random) -> bytes:
    """msgpack of `value` in forms chosen by chance; a list of pairs in a tuple is a map, so that keys may repeat."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return rng.choice([b"\xd3" + struct.pack(">q", value), b"\xd2" + struct.pack(">i", value)])
    if isinstance(value, float):
        return rng.choice([b"\xca" + struct.pack(">f", value), b"\xcb" + struct.pack(">d", value)])
    if isinstance(value, str):
        text = value.encode()
        forms = [b"\xda" + len(text).to_bytes(2, "big"), b"\xdb" + len(text).to_bytes(4, "big")]
        return rng.choice([*forms, bytes([0xA0 | len(text)])] if len(text) < 32 else forms) + text
    if isinstance(value, list):
        return rng.choice(
            [b"\xdc" + struct.pack(">H", len(value)), b"\xdd" + struct.pack(">I", len(value))]
        ) + b"".join(pack(one, rng) for one in value)
    pairs = list(value.items()) if isinstance(value, dict) else value
    head = rng.choice([bytes([0x80 | len(pairs)]), b"\xde" + struct.pack(">H", len(pairs))])
    return head + b"".join(pack(one, rng) for pair in pairs for one in pair)


@pytest.mark.parametrize("seed", range(20))
def test_every_form_of_writing_is_read_alike(seed: int) -> None:
    rng = random.Random(seed)
    value = {"a": [1, -5, 0.5, None, True, {"b": "x" * 40, "c": {}}], "d": {"a": 1, "b": [[], ["a", "a"]]}, "ü": ""}
    assert unpack(pack(value, rng)) == value


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ((("gpu", 1), ("gpu", 2)), "/gpu"),
        ({"resources": (("gpu", 1), ("cpu", 1), ("gpu", 2))}, "/resources/gpu"),
        ([{"a": 1}, {"b": [0, (("x/y", {}), ("x/y", {}))]}], "/1/b/1/x~1y"),
        ((("a", (("b", 1), ("b", 1))), ("a", 5)), "/a/b"),
    ],
)
def test_a_key_that_is_said_twice_is_refused_with_its_place(value: Any, pointer: str, seed: int) -> None:
    with pytest.raises(Problem) as refused:
        unpack(pack(value, random.Random(seed)))
    assert refused.value.errors[0]["pointer"] == pointer
    assert "twice" in refused.value.errors[0]["detail"]


def test_what_is_lost_is_no_way_around_the_depth() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(Problem, match="nested deeper"):
        unpack(pack((("a", deep), ("a", 1)), random.Random(1)))
