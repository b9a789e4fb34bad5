"""The memory nodes of this machine, as far as the kernel's word on them can be believed.

Numbers may be sparse (0, 1, 33), a node may have memory and no cpus (CXL, or a GPU's memory made visible on POWER9), cpus and
whole nodes may be offline. Overlapping cpu sets are a firmware bug: then there is one node that is everything, because no locality
is better than a wrong one.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from hetsched.agent.discovery.sysfs import meminfo, parse_cpu_map, read_cpus, read_text


class NumaNode(msgspec.Struct, frozen=True):
    """`device_memory`: this is a GPU's own memory, shown as a node; not for tasks, and in the total of /proc/meminfo all the same."""

    number: int
    cpus: frozenset[int]
    memory_bytes: int
    device_memory: bool = False


class Numa(msgspec.Struct, frozen=True):
    """`believable` False: the firmware contradicts itself and a device's node number means nothing."""

    nodes: tuple[NumaNode, ...]
    believable: bool = True

    def check(self) -> None:
        """No cpu is in two nodes; numbers are unique and ascending."""
        numbers = [node.number for node in self.nodes]
        assert numbers == sorted(set(numbers)), numbers
        assert sum(len(node.cpus) for node in self.nodes) == len(frozenset().union(*(n.cpus for n in self.nodes)))


def read_numa(root: Path, online: frozenset[int]) -> Numa:
    """The nodes that hold online cpus or memory. Without any (no NUMA in the kernel): no nodes, still believable."""
    device_nodes = _device_nodes(root)
    nodes = []
    for folder in _node_folders(root):
        number = int(folder.name.removeprefix("node"))
        cpus = _cpus(folder) & online
        memory = meminfo(folder / "meminfo").get("MemTotal", 0)
        if cpus or memory:
            nodes.append(NumaNode(number, cpus, memory, number in device_nodes))
    if sum(len(node.cpus) for node in nodes) > len(frozenset().union(*(node.cpus for node in nodes))):
        everything = NumaNode(0, online, sum(node.memory_bytes for node in nodes if not node.device_memory))
        return Numa((everything,), believable=False)
    return Numa(tuple(nodes))


def _node_folders(root: Path) -> list[Path]:
    try:
        entries = list((root / "sys/devices/system/node").iterdir())
    except OSError:
        return []
    folders = [entry for entry in entries if re.fullmatch(r"node\d+", entry.name)]
    return sorted(folders, key=lambda entry: int(entry.name.removeprefix("node")))


def _cpus(folder: Path) -> frozenset[int]:
    listed = read_cpus(folder / "cpulist")
    if listed is not None:
        return listed
    text = read_text(folder / "cpumap")
    try:
        return parse_cpu_map(text) if text else frozenset()
    except ValueError:
        return frozenset()


def _device_nodes(root: Path) -> frozenset[int]:
    """Nodes that NVIDIA's driver says are the memory of its GPUs (`Node: 250`); -1 = that GPU has none."""
    numbers = set()
    for file in (root / "proc/driver/nvidia/gpus").glob("*/numa_status"):
        found = re.search(r"^Node:\s*(\d+)", read_text(file) or "", re.MULTILINE)
        if found:
            numbers.add(int(found[1]))
    return frozenset(numbers)
