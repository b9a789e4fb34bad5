"""The scanner's typed face; `_scan.pyx` says what it is for and why it is safe."""

from collections.abc import Callable
from typing import Any

Read = Callable[[bytes, bytes, bytes, bool], tuple[Any, bool]]

class Recall:
    """`places`: how many skeletons are remembered (a power of two). `read(before, id, after, again)` is asked about a task that is not;
    `again`: one with this skeleton was read already. It returns (value, whether the skeleton is proven and worth remembering)."""

    def __init__(self, places: int, read: Read) -> None: ...
    def one(self, body: bytes, begin: int = 0, end: int = -1) -> tuple[Any, bytes] | None:
        """(value, id or b"") of a body that is one object; None where it is not for this path."""
    def many(
        self, body: bytes, most: int, lines: bool = False
    ) -> tuple[list[Any], list[int], bytes, list[bytes]] | None:
        """(values, counts, which, ids) of a JSON list, or of lines of JSON, of at most `most` objects: the different values, how many tasks have
        each, which of them each task has (an uint16 a task), and their ids (b"": none). None where anything of it is not for this path."""
