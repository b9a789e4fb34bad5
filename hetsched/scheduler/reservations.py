"""What the one reservation of EASY backfill means for a waiting task: it is its own, or it is what holds the task back.

The core finds it (`_core/reserve.pxi`) while it decides; here it is only told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hetsched._core import NONE, PLACED, QUEUED, SUCCEEDED, TaskRow
from hetsched.model import DeviceAsk, Task
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.lifecycle import WAITING_MASK
from hetsched.scheduler.reasons import Waiting
from hetsched.scheduler.together import suits
from hetsched.scheduler.world import World


def starts_in_s(world: World, task: int, row: TaskRow) -> float | None:
    """Seconds until the reserved start of the task or its gang; None if the reservation is not theirs."""
    found = world.core.reservation()
    if found is None or not _is_theirs(world, found[0], task, row):
        return None
    return max(0.0, (found[1] - world.now_ns) / 1e9)


def reasons(world: World, task: int, row: TaskRow) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(code, sentence, numbers). It holds back only who is in line, would not be gone before it starts, and has room where it is."""
    found = world.core.reservation()
    if found is None:
        return
    head, start_ns, seats = found
    nodes = sorted({world.books.cluster.by_slot[node].name for _, node in seats})
    start_s = round(max(0.0, (start_ns - world.now_ns) / 1e9), 3)
    numbers = {"nodes": nodes, "start_seconds": start_s}
    if _is_theirs(world, head, task, row):
        sentence = (
            f"first of those that wait: has a reservation on {', '.join(nodes)} in {start_s:g} s, by expected run times"
        )
        yield Waiting.RESERVED, sentence, numbers
        return
    run_s = _expected_s(world, task, row)
    if run_s and world.now_ns + round(run_s * 1e9) <= start_ns:
        return
    if row.state == QUEUED and _fits_only_there(world, row, nodes, world.body(task)):
        ident = world.books.id_of(head)
        who = "it" if row.gang == NONE else "its gang"
        runs = f"{who} is expected to run {run_s:g} s" if run_s else f"{who} says nothing of its run time"
        sentence = f"fits on {', '.join(nodes)}, reserved for {ident} in {start_s:g} s; {runs} and would delay that"
        yield Waiting.BEHIND_RESERVATION, sentence, {**numbers, "reserved_for": ident, "expected_seconds": run_s}


def _expected_s(world: World, task: int, row: TaskRow) -> float:
    """Seconds until it would be over, of a gang until the last of those that wait would be; 0 = unknown."""
    members = [task] if row.gang == NONE else [m for m in world.core.gang_members(row.gang) if _waits(world, m)]
    expected = [world.core.expected(member)[0] / 1e9 for member in members]
    return max(expected) if expected and all(expected) else 0.0


def _waits(world: World, task: int) -> bool:
    return bool(WAITING_MASK >> world.core.task(task).state & 1)


def _fits_only_there(world: World, row: TaskRow, nodes: list[str], body: Task) -> bool:
    """No more nodes would take one such task now than are reserved, and one of these has what it asks for."""
    if not 0 < world.core.verdict(row.shape)["fits"] <= len(nodes):
        return False
    gang = world.books.gangs.of(row.gang)
    if gang is not None:
        going = sum(PLACED <= world.core.task(member).state <= SUCCEEDED for member in gang.members)
        if world.core.gang_room(gang.slot)[0] < gang.min_size - going:
            return False  # room for all of them is what it lacks
    return any(_has_free(world, world.books.cluster.by_name[name], body) for name in nodes)


def _has_free(world: World, node: Node, body: Task) -> bool:
    """By amounts and models alone; where cores and memory are lent, all that may be."""
    core, asked = world.core, body.resources
    cpu_milli, memory_bytes, *_ = core.node_state(node.slot)
    cpu_lent, memory_lent = core.lent(node.slot)
    if asked.cpu_milli > cpu_milli + cpu_lent[2] or asked.memory_bytes > memory_bytes + memory_lent[2]:
        return False
    return all(_has_devices(world, node, ask) for ask in asked.devices)


def _has_devices(world: World, node: Node, ask: DeviceAsk) -> bool:
    free = [
        1000 - used_milli
        for index, device in enumerate(node.spec.devices)
        if suits(device, ask)
        for used_milli, _, usable in (world.core.device_state(node.slot, index),)
        if usable
    ]
    parts = sum(milli >= ask.part_milli for milli in free)
    return free.count(1000) >= ask.whole and parts >= ask.whole + ask.parts


def _is_theirs(world: World, head: int, task: int, row: TaskRow) -> bool:
    return head == task or (row.gang != NONE and world.core.task(head).gang == row.gang)
