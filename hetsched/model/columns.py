"""Very many tasks in one body: what they have in common once, then their names and which of the templates each is (docs/http.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

MEDIA = "application/vnd.hetsched.columns"


def packed(
    templates: Sequence[Mapping[str, Any]], ids: Iterable[str] | int, which: Sequence[int] | None = None
) -> bytes:
    """A body. `ids`: names, or how many are to be made up; `which`: the template of each, by number (None: there is one)."""
    body: dict[str, Any] = {"templates": templates}
    if isinstance(ids, int):
        body["count"] = ids
    else:
        body["ids"] = "\n".join(ids).encode()
    if which is not None:
        body["which"] = struct.pack(f"<{len(which)}H", *which)
    return msgspec.msgpack.encode(body)
