"""What both ways of asking NVIDIA's driver (library and command) bring home, and how it becomes devices and readings.

A GPU in MIG mode is not one device but its partitions, each with its own memory and UUID; without partitions it is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from hetsched.agent.discovery.catalogue import GIB, model_of_name
from hetsched.agent.discovery.vendor import FAILED, SUSPECT, Device, FoundDevice, Verdict, worst
from hetsched.agent.discovery.xid import XidEvent, judge_xid
from hetsched.wire import DeviceReading

LOST = Verdict(FAILED, "lost: the GPU does not answer any more")


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One MIG device. `profile` is NVIDIA's word ("1g.10gb"), "" = not told. `instance`: the GPU instance id that Xids name;
    `index` among the partitions of its GPU."""

    uuid: str
    index: int = 0
    instance: int | None = None
    profile: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, one moment. None = not told. `fabric`: the multi-node NVLink domain and clique it belongs to."""

    uuid: str | None
    pci: str | None
    name: str = ""
    index: int = 0
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    ecc_uncorrected: int | None = None
    hot_celsius: float | None = None
    critical_celsius: float | None = None
    fabric: str | None = None
    verdict: Verdict = Verdict()
    mig: bool = False
    partitions: tuple[Partition, ...] = ()


def found_devices(
    states: Iterable[GpuState],
    numa: dict[str, int | None],
    links: dict[str, str],
    switches: dict[str, str | None] | None = None,
) -> list[FoundDevice]:
    """Devices in the driver's order. `numa` and `switches` by PCI address, `links` (NVLink group) by UUID; a GPU without a UUID cannot be
    used."""
    switches = switches or {}
    found: list[FoundDevice] = []
    for state in states:
        if state.uuid is None:
            continue
        whole = FoundDevice(
            key=state.uuid,
            kind="gpu",
            model=model_of_name(state.name),
            mask=state.uuid,
            memory_bytes=state.memory_total_bytes,
            numa=numa.get(state.pci or ""),
            nvlink=state.fabric or links.get(state.uuid),
            pcie=switches.get(state.pci or ""),
            uuid=state.uuid,
            pci=state.pci,
            hot_celsius=state.hot_celsius,
            critical_celsius=state.critical_celsius,
        )
        if state.mig:
            found += [_partition(whole, part) for part in state.partitions]
        else:
            found.append(whole)
    return found


def _partition(whole: FoundDevice, part: Partition) -> FoundDevice:
    """A task that asks for an A100 must not get a seventh of one: the profile is part of the model. Partitions have no NVLink."""
    memory = part.memory_total_bytes
    profile = part.profile or (f"{math.ceil(memory / GIB)}gb" if memory else "any")
    return msgspec.structs.replace(
        whole,
        key=part.uuid,
        uuid=part.uuid,
        mask=part.uuid,
        model=f"{whole.model}-MIG-{profile}",
        memory_bytes=memory,
        nvlink=None,
    )


def readings(
    devices: Sequence[Device], states: Sequence[GpuState], xids: Sequence[XidEvent], overrides: dict[int, str]
) -> list[DeviceReading]:
    """One reading for every device that the driver still lists; `overrides` (Xid → healthy | suspect | failed) beat the table."""
    by_uuid = {state.uuid: (state, None) for state in states if state.uuid}
    parts = {part.uuid: (state, part) for state in states for part in state.partitions}
    by_pci = {state.pci: state for state in states if state.pci and state.uuid is None}
    out = []
    for device in devices:
        key, pci = device.found.key, device.found.pci
        state, part = parts.get(key) or by_uuid.get(key) or (by_pci.get(pci) if pci else None, None)
        if state is not None:
            mine = [x for x in xids if x.pci == pci and (part is None or x.instance in (None, part.instance))]
            out.append(_reading(device.id, state, part, mine, overrides))
    return out


def _reading(
    device: str, state: GpuState, part: Partition | None, xids: Sequence[XidEvent], overrides: dict[int, str]
) -> DeviceReading:
    verdict = worst([state.verdict, *(_judge(event, overrides) for event in xids)])
    return DeviceReading(
        device=device,
        health=verdict.health,
        reason=verdict.reason,
        # The driver tells no utilisation for a partition, and the whole GPU's would be other tasks'.
        utilization_percent=None if part else state.utilization_percent,
        memory_used_bytes=part.memory_used_bytes if part else state.memory_used_bytes,
        memory_total_bytes=part.memory_total_bytes if part else state.memory_total_bytes,
        temperature_celsius=state.temperature_celsius,
        power_watts=None if part else state.power_watts,
        ecc_uncorrected=state.ecc_uncorrected,
        xids=tuple(event.code for event in xids),
    )


def _judge(event: XidEvent, overrides: dict[int, str]) -> Verdict:
    if event.code in overrides:
        return Verdict(overrides[event.code], f"xid {event.code} (as configured)")
    return judge_xid(event.code, event.text)


def judge_rows(pending: bool, failed: bool) -> Verdict:
    """Row remapping (Ampere and later) or page retirement: both leave a device usable until its reset, unless they failed."""
    if failed:
        return Verdict(FAILED, "row_remap_failed")
    return Verdict(SUSPECT, "row_remap_pending: needs a reset") if pending else Verdict()


def judge_recovery(action: str) -> Verdict:
    """The driver's own advice, lower-case words as nvidia-smi prints them; it goes back to "none" after the reset."""
    if "drain" in action:
        return Verdict(SUSPECT, f"recovery_action: {action}")
    if "reset" in action or "reboot" in action:
        return Verdict(FAILED, f"recovery_action: {action}")
    return Verdict()


def link_groups(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """UUIDs joined by NVLink, directly or over a switch → name of their group ("nvlink-0", …). Alone = in no group."""
    leader: dict[str, str] = {}

    def find(node: str) -> str:
        while leader.setdefault(node, node) != node:
            node = leader[node]
        return node

    order = []
    for left, right in pairs:
        order += [left, right]
        low, high = sorted((find(left), find(right)))
        leader[high] = low
    names: dict[str, str] = {}
    groups: dict[str, str] = {}
    for node in dict.fromkeys(order):
        groups[node] = names.setdefault(find(node), f"nvlink-{len(names)}")
    return groups
