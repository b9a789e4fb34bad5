"""The limit of every core that keeps tasks, what they hold and scores of nodes in tables: what it costs to move their cache lines, on this
machine and now. Needs a C compiler, as the core does."""

from __future__ import annotations

import ctypes
import time

from loadtest.heap import built

LINE, FAMILY, TREES, DEVICES, FACTS, FRAME = 64, 8, 2, 256, 40, 1000
"""Bytes, nodes, trees, bytes, bytes, tasks: as in lines.c."""


class _Lines(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("tasks", "allocations", "keys", "index", "nodes", "devices")),
        ("leaves", ctypes.c_void_p * TREES),
        ("parents", ctypes.c_void_p * TREES),
        ("facts", ctypes.c_void_p),
        ("live", ctypes.c_uint32),
        ("node_count", ctypes.c_uint32),
    ]


class Lines:
    """`micros`: processor time a task, with so many that run on so many nodes."""

    def __init__(self, live: int, nodes: int) -> None:
        self._library = built("lines.c", "-march=native")
        self._rooms: list[ctypes.Array[ctypes.c_char]] = []
        self._lines = _Lines(
            tasks=self._room(live * LINE),
            allocations=self._room(live * LINE),
            keys=self._room(live * LINE // 2),
            index=self._room(live * LINE // 4),
            nodes=self._room(nodes * LINE),
            devices=self._room(nodes * DEVICES),
            leaves=(ctypes.c_void_p * TREES)(*(self._room((nodes + FAMILY) * LINE) for _ in range(TREES))),
            parents=(ctypes.c_void_p * TREES)(*(self._room((nodes + 64 * FAMILY) * LINE) for _ in range(TREES))),
            facts=self._room(FRAME * FACTS + LINE),
            live=live,
            node_count=nodes,
        )
        self.micros(20)  # every line is in memory

    def _room(self, size: int) -> int:
        """On a line."""
        room = ctypes.create_string_buffer(size + 2 * LINE)
        self._rooms.append(room)
        return (ctypes.addressof(room) + LINE - 1) // LINE * LINE

    def micros(self, frames: int = 20) -> float:
        """One round."""
        began_s = time.thread_time()
        self._library.live_and_end(ctypes.byref(self._lines), ctypes.c_uint32(frames))
        return (time.thread_time() - began_s) * 1e6 / (frames * FRAME)
