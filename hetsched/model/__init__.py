"""The nouns: tasks, nodes, queues, submissions, and how they are read from and written to JSON.

Everything a room needs is named here; the files below are: `words` (closed sets), `task`, `node`, `submission` (frozen
Structs); `strict_json`, `reader` and `read_*` (the border where JSON becomes one of them); `render` (the way back).
"""

from hetsched.model.node import DeviceSpec, NodeSpec, QueueSpec, Taint
from hetsched.model.read_node import parse_node, parse_queue
from hetsched.model.read_submission import parse_submission
from hetsched.model.read_task import DEFAULTS, TaskDefaults, parse_task
from hetsched.model.render import resources_to_json, task_to_json
from hetsched.model.strict_json import parse_json
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
    "DEFAULTS",
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
    "TaskDefaults",
    "Toleration",
    "Topology",
    "Usage",
    "parse_json",
    "parse_node",
    "parse_queue",
    "parse_submission",
    "parse_task",
    "resources_to_json",
    "task_to_json",
]
