"""Small readers of the kernel's text files, all below an injectable root, none of which ever raises for a missing file.

The root is `/` on a machine and an unpacked recording in tests. What cannot be read is None: the caller decides what that means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")


class PciFunction(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI function. Ids are lower-case "0x…" as sysfs prints them; `numa` None = the firmware does not say."""

    address: str
    vendor: str
    device: str
    subsystem: str
    pci_class: str
    numa: int | None


def read_text(path: Path) -> str | None:
    """The file's text without surrounding white space, or None."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """A decimal or 0x number, or None."""
    text = read_text(path)
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None


def parse_cpu_list(text: str) -> frozenset[int]:
    """ "0-3,8" → {0, 1, 2, 3, 8}; "" → {}. ValueError when it is not a list."""
    cpus: set[int] = set()
    for part in text.split(","):
        if part := part.strip():
            low, _, high = part.partition("-")
            cpus.update(range(int(low), int(high or low) + 1))
    return frozenset(cpus)


def parse_cpu_map(text: str) -> frozenset[int]:
    """ "00000001,00000003" (32-bit words, highest first) → {0, 1, 32}. ValueError when it is not a map."""
    bits = 0
    for word in text.split(","):
        bits = bits << 32 | int(word, 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def read_cpus(path: Path) -> frozenset[int] | None:
    """A cpulist file, or None when it is missing or no list."""
    text = read_text(path)
    try:
        return None if text is None else parse_cpu_list(text)
    except ValueError:
        return None


def meminfo(path: Path) -> dict[str, int]:
    """ "MemTotal:  16 kB" (also with the "Node 0" in front that per-node files have) → {"MemTotal": 16384}, in bytes."""
    values: dict[str, int] = {}
    for line in (read_text(path) or "").splitlines():
        found = re.match(r"(?:Node\s+\d+\s+)?(\w+(?:\(\w+\))?):\s+(\d+)(\s*kB)?", line.strip())
        if found:
            values[found[1]] = int(found[2]) * (1024 if found[3] else 1)
    return values


def normal_pci(address: str) -> str | None:
    """Any spelling of a PCI address → sysfs's ("00000000:0A:00.0" → "0000:0a:00.0"); None when it is none."""
    found = _PCI.fullmatch(address.strip())
    if not found:
        return None
    return f"{int(found[1] or '0', 16):04x}:{found[2].lower()}:{found[3].lower()}.{found[4] or '0'}"


def pci_functions(root: Path) -> Iterator[PciFunction]:
    """Every PCI function the kernel knows, by address."""
    folder = root / "sys/bus/pci/devices"
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        vendor, device = read_text(entry / "vendor"), read_text(entry / "device")
        if vendor and device:
            yield PciFunction(
                address=entry.name.lower(),
                vendor=vendor.lower(),
                device=device.lower(),
                subsystem=(read_text(entry / "subsystem_device") or "").lower(),
                pci_class=(read_text(entry / "class") or "").lower(),
                numa=pci_numa(root, entry.name),
            )


def pci_numa(root: Path, address: str | None) -> int | None:
    """The NUMA node that a PCI function hangs on; None when the firmware does not say (-1) or the function is unknown."""
    if address is None:
        return None
    node = read_int(root / "sys/bus/pci/devices" / address / "numa_node")
    return None if node is None or node < 0 else node


def pci_switch(root: Path, address: str | None) -> str | None:
    """The PCIe switch that a function hangs on, the nearest of several, by the address of its upstream port: who shares it talks without the
    root complex. None on a port of the root itself, or when the bus cannot be seen. sysfs links a function to its way down from the root: root
    port, then upstream and downstream port of each switch."""
    if address is None:
        return None
    try:
        way = (root / "sys/bus/pci/devices" / address).resolve().parts[:-1]
    except (OSError, RuntimeError):  # a loop of links
        return None
    bridges = [part for part in way if _PCI.fullmatch(part)]
    return bridges[-2] if len(bridges) >= 3 else None


def pci_answers(root: Path, address: str | None) -> bool | None:
    """Does the function still answer on the bus? A dead link reads as all ones; sysfs's other files are cached and would lie.
    None = cannot tell (no such folder here, as in a container, or not readable)."""
    if address is None:
        return None
    folder = root / "sys/bus/pci/devices" / address
    if (folder / "physfn").exists():
        return None  # a virtual function's id registers read as all ones by specification
    try:
        with (folder / "config").open("rb") as file:
            head = file.read(4)
    except OSError:
        return None
    return None if len(head) < 4 else head != b"\xff\xff\xff\xff"
