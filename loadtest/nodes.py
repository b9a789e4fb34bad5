"""The machines of the simulated fleet: GPU, TPU and plain nodes in the proportion 2 : 1 : 2, as alike as in a real room."""

from __future__ import annotations

from hetsched.model import DeviceSpec, NodeSpec

GIB = 1 << 30


def fleet_of(nodes: int, prefix: str) -> list[NodeSpec]:
    """`nodes` machines named `PREFIX-nN`; every five are two with GPUs, one with TPUs, two without devices."""
    return [_MAKERS[number % len(_MAKERS)](f"{prefix}-n{number}", f"r{number // 20}") for number in range(nodes)]


def capacity_of(fleet: list[NodeSpec]) -> dict[str, float]:
    """Cores and devices by kind of the whole fleet."""
    total: dict[str, float] = {"cpu": sum(node.cpu_milli for node in fleet) / 1000}
    for node in fleet:
        for device in node.devices:
            total[device.kind] = total.get(device.kind, 0) + 1
    return total


def _devices(kind: str, model: str, count: int, memory_bytes: int) -> tuple[DeviceSpec, ...]:
    return tuple(
        DeviceSpec(id=f"{kind}-{number}", kind=kind, model=model, memory_bytes=memory_bytes, numa=number * 2 // count)
        for number in range(count)
    )


def _gpu(name: str, rack: str) -> NodeSpec:
    devices = _devices("gpu", "A100", 8, 40 * GIB)
    return NodeSpec(
        name=name, cpu_milli=64_000, memory_bytes=512 * GIB, labels={"rack": rack}, devices=devices, boot_id=name
    )


def _tpu(name: str, rack: str) -> NodeSpec:
    devices = _devices("tpu", "v5e", 4, 16 * GIB)
    return NodeSpec(
        name=name, cpu_milli=112_000, memory_bytes=192 * GIB, labels={"rack": rack}, devices=devices, boot_id=name
    )


def _plain(name: str, rack: str) -> NodeSpec:
    return NodeSpec(name=name, cpu_milli=64_000, memory_bytes=256 * GIB, labels={"rack": rack}, boot_id=name)


_MAKERS = (_gpu, _plain, _tpu, _plain, _gpu)
