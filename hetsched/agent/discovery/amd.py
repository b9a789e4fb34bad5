"""AMD GPUs from the kernel alone: the amdgpu driver's sysfs and the compute topology (KFD). No tool and no library is needed.

KFD tells what the compute stack sees and in which order it numbers it; the PCI function's folder tells how each one is. Files that a
card or a driver does not have are None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from hetsched.agent.discovery.catalogue import model_of_name
from hetsched.agent.discovery.sysfs import pci_answers, pci_numa, pci_switch, read_int, read_text
from hetsched.agent.discovery.vendor import FAILED, Device, FoundDevice, Verdict
from hetsched.wire import DeviceReading

_NODES = "sys/class/kfd/kfd/topology/nodes"
_VENDOR_ID = 0x1002
# PCI device id → model, for cards whose firmware tells no product name (pci.ids, "Advanced Micro Devices").
_MODELS = {
    0x66A1: "MI50",
    0x738C: "MI100",
    0x7408: "MI250X",
    0x740C: "MI250",
    0x740F: "MI210",
    0x74A1: "MI300X",
    0x74A0: "MI300A",
}


class KfdNode(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as the compute stack sees it. `index`: its number among the GPUs; `hive`: the XGMI island, 0 = in none."""

    index: int
    pci: str
    device_id: int
    unique_id: int
    hive: int
    memory_bytes: int | None


class Amd:
    """The vendor. Tasks see devices through ROCr's mask, by UUID where the card has one."""

    name = "amd"
    masks: tuple[str, ...] = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    period_s = 1.0  # a dozen small files a card

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def discover(self) -> list[FoundDevice]:
        """In the order in which the compute stack counts them."""
        nodes = list(kfd_nodes(self._root))
        hives = Counter(node.hive for node in nodes if node.hive)
        ids = Counter(node.unique_id for node in nodes if node.unique_id)
        return [self._found(node, hives[node.hive] > 1, ids[node.unique_id] == 1) for node in nodes]

    def read(self, devices: Sequence[Device]) -> list[DeviceReading]:
        """A card whose folder is gone is left out."""
        readings = []
        for device in devices:
            folder = self._folder(device.found.pci or "")
            if folder.exists():
                readings.append(self._reading(device, folder))
        return readings

    def close(self) -> None:
        """Holds nothing."""

    def _found(self, node: KfdNode, linked: bool, named: bool) -> FoundDevice:
        folder = self._folder(node.pci)
        uuid = f"GPU-{node.unique_id:016x}" if named else None
        name = read_text(folder / "product_name")
        sensor = _hottest(folder)
        total = read_int(folder / "mem_info_vram_total")
        return FoundDevice(
            key=uuid or f"{node.pci}#{node.index}",  # partitions of one card share its slot and its id
            kind="gpu",
            model=model_of_name(name) if name else _MODELS.get(node.device_id, f"0x{node.device_id:04x}"),
            mask=uuid or str(node.index),
            memory_bytes=node.memory_bytes if total is None else total,
            numa=pci_numa(self._root, node.pci),
            nvlink=f"xgmi-{node.hive:x}" if linked else None,
            pcie=pci_switch(self._root, node.pci),
            uuid=uuid,
            pci=node.pci,
            path="/dev/kfd",
            hot_celsius=None,
            critical_celsius=_celsius(sensor, "crit"),
        )

    def _reading(self, device: Device, folder: Path) -> DeviceReading:
        dead = pci_answers(self._root, device.found.pci) is False
        verdict = Verdict(FAILED, "lost: the card does not answer on the bus") if dead else Verdict()
        busy = read_int(folder / "gpu_busy_percent")
        return DeviceReading(
            device=device.id,
            health=verdict.health,
            reason=verdict.reason,
            utilization_percent=None if busy is None else float(busy),
            memory_used_bytes=read_int(folder / "mem_info_vram_used"),
            memory_total_bytes=read_int(folder / "mem_info_vram_total"),
            temperature_celsius=_celsius(_hottest(folder), "input"),
            power_watts=_watts(folder),
            ecc_uncorrected=_uncorrected(folder),
        )

    def _folder(self, pci: str) -> Path:
        return self._root / "sys/bus/pci/devices" / pci


def amd_present(root: Path = Path("/")) -> bool:
    """A GPU that the compute stack knows."""
    return any(True for _ in kfd_nodes(root))


def kfd_nodes(root: Path) -> Iterator[KfdNode]:
    """GPUs in the compute topology (its cpu nodes have no SIMDs), by node number."""
    folders = [folder for folder in (root / _NODES).glob("*") if folder.name.isdigit()]
    index = 0
    for folder in sorted(folders, key=lambda folder: int(folder.name)):
        told = _properties(folder / "properties")
        if told.get("simd_count", 0) > 0 and told.get("vendor_id") == _VENDOR_ID:
            yield KfdNode(
                index=index,
                pci=_address(told.get("domain", 0), told.get("location_id", 0)),
                device_id=told.get("device_id", 0),
                unique_id=told.get("unique_id", 0),
                hive=told.get("hive_id", 0),
                memory_bytes=_memory(folder) or told.get("local_mem_size") or None,
            )
            index += 1


def _properties(path: Path) -> dict[str, int]:
    """Lines of "name number"."""
    words = [line.split() for line in (read_text(path) or "").splitlines()]
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def _address(domain: int, location: int) -> str:
    """`location_id` is bus, device and function in 8, 5 and 3 bits."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _memory(folder: Path) -> int:
    """Device memory is in banks of heap type 1 (visible to the cpu) and 2 (private)."""
    banks = [_properties(bank / "properties") for bank in (folder / "mem_banks").glob("*")]
    return sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2))


def _hottest(folder: Path) -> Path | None:
    """The junction's sensor where there is one (what throttles), else the first; as a path without its last word."""
    labels = sorted((folder / "hwmon").glob("hwmon*/temp*_label"))
    for label in labels:
        if read_text(label) == "junction":
            return label.with_name(label.name.removesuffix("label"))
    first = next(iter(sorted((folder / "hwmon").glob("hwmon*/temp*_input"))), None)
    return None if first is None else first.with_name(first.name.removesuffix("input"))


def _celsius(sensor: Path | None, what: str) -> float | None:
    milli = None if sensor is None else read_int(sensor.with_name(sensor.name + what))
    return None if milli is None else milli / 1000


def _watts(folder: Path) -> float | None:
    for name in ("power1_average", "power1_input"):
        for file in (folder / "hwmon").glob(f"hwmon*/{name}"):
            if (micro := read_int(file)) is not None:
                return micro / 1e6
    return None


def _uncorrected(folder: Path) -> int | None:
    """ "ue: 0" in the counter of each block of the chip; None when the card counts none."""
    counts = []
    for file in (folder / "ras").glob("*_err_count"):
        for line in (read_text(file) or "").splitlines():
            name, _, number = line.partition(":")
            if name.strip() == "ue" and number.strip().isdigit():
                counts.append(int(number))
    return sum(counts) if counts else None
