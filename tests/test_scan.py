"""The scanner finds what a JSON reader would find, and what it recognises is what was read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched._scan import Recall


class Book:
    """Reads as JSON does, remembers at the second sight; `read` counts."""

    def __init__(self) -> None:
        self.reads = 0
        self.recall = Recall(64, self._read)

    def _read(self, before: bytes, ident: bytes, after: bytes, again: bool) -> tuple[Any, bool]:
        self.reads += 1
        try:
            value = json.loads(before + ident + after)
        except ValueError:
            return None, False
        assert value.get("id", "").encode() == ident if ident else True
        return {name: entry for name, entry in value.items() if name != "id" or not ident}, again

    def one(self, body: bytes) -> Any:
        """The object as it was read, id and all."""
        found = self.recall.one(body)
        return None if found is None else {**found[0], **({"id": found[1].decode()} if found[1] else {})}


words = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.just("id"), inner, max_size=3),
    max_leaves=8,
)
idents = st.text("abcXYZ019._:/-", min_size=1, max_size=9) | words
objects = st.dictionaries(words | st.just("name"), values, max_size=4).flatmap(
    lambda plain: st.one_of(st.just(plain), idents.map(lambda ident: {**plain, "id": ident}))
)


@given(objects, st.sampled_from([None, 1]), st.booleans())
def test_what_is_recognised_is_what_was_written(value: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    book = Book()
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    for _ in range(4):
        assert book.one(body) == value
    assert book.reads <= 2


@given(objects, st.text("abc019._:/-", min_size=1, max_size=9))
def test_another_id_is_recognised_as_another_id(value: dict[str, Any], ident: str) -> None:
    book = Book()
    for name in ("first", "second", ident):
        named = {**value, "id": name}
        assert book.one(json.dumps(named).encode()) == named
    assert book.reads == 2


@given(st.lists(objects, min_size=1, max_size=9), st.booleans())
def test_lists_and_lines_are_what_their_members_are(members: list[dict[str, Any]], lines: bool) -> None:
    book = Book()
    whole = [json.dumps(member).encode() for member in members]
    body = b"\n\r\n".join(whole) + b"\n" if lines else b" [ " + b" ,\n".join(whole) + b"]\n"
    for _ in range(3):
        found = book.recall.many(body, 9, lines)
        assert found is not None
        kinds, counts, which, ids = found
        assert sum(counts) == len(ids) == len(which) // 2
        again = [kinds[which[2 * at]] | ({"id": ident.decode()} if ident else {}) for at, ident in enumerate(ids)]
        assert again == members
    assert book.recall.many(body, len(members) - 1, lines) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[]",
        b"[",
        b"[{}",
        b"[{},]",
        b"[{}{}]",
        b"[{}]x",
        b"[1]",
        b'["a"]',
        b"[[{}]]",
        b"{}",
        b'[{"a]',
        b"[{},1]",
    ],
)
def test_a_list_that_is_none_is_not_for_this_path(body: bytes) -> None:
    assert Book().recall.many(body, 100) is None


@pytest.mark.parametrize("body", [b"{}{}", b"{}\n\n x", b"{\n}", b'{"a":\n1}', b"[{}]", b"", b"\n"])
def test_lines_that_are_none_are_not_for_this_path(body: bytes) -> None:
    assert Book().recall.many(body, 100, True) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_survived(data: bytes) -> None:
    book = Book()
    for body in (data, b"[" + data, b'{"id":"' + data, b'{"id":"a"' + data + b"}"):
        book.recall.one(body)
        book.recall.many(body, 10)
        book.recall.many(body, 10, True)


tight = [
    b'{"id":"%b","n":1}',
    b'{"n":1,"id":"%b"}',
    b'{"id" : "%b"\n}',
    b'{"n":1}',
    b'{"id":"%b","n":1} ',
    b'{"id":"%b","n":{}}',
]
names = st.sampled_from([b"a", b"b2", b"x" * 128, b"y" * 129, b"", b"\xc3\xa4", b"a b", b'a\\"b', b"z/9.:_-"])


@given(st.lists(st.tuples(st.sampled_from(tight), names), min_size=1, max_size=12), st.booleans(), st.integers(0, 6))
def test_what_is_expected_changes_nothing(said: list[tuple[bytes, bytes]], lines: bool, cut: int) -> None:
    """One memory has seen such tasks in this order, in another and alone; the other has seen nothing. Both find the same, or nothing."""
    whole = [form % name if b"%b" in form else form for form, name in said]
    body = b"\n".join(whole) if lines else b"[" + b",".join(whole) + b"]"
    body = body[: len(body) - cut]
    seen = Book()
    for _ in range(3):
        for one in (*whole, *(form % b"q" if b"%b" in form else form for form in tight)):
            seen.recall.one(one)
        for before in (whole, whole[::-1]):
            seen.recall.many(b"[" + b",".join(before) + b"]", 100)
    assert told(seen.recall.many(body, 100, lines)) == told(Book().recall.many(body, 100, lines))
    for one in (*whole, *(one[:-1] for one in whole)):
        assert seen.one(one) == Book().one(one)


def told(found: tuple[list[Any], list[int], bytes, list[bytes]] | None) -> Any:
    """Task by task."""
    if found is None:
        return None
    kinds, counts, which, ids = found
    places = memoryview(which).cast("H").tolist()
    assert counts == [places.count(kind) for kind in range(len(kinds))]
    return [(kinds[place], ident) for place, ident in zip(places, ids, strict=True)]
