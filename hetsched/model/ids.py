"""Many ids in columns: those of an array, and most that programs make up, differ in the number at their end only."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import msgspec

NO_NUMBER = 0xFFFFFFFF
MOST_HEADS = 0xFFFF
_DIGITS, _MOST_DIGITS = "0123456789", 9


class Ids(msgspec.Struct, frozen=True, array_like=True):
    """Ids in columns, at least one. Those of an array differ in the number at their end only: `heads`, parted by newlines, are what stands
    before it, `which` has an uint16 for each that names its head (b"": there is one head), `numbers` an uint32 for each (NO_NUMBER: the head
    is the whole id). A number has at most nine digits and no zero in front. Little-endian."""

    heads: bytes
    which: bytes
    numbers: bytes

    @classmethod
    def of(cls, ids: Sequence[str]) -> Ids:
        """These, in order. ValueError if they have more than MOST_HEADS heads."""
        heads: dict[str, int] = {}
        which, numbers = array("H"), array("I")
        for ident in ids:
            head, number = _parted(ident)
            at = heads.setdefault(head, len(heads))
            if at >= MOST_HEADS:
                raise ValueError(f"over {MOST_HEADS} ids that are no numbers of one head")
            which.append(at)
            numbers.append(number)
        return cls("\n".join(heads).encode(), which.tobytes() if len(heads) > 1 else b"", numbers.tobytes())

    def __len__(self) -> int:
        return len(self.numbers) // 4

    def each(self) -> Iterator[str]:
        """One by one, in order. ValueError, IndexError where the columns do not belong together."""
        heads = self.heads.decode().split("\n")
        numbers = memoryview(self.numbers).cast("I")
        which = memoryview(self.which).cast("H") if self.which else bytes(len(numbers))
        for head, number in zip(which, numbers, strict=True):
            yield heads[head] if number == NO_NUMBER else f"{heads[head]}{number}"


def _parted(ident: str) -> tuple[str, int]:
    digits = ident[len(ident.rstrip(_DIGITS)) :][-_MOST_DIGITS:]
    digits = digits.lstrip("0") or digits[-1:]
    return (ident[: len(ident) - len(digits)], int(digits)) if digits else (ident, NO_NUMBER)
