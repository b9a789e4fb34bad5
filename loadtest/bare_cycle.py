"""The limit of every core of this design: what the life of a task costs where the tables, the lanes and the tree of score bytes are all there
is, and no rule is kept. Written by itself in C (bare_cycle.c). Needs a C compiler, as the core does."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from hetsched.model import NodeSpec, Resources
from loadtest.heap import built

SHAPES, DEVICES, MODELS, FRAME, DRAWS = 128, 8, 16, 1000, 1 << 16
"""As in bare_cycle.c."""
CPU_MILLI, MEMORY = 10, 64 << 20
"""Its units."""

_Column = ctypes.c_uint16 * SHAPES


class _Shapes(ctypes.Structure):
    _fields_ = [
        *((name, _Column) for name in ("cpu", "memory", "whole", "part")),
        ("models", (ctypes.c_uint8 * SHAPES) * MODELS),
    ]


class _Node(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint16) for name in ("cpu", "memory", "cpu_in_all", "memory_in_all", "milli_in_all")),
        ("milli", ctypes.c_uint16 * DEVICES),
        ("model", ctypes.c_uint8),
        ("count", ctypes.c_uint8),
    ]


class BareCycle:
    """`micros`: processor time a task. At most 128 shapes, 8 devices a node, 16 models; tasks that ask for devices of one kind."""

    def __init__(
        self, nodes: Sequence[NodeSpec], tasks: Sequence[Resources], weights: Sequence[int], queued: int
    ) -> None:
        self._library = built("bare_cycle.c", "-march=native")
        self._library.make.restype = ctypes.c_void_p
        self._library.run.restype = ctypes.c_double
        names = sorted({device.model or "" for node in nodes for device in node.devices} | {""})
        self._world = ctypes.c_void_p(
            self._library.make(
                ctypes.byref(_shapes(tasks, names)),
                (_Node * len(nodes))(*(_node(node, names) for node in nodes)),
                ctypes.c_uint32(len(nodes)),
                _drawn(weights),
                ctypes.c_uint32(queued),
            )
        )
        self.micros(20)

    def micros(self, frames: int = 20) -> float:
        """One round."""
        return float(self._library.run(self._world, ctypes.c_uint32(frames))) * 1e6 / (frames * FRAME)

    def broken(self) -> int:
        """0, or which of its laws does not hold (bare_cycle.c): a limit that does its work wrongly is none. It is of no use afterwards."""
        return int(self._library.broken(self._world))


def _shapes(tasks: Sequence[Resources], names: Sequence[str]) -> _Shapes:
    shapes = _Shapes()
    for at in range(SHAPES):
        shapes.cpu[at] = 0xFFFF  # nobody asks for it, and it fits nowhere
    for at, task in enumerate(tasks):
        ask = task.devices[0] if task.devices else None
        shapes.cpu[at] = -(-task.cpu_milli // CPU_MILLI)
        shapes.memory[at] = -(-task.memory_bytes // MEMORY)
        shapes.whole[at] = 0 if ask is None else ask.whole
        shapes.part[at] = 0 if ask is None else ask.part_milli
        for model, name in enumerate(names):
            shapes.models[model][at] = 0xFF if ask is None or not ask.models or name in ask.models else 0
    return shapes


def _node(spec: NodeSpec, names: Sequence[str]) -> _Node:
    cpu, memory, count = spec.cpu_milli // CPU_MILLI, spec.memory_bytes // MEMORY, len(spec.devices)
    model = names.index((spec.devices[0].model or "") if spec.devices else "")
    milli = (ctypes.c_uint16 * DEVICES)(*[1000] * count)
    return _Node(cpu, memory, cpu, memory, 1000 * count, milli, model, count)


def _drawn(weights: Sequence[int]) -> ctypes.Array[ctypes.c_uint8]:
    """Shapes in proportion to their weights, to be drawn from evenly."""
    total, passed = sum(weights), 0
    table = (ctypes.c_uint8 * DRAWS)()
    for shape, weight in enumerate(weights):
        begin, passed = passed, passed + weight
        for at in range(begin * DRAWS // total, passed * DRAWS // total):
            table[at] = shape
    return table
