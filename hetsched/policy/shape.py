"""What a policy may know of a task: its shape in words. Equal shapes are ranked equally."""

from __future__ import annotations

import msgspec

from hetsched.model import DeviceAsk


class ShapeWords(msgspec.Struct, frozen=True, kw_only=True):
    """`task_type`: the kind, or what the fields gave away (classify). `asks`: one a device kind. `size`: class of learned profiles.
    `pattern`: matrix-heavy, control-heavy, tensor-op or None. `data`: volumes that it reads."""

    task_type: str
    cpu_milli: int
    memory_bytes: int
    asks: tuple[DeviceAsk, ...] = ()
    pattern: str | None = None
    data: tuple[str, ...] = ()
    size: str = ""
