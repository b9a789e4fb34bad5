"""Nodes, their devices and the queues, as frozen nouns. Units are in the names."""

from __future__ import annotations

import msgspec


class Taint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """effect: NoSchedule | PreferNoSchedule | NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class DeviceSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device. `id` is `kind-N`, N from 0 per node and kind. `memory_bytes` None = unknown, never limits.

    `nvlink`: name of its link group. `pcie`: name of the switch it hangs on. `uuid`, `pci`, `paths`: how the agent finds it.
    `tflops` (dense fp16), `tops` (int8) and `bandwidth` (GB/s of device memory) override the catalogue of models.
    """

    id: str
    kind: str
    model: str | None = None
    memory_bytes: int | None = None
    numa: int | None = None
    nvlink: str | None = None
    pcie: str | None = None
    uuid: str | None = None
    pci: str | None = None
    paths: tuple[str, ...] = ()
    vendor: str | None = None
    tflops: float | None = None
    tops: float | None = None
    bandwidth: float | None = None
    watts: float | None = None


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One machine. `volumes`: data it holds. `boot_id`: changes with every boot. `cpu_single_core`: relative speed of one core.

    `pue`: power usage effectiveness of its room, at least 1. `network_delay`: to those that it serves, seconds. `limits`: what its agent
    holds tasks to, for people ("" = it does not say)."""

    name: str
    cpu_milli: int
    memory_bytes: int
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    volumes: tuple[str, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    boot_id: str = ""
    cpu_single_core: float | None = None
    pue: float | None = None
    network_delay: float | None = None
    limits: str = ""


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tenant's queue; `a/b` lies below `a`. Amounts: `cpu` in millicores, `memory` in bytes, every other key a device kind in thousandths."""

    name: str
    weight: int = 1
    guaranteed: dict[str, int] = {}
    limit: dict[str, int] = {}
