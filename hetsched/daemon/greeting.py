"""What an agent may say of itself and of its attempts: the border behind which the scheduler believes it.

A hello is a message of another machine. Its form is checked by `wire`, its sense here, by the same readers that read nodes from
files: a node with half a device too many must be refused with a sentence and not stop the daemon.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hetsched import wire
from hetsched._core import check_columns
from hetsched.errors import Problem
from hetsched.model import HEALTH, DeviceSpec, NodeSpec, parse_node
from hetsched.quantity import LARGEST

DEVICE_ID = re.compile(r"[a-z][a-z0-9_-]*-[0-9]{1,6}")
ATTEMPT_STATES = ("prepared", "running", "ended")
LONGEST_WORD = 256
"""Of names that a machine has for itself."""
LONGEST_TEXT = 500
"""Of reasons, which go into the journal and into answers."""

_DEVICE_FIELDS = ("kind", "model", "numa", "nvlink", "pcie", "tflops", "tops", "bandwidth", "watts")


class ProtocolFault(ConnectionError):
    """The agent said what makes no sense; its link ends."""


def fault_of(hello: wire.Hello) -> str:
    """What is wrong with it in one sentence; empty = nothing."""
    try:
        parse_node(_as_in_a_file(hello.node))
        for attempt in hello.attempts:
            check_attempt(attempt.task, attempt.attempt)
            if attempt.state not in ATTEMPT_STATES:
                raise ProtocolFault(f"attempt state {attempt.state[:40]!r} is none of {', '.join(ATTEMPT_STATES)}")
        check_readings(hello.readings)
    except Problem as problem:
        faults = "; ".join(f"{error['pointer']} {error['detail']}" for error in problem.errors[:3])
        return f"its node makes no sense: {faults or problem.detail}"
    except ProtocolFault as fault:
        return str(fault)
    if len(hello.instance) > LONGEST_WORD:
        return f"the agent's instance has over {LONGEST_WORD} characters"
    return _fault_of_words(hello.node) or _fault_of_ids(hello.node)


def check_attempt(task: str, attempt: int) -> None:
    """Raise ProtocolFault unless it could be an attempt."""
    if not 1 <= len(task) <= 128 or not 0 < attempt < 2**31:
        raise ProtocolFault(f"attempt {attempt} of task {task[:40]!r} cannot be")


def check_readings(readings: tuple[wire.DeviceReading, ...]) -> None:
    """Raise ProtocolFault unless every health is a word that we know."""
    for reading in readings:
        if reading.health not in HEALTH:
            raise ProtocolFault(
                f"health {reading.health[:40]!r} of {reading.device[:40]!r} is none of {', '.join(HEALTH)}"
            )


def check_attempts(tasks: wire.Ids, attempts: bytes) -> None:
    """The same for columns. What names no task of ours counts for nothing anyway."""
    try:
        check_columns(tasks.heads, tasks.which, tasks.numbers, attempts)
    except ValueError as error:
        raise ProtocolFault(str(error)) from None
    if not tasks.heads.isascii():
        raise ProtocolFault("ids have characters that no id has")


def check_use(use: wire.AttemptUse) -> None:
    """Raise ProtocolFault unless it could have been measured."""
    check_attempt(use.task, use.attempt)
    if not all(-1 <= amount <= LARGEST for amount in (use.cpu_milli, use.memory_bytes)) or not (
        -1 <= use.utilization_milli <= 1000
    ):
        raise ProtocolFault(f"no attempt uses {use.cpu_milli}, {use.memory_bytes}, {use.utilization_milli}")


def short(text: str) -> str:
    """A reason that may be kept."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _fault_of_words(node: NodeSpec) -> str:
    """What files do not say, or say in other units, and so their reader has not judged."""
    if node.cpu_milli > LARGEST:
        return f"its node makes no sense: /cpu must be at most {LARGEST} millicores"
    words = [node.boot_id, node.limits]
    for device in node.devices:
        words += [word for word in (device.uuid, device.pci, device.vendor, *device.paths) if word is not None]
    if any(len(word) > LONGEST_WORD for word in words):
        return f"its node makes no sense: a boot id, or a device's uuid, address, vendor or path has over {LONGEST_WORD} characters"
    return ""


def _fault_of_ids(node: NodeSpec) -> str:
    ids = [device.id for device in node.devices]
    for device in node.devices:
        if not DEVICE_ID.fullmatch(device.id) or device.id.rpartition("-")[0] != device.kind:
            return f"device {device.id[:40]!r} of kind {device.kind[:40]!r} has to be called KIND-NUMBER"
    return "" if len(ids) == len(set(ids)) else "two devices have the same id"


def _as_in_a_file(node: NodeSpec) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "name": node.name,
        "cpu": f"{node.cpu_milli}m",
        "memory": node.memory_bytes,
        "labels": node.labels,
        "taints": [msgspec.to_builtins(taint) for taint in node.taints],
        "volumes": list(node.volumes),
        "devices": [_device(device) for device in node.devices],
    }
    if node.cpu_single_core is not None:
        raw["cpu_single_core"] = node.cpu_single_core
    return raw


def _device(device: DeviceSpec) -> dict[str, Any]:
    raw = {name: value for name in _DEVICE_FIELDS if (value := getattr(device, name)) is not None}
    if device.memory_bytes is not None:
        raw["memory"] = device.memory_bytes
    return raw
