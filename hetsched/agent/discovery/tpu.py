"""Google TPUs: chips on the PCI bus (vendor 0x1ae0), their device files, and what `tpu-info` tells of them while a program runs.

Chips up to v4 are `/dev/accelN`, later ones are handed to programs over VFIO as `/dev/vfio/GROUP`, whose number is the IOMMU group's
and has nothing to do with the chip's. So a chip is named by its PCI address here, and by its place in the order of the device files
where a program has to name it (`TPU_VISIBLE_CHIPS`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hetsched.agent.discovery.catalogue import default_memory_bytes
from hetsched.agent.discovery.sysfs import PciFunction, pci_answers, pci_functions, pci_switch
from hetsched.agent.discovery.tpu_info import TpuUsage, parse_tpu_info
from hetsched.agent.discovery.vendor import FAILED, SUSPECT, Device, FoundDevice, Verdict
from hetsched.wire import DeviceReading

PCI_VENDOR = "0x1ae0"

# PCI device id → model, from tpu-info (AI-Hypercomputer/cloud-accelerator-diagnostics, tpu_info/device.py). Google's network and disk
# functions share the vendor id, so an unknown id is a TPU only by its class.
_MODELS = {"0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e", "0x006f": "v6e", "0x0076": "7x"}
_V2_OR_V3 = "0x0027"
_BY_SUBSYSTEM = {"0x004e": "v2", "0x004f": "v3"}
_ACCELERATOR_CLASSES = ("0x1200", "0xff00")  # processing accelerator; unassigned, which early firmware says


class Tpu:
    """The vendor. `tool`: runs tpu-info and returns what it prints, or None when it did not work; None = there is no such tool."""

    name = "tpu"
    masks: tuple[str, ...] = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
    period_s = 2.0  # a few small files a chip

    def __init__(
        self,
        root: Path = Path("/"),
        tool: Callable[[], str | None] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._root = root
        self._tool = tool
        self._environment = environment

    def discover(self) -> list[FoundDevice]:
        """Chips in the order of their device files' numbers, those without a file last."""
        chips = [(self._path(function), function) for function in _functions(self._root)]
        if not chips:
            return self._without_bus()
        chips.sort(key=lambda chip: (chip[0] is None, _number(chip[0]), chip[1].address))
        return [self._found(index, path, function) for index, (path, function) in enumerate(chips)]

    def read(self, devices: Sequence[Device]) -> list[DeviceReading]:
        """A chip that left the bus is left out; dead link or vanished device file = failed."""
        usage = self._usage(devices)
        out = []
        for device in devices:
            if not self._present(device):
                continue
            verdict, use = self._verdict(device), usage.get(device.id)
            out.append(
                DeviceReading(
                    device=device.id,
                    health=verdict.health,
                    reason=verdict.reason,
                    utilization_percent=use.duty_percent if use else None,
                    memory_used_bytes=use.memory_used_bytes if use else None,
                    memory_total_bytes=(use.memory_total_bytes if use else None) or device.found.memory_bytes,
                )
            )
        return out

    def close(self) -> None:
        """Holds nothing."""

    def _found(self, index: int, path: str | None, function: PciFunction) -> FoundDevice:
        model = _model(function)
        return FoundDevice(
            key=function.address,
            kind="tpu",
            model=model,
            mask=str(index),
            memory_bytes=default_memory_bytes(model),
            numa=function.numa,
            pcie=pci_switch(self._root, function.address),
            pci=function.address,
            path=path,
        )

    def _without_bus(self) -> list[FoundDevice]:
        """In a container that hides the bus the accel files alone tell of chips; a vfio group could be anything, so it tells nothing."""
        model = _model_of_type(self._environment.get("TPU_ACCELERATOR_TYPE", ""))
        return [
            FoundDevice(
                key=path, kind="tpu", model=model, mask=str(index), memory_bytes=default_memory_bytes(model), path=path
            )
            for index, path in enumerate(_accel_files(self._root))
        ]

    def _path(self, function: PciFunction) -> str | None:
        """The device file of a chip: `accel/accelN` below its sysfs folder, or the number of its IOMMU group."""
        folder = self._root / "sys/bus/pci/devices" / function.address
        names = [entry.name for entry in sorted((folder / "accel").glob("accel*"))]
        candidates = [f"/dev/{name}" for name in names]
        try:
            candidates.append(f"/dev/vfio/{Path(os.readlink(folder / 'iommu_group')).name}")
        except OSError:
            pass
        return next((path for path in candidates if (self._root / path.lstrip("/")).exists()), None)

    def _present(self, device: Device) -> bool:
        pci = device.found.pci
        if pci is None:
            return True  # known by its file only, which `_verdict` looks at
        return (self._root / "sys/bus/pci/devices" / pci).exists()

    def _verdict(self, device: Device) -> Verdict:
        path, pci = device.found.path, device.found.pci
        if pci_answers(self._root, pci) is False:
            return Verdict(FAILED, "lost: the chip does not answer on the bus")
        if path is None:
            return Verdict(SUSPECT, "no_device_file: no driver is bound to it")
        if not (self._root / path.lstrip("/")).exists():
            return Verdict(FAILED, f"device_file_gone: {path}")
        return Verdict()

    def _usage(self, devices: Sequence[Device]) -> dict[str, TpuUsage]:
        """tpu-info's chip numbers match neither files nor places (8, 9, 12, 13 for four chips): its rows are matched by their order."""
        text = self._tool() if self._tool is not None else None
        rows = parse_tpu_info(text) if text else []
        ordered = sorted(devices, key=lambda device: int(device.found.mask))
        if not ordered or not rows or len(rows) % len(ordered):
            return {}
        each = len(rows) // len(ordered)  # two on chips whose cores are counted one by one
        return {
            device.id: TpuUsage.merged(rows[index * each : (index + 1) * each]) for index, device in enumerate(ordered)
        }


def tpu_present(root: Path = Path("/")) -> bool:
    """A chip on the bus, or accel files with nothing on the bus that could say whose they are."""
    return any(True for _ in _functions(root)) or bool(_accel_files(root))


def _functions(root: Path) -> list[PciFunction]:
    return [function for function in pci_functions(root) if function.vendor == PCI_VENDOR and _is_tpu(function)]


def _is_tpu(function: PciFunction) -> bool:
    known = function.device == _V2_OR_V3 or function.device in _MODELS
    return known or function.pci_class.startswith(_ACCELERATOR_CLASSES)


def _model(function: PciFunction) -> str:
    if function.device == _V2_OR_V3:
        return _BY_SUBSYSTEM.get(function.subsystem, "unknown")
    return _MODELS.get(function.device, "unknown")


def _model_of_type(accelerator_type: str) -> str:
    """Google's names of machine shapes: "v5litepod-8" → "v5e", "v4-16" → "v4", "" → "unknown"."""
    head = accelerator_type.partition("-")[0]
    return {"v5litepod": "v5e", "": "unknown", "tpu7x": "7x"}.get(head, head)


def _accel_files(root: Path) -> list[str]:
    """`/dev/accelN` that nobody else claims. (Other makers' accelerators lie in the folder `/dev/accel/`.)"""
    paths = []
    for entry in (root / "dev").glob("accel[0-9]*"):
        vendor = root / "sys/class/accel" / entry.name / "device/vendor"
        if re.fullmatch(r"accel\d+", entry.name) and not vendor.exists():
            paths.append(f"/dev/{entry.name}")
    return sorted(paths, key=_number)


def _number(path: str | None) -> int:
    found = re.search(r"(\d+)$", path or "")
    return int(found[1]) if found else -1
