"""What front ends (`hetsched.front`) did, as the deciding process counts it."""

from __future__ import annotations

import msgspec


class FrontTotals(msgspec.Struct):
    """Of all since the start. `crew`: how many there are now; `replaced`: that died; `connections`: open in them now; `answered`: requests and
    `handed_over`: connections, both as of half a second ago; `cpu_s`: of their processors."""

    crew: int = 0
    replaced: int = 0
    connections: int = 0
    answered: int = 0
    handed_over: int = 0
    cpu_s: float = 0.0
