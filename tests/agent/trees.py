"""Builders of small machines: a sysfs and proc tree from a dict, a PCI function, a recording unpacked."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Mapping
from pathlib import Path


def tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Writes the files below `root`; "a -> b" as a name makes a symbolic link."""
    for name, content in files.items():
        path, arrow, target = name.partition(" -> ")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if arrow:
            (root / path).symlink_to(target)
        elif isinstance(content, bytes):
            (root / path).write_bytes(content)
        else:
            (root / path).write_text(content)
    return root


def pci(address: str, vendor: str, device: str, **more: str | bytes) -> dict[str, str | bytes]:
    """Files of one PCI function; `more`: further files in its folder (`numa_node="1"`). Its configuration space answers."""
    folder = f"sys/bus/pci/devices/{address}"
    alive = bytes.fromhex(vendor[4:6] + vendor[2:4] + device[4:6] + device[2:4])
    content = {"vendor": f"{vendor}\n", "device": f"{device}\n", "class": "0x030200\n", "config": alive, **more}
    return {f"{folder}/{name.replace('__', '/')}": value for name, value in content.items()}


def cpus(online: str = "0-3", memory_kb: int = 16_000_000) -> dict[str, str | bytes]:
    """A machine without NUMA."""
    return {
        "sys/devices/system/cpu/online": f"{online}\n",
        "proc/meminfo": f"MemTotal: {memory_kb} kB\nMemFree: 1000 kB\nMemAvailable: {memory_kb // 2} kB\nCached: 10 kB\n",
        "proc/sys/kernel/random/boot_id": "b00t\n",
    }


def node(number: int, cpulist: str, memory_kb: int) -> dict[str, str | bytes]:
    """One NUMA node."""
    folder = f"sys/devices/system/node/node{number}"
    return {
        f"{folder}/cpulist": f"{cpulist}\n",
        f"{folder}/meminfo": f"\nNode {number} MemTotal:  {memory_kb} kB\nNode {number} MemFree:  1 kB\n",
    }


# What discovery reads, of the thousands of files in a recorded machine.
_READ = re.compile(
    r"/(sys/devices/system/(cpu/online|node/node\d+/(cpulist|cpumap|meminfo))"
    r"|proc/(meminfo|stat|cpuinfo|self/cgroup|driver/.*/numa_status))$"
)


def unpacked(archive: Path, to: Path) -> Path:
    """The root folder inside a recorded machine's archive, with the files that discovery reads."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and _READ.search(member.name):
                tar.extract(member, to, filter="data")
    (root,) = to.iterdir()
    return root
