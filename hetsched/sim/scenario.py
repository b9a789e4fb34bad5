"""What a simulation is made of, whatever file it came from: a cluster, and what happens to it in order."""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched.config import Config
from hetsched.model import NodeSpec, QueueSpec, Submission
from hetsched.sim.speeds import Speeds

VERBS = (
    "submit",
    "graph",
    "cancel",
    "cancel_graph",
    "fail",
    "node_down",
    "node_up",
    "node_silent",
    "device",
    "drain",
    "cordon",
    "uncordon",
)


class Happening(msgspec.Struct, frozen=True):
    """Something that the file makes happen. `what` depends on `verb`: a Submission; for the others see `read_scenario`.
    `runs_s`: how long each submitted task truly runs, where the scheduler is not told."""

    at_ns: int
    verb: str
    what: Any
    runs_s: float | None = None


class Drop(msgspec.Struct, frozen=True):
    """`what` of a `submit` is wrapped in this where a task that does not fit at once is dropped (the FGD protocol)."""

    submission: Submission


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`happenings` are in order of time, those of one instant in the order of the file.

    `start_ns`: the moment that is t = 0, since 1970. `until_ns`: when the simulation ends; None = when nothing is left to happen.
    `ids`: every task id in the file, in order of submission (None: it gets one).
    """

    config: Config
    seed: int
    nodes: tuple[NodeSpec, ...]
    queues: tuple[QueueSpec, ...] = ()
    happenings: tuple[Happening, ...] = ()
    speeds: Speeds = Speeds()
    start_ns: int = 0
    until_ns: int | None = None
