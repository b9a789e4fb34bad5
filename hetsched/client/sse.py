"""Server-sent events, read line by line: pure text in, events out; joining again after a cut is `streams.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from hetsched.errors import Gone


def parse(lines: Iterable[bytes]) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """(id, event) for every block; (None, None) for a comment, which the daemon sends to keep the line alive.
    Raises Gone where the daemon says that this reader has fallen behind what it keeps."""
    number: str | None = None
    kind = ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith(":"):
            yield None, None
        elif line.startswith("id:"):
            number = line[3:].strip()
        elif line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            event = _decode("\n".join(data))
            if kind == "gone":
                raise Gone(str((event or {}).get("detail", "events are no longer kept")))
            data, kind = [], ""
            if event is not None:
                yield number, event


def _decode(text: str) -> dict[str, Any] | None:
    try:
        event = json.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
