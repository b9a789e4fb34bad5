"""A graph of operators as everybody inside sees it: checked, normalised, frozen. Made only by `read_graph.parse_graph`.

Work is in seconds on a device of speed 1; what speed 1 is, is the submitter's choice (`speeds` says how others compare to it).
"""

from __future__ import annotations

import msgspec

from hetsched.model.task import Task


class Edge(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The operator needs the end of `parent` (its place in the graph's list) and `data_bytes` of what it made."""

    parent: int
    data_bytes: int = 0


class Operator(msgspec.Struct, frozen=True, array_like=True):
    """`cost`: work of the whole, or of one sample where `is_divisible`: then it may be cut anywhere in `begin`..`end`, in pieces of at
    least `chunk` samples. `speeds`: what the submitter knows, by device model ("cpu" = without devices). `tasks`: the bodies that it may
    run as, one a kind of device, without id."""

    id: str
    cost: float
    tasks: tuple[Task, ...]
    after: tuple[Edge, ...] = ()
    speeds: dict[str, float] = {}
    is_divisible: bool = False
    begin: int = 0
    end: int = 1
    chunk: int = 1

    @property
    def samples(self) -> int:
        """How many; 1 where it is not divisible."""
        return self.end - self.begin

    @property
    def work(self) -> float:
        """Of the whole, in seconds at speed 1."""
        return self.cost * self.samples


class Graph(msgspec.Struct, frozen=True, array_like=True):
    """`operators` in the order given; edges name places in that list. `order`: the places in a topological order."""

    id: str | None
    name: str | None
    operators: tuple[Operator, ...]
    order: tuple[int, ...]
