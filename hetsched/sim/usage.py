"""What a simulated attempt really uses of what it holds: `usage` of its task, filled in."""

from __future__ import annotations

from hetsched.model import Resources, Usage


def really_used(asked: Resources, usage: Usage) -> tuple[int, int, int]:
    """(millicores, bytes, utilisation of its devices in thousandths, -1 where it asks for none)."""
    cpu_milli = asked.cpu_milli * usage.part_milli // 1000 if usage.cpu_milli is None else usage.cpu_milli
    memory_bytes = asked.memory_bytes * usage.part_milli // 1000 if usage.memory_bytes is None else usage.memory_bytes
    held_milli = sum(ask.total_milli for ask in asked.devices)
    used_milli = sum(
        min(ask.total_milli, usage.devices_milli.get(ask.kind, ask.total_milli * usage.part_milli // 1000))
        for ask in asked.devices
    )
    return cpu_milli, memory_bytes, 1000 * used_milli // held_milli if held_milli else -1
