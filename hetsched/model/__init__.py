"""The nouns: tasks, nodes, queues, submissions, and how they are read from and written to JSON.

Everything a room needs is named here; the files below are: `words` (closed sets), `task`, `node`, `submission` (frozen
Structs), and the border where JSON becomes one of them.
"""

from hetsched.model.node import DeviceSpec, NodeSpec, QueueSpec, Taint
from hetsched.model.submission import Rejection, Submission
from hetsched.model.task import (
    Dependency,
    DeviceAsk,
    GangRef,
    Resources,
    Task,
    Toleration,
    Topology,
    Usage,
)
from hetsched.model.words import DEVICE_ALIASES, HEALTH, TERMINAL, Guarantee, Qos, State

__all__ = [
    "DEVICE_ALIASES",
    "HEALTH",
    "TERMINAL",
    "Dependency",
    "DeviceAsk",
    "DeviceSpec",
    "GangRef",
    "Guarantee",
    "NodeSpec",
    "Qos",
    "QueueSpec",
    "Rejection",
    "Resources",
    "State",
    "Submission",
    "Taint",
    "Task",
    "Toleration",
    "Topology",
    "Usage",
]
