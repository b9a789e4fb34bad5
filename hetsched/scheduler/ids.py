"""Generated task ids: they sort by time, then by order of acceptance, and look alike (16 characters of base 32)."""

from __future__ import annotations

import zlib

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: nothing that is read as something else


def new_id(now_ns: int, count: int, cell: str = "") -> str:
    """45 bits of milliseconds since 1970 and 35 bits of a counter that never repeats in one journal; of a cell eleven of these are the cell's,
    so that two cells hardly ever make the same one (and 16 million of a millisecond are enough for each)."""
    if cell:
        count = (zlib.crc32(cell.encode()) & 0x7FF) << 24 | (count & 0xFFFFFF)
    number = ((now_ns // 1_000_000) & ((1 << 45) - 1)) << 35 | (count & ((1 << 35) - 1))
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(75, -1, -5))
