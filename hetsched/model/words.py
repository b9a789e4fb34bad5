"""The closed sets of words: urgency, guarantee, task states, and what may be said in each field.

One word a thing, as in CONTRACT section 1. Enums are StrEnums, so they go into JSON, metrics and logs as they are.
"""

from __future__ import annotations

from enum import StrEnum


class Qos(StrEnum):
    """Urgency. Decides lane and order; `critical` is never a victim."""

    critical = "critical"
    production = "production"
    best_effort = "best_effort"
    background = "background"

    @property
    def level(self) -> int:
        """0 (critical) … 3 (background): smaller goes first."""
        return _LEVELS[self]


_LEVELS = {qos: level for level, qos in enumerate(Qos)}


class Guarantee(StrEnum):
    """What capacity a task may stand on: never overcommitted, up to its limit, or reclaimable."""

    guaranteed = "guaranteed"
    burstable = "burstable"
    best_effort = "best_effort"


class State(StrEnum):
    """Where a task is in its life; the first word is the start, the last five are ends."""

    queued = "queued"
    held = "held"
    backoff = "backoff"
    placed = "placed"
    running = "running"
    stopping = "stopping"
    succeeded = "succeeded"
    failed = "failed"
    cancelled = "cancelled"
    expired = "expired"
    skipped = "skipped"


TERMINAL = frozenset({State.succeeded, State.failed, State.cancelled, State.expired, State.skipped})

PATTERNS = ("matrix-heavy", "control-heavy", "tensor-op")
WHEN = ("succeeded", "failed", "ended")
ON_DEADLINE = ("continue", "expire")
ON_LOST = ("requeue", "fail", "hold")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
HEALTH = ("healthy", "suspect", "failed")
SAME = ("numa", "nvlink", "pcie", "node", "rack", "zone")

DEVICE_ALIASES = {
    "nvidia.com/gpu": "gpu",
    "amd.com/gpu": "gpu",
    "intel.com/gpu": "gpu",
    "gpu.intel.com/i915": "gpu",
    "google.com/tpu": "tpu",
    "huawei.com/Ascend910": "npu",
    "huawei.com/Ascend310": "npu",
    "aws.amazon.com/neuron": "npu",
}
"""Kubernetes resource names and the kind they ask for."""
