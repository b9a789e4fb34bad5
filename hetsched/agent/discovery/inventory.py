"""The devices of this node under their ids (`kind-N`), and the same ids again after an agent restart.

A device that disappears while the machine is up keeps its id and counts as vanished: if the others closed ranks, tasks that run on
`gpu-4` would suddenly be said to run on `gpu-3`. So what was found is remembered in a file for one boot. After a reboot nothing runs and
numbering starts anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from hetsched.agent.discovery.host import Host
from hetsched.agent.discovery.vendor import Device, FoundDevice, Vendor, VendorError
from hetsched.model import DeviceSpec, NodeSpec, Taint

log = logging.getLogger(__name__)


class Remembered(msgspec.Struct, frozen=True):
    """What the file holds."""

    boot_id: str
    devices: tuple[Device, ...]


class Inventory:
    """All vendors and their devices. `file` None = nothing is remembered (tests, a throw-away agent)."""

    def __init__(self, vendors: Sequence[Vendor], boot_id: str = "", file: Path | None = None) -> None:
        self.vendors = {vendor.name: vendor for vendor in vendors}
        self.devices: tuple[Device, ...] = ()
        self.problems: dict[str, str] = {}
        """Vendor → why its devices could not be listed (their known ones are kept)."""
        self._boot_id = boot_id
        self._file = file

    def scan(self, ask: Callable[[Vendor], list[FoundDevice]] = lambda vendor: vendor.discover()) -> bool:
        """Asks every vendor what there is. True when the devices differ from before: then the node has to be described anew.
        May block as long as `ask` does; that may raise VendorError."""
        known = self.devices or self._recall()
        found: dict[str, list[FoundDevice]] = {}
        for name, vendor in self.vendors.items():
            try:
                found[name] = ask(vendor)
                self.problems.pop(name, None)
            except VendorError as error:
                if name not in self.problems:
                    log.warning("the devices of vendor %s cannot be listed: %s", name, error)
                self.problems[name] = str(error)
        devices = assign_ids(known, found)
        # What a device bears (°C) is worked out from its present temperature on some, and differs by a degree each time.
        changed = [_spec(device) for device in devices] != [_spec(device) for device in self.devices]
        self.devices = devices
        if changed:
            self._remember()
        return changed

    def visible(self) -> dict[str, tuple[tuple[str, ...], str]]:
        """Device id → (environment variables that mask it, what it is called in them). No variables = go by its kind."""
        return {device.id: (self._masks(device.vendor), device.found.mask) for device in self.devices}

    def close(self) -> None:
        """Lets go of every driver."""
        for vendor in self.vendors.values():
            vendor.close()

    def _masks(self, vendor: str) -> tuple[str, ...]:
        return self.vendors[vendor].masks if vendor in self.vendors else ()

    def _recall(self) -> tuple[Device, ...]:
        """A file of another boot, of no boot, or one that cannot be read, is worth nothing. Nor are devices whose vendor is gone."""
        if self._file is None or not self._boot_id:
            return ()
        try:
            remembered = msgspec.json.decode(self._file.read_bytes(), type=Remembered)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return ()
        if remembered.boot_id != self._boot_id:
            return ()
        return tuple(device for device in remembered.devices if device.vendor in self.vendors)

    def _remember(self) -> None:
        if self._file is None:
            return
        data = msgspec.json.encode(Remembered(self._boot_id, self.devices))
        fresh = self._file.with_suffix(".new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            os.replace(fresh, self._file)
        except OSError as error:
            log.warning("device ids cannot be remembered in %s: %s", self._file, error)


def assign_ids(known: Sequence[Device], found: dict[str, list[FoundDevice]]) -> tuple[Device, ...]:
    """Ids for what was found: known devices keep theirs, new ones get the lowest free number of their kind, in the order found.

    A known device that is missing stays (it has vanished), unless its slot on the bus now holds something else: then it was replaced or
    partitioned on purpose. Devices of a vendor that could not be asked stay as they are.
    """
    fresh = {(vendor, device.key): device for vendor, devices in found.items() for device in devices}
    slots = {(vendor, device.pci) for vendor, devices in found.items() for device in devices if device.pci}
    kept: list[Device] = []
    for device in known:
        now = fresh.pop((device.vendor, device.found.key), None)
        if device.vendor not in found:
            kept.append(device)
        elif now is not None:
            kept.append(Device(device.id, device.vendor, _known_better(now, device.found)))
        elif _is_silicon(device.found) and (device.vendor, device.found.pci) not in slots:
            kept.append(device)
    taken = {device.id for device in kept}
    for (vendor, _), now in fresh.items():
        number = next(n for n in range(len(taken) + 1) if f"{now.kind}-{n}" not in taken)
        taken.add(f"{now.kind}-{number}")
        kept.append(Device(f"{now.kind}-{number}", vendor, now))
    return tuple(sorted(kept, key=_order))


def describe_node(
    name: str,
    devices: Iterable[Device],
    host: Host,
    *,
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    volumes: tuple[str, ...] = (),
    reserve_cpu_milli: int = 0,
    reserve_memory_bytes: int = 0,
    limits: str = "",
) -> NodeSpec:
    """The node as the daemon hears of it: what tasks may have, the reserve taken off."""
    return NodeSpec(
        name=name,
        cpu_milli=max(0, host.cpu_milli - reserve_cpu_milli),
        memory_bytes=max(0, host.memory_bytes - reserve_memory_bytes),
        labels=dict(labels or {}),
        taints=taints,
        volumes=volumes,
        devices=tuple(msgspec.structs.replace(_spec(d), numa=host.numa_of(d.found.numa)) for d in devices),
        boot_id=host.boot_id,
        limits=limits,
    )


def _spec(device: Device) -> DeviceSpec:
    found = device.found
    return DeviceSpec(
        id=device.id,
        kind=found.kind,
        model=found.model,
        memory_bytes=found.memory_bytes,
        numa=found.numa,
        nvlink=found.nvlink,
        pcie=found.pcie,
        uuid=found.uuid,
        pci=found.pci,
        paths=(found.path,) if found.path else (),
        vendor=device.vendor,
    )


def _is_silicon(found: FoundDevice) -> bool:
    """A pretended device has nothing to vanish from: it is gone when the profile is another."""
    return any((found.uuid, found.pci, found.path))


def _known_better(now: FoundDevice, before: FoundDevice) -> FoundDevice:
    """A device found in a bad moment (lost: no name, no memory) is still what it was."""
    if now.memory_bytes is None and before.memory_bytes is not None and before.pci == now.pci:
        return before
    return now


def _order(device: Device) -> tuple[str, int]:
    kind, _, number = device.id.rpartition("-")
    return kind, int(number)
