"""A core with a journal: what tests build worlds with.

Promises: every door that writes no fact is written down as words first, as the scheduler does it, so `World.replay()` gives a core that
heard only the journal. Names stand for slots; amounts are small and round.
"""

from __future__ import annotations

import json
from typing import Any

from hetsched import _core
from hetsched._core import Core

GIB = 1 << 30
GPU, TPU = 0, 1
CRITICAL, PRODUCTION, BEST_EFFORT, BACKGROUND = range(4)
ALL = 15


class World:
    """One queue `0` and no nodes at first. `core` is the live one."""

    def __init__(self, policy: int = _core.POLICY_PACK, blast_radius: int = 8, checked: bool = True) -> None:
        self.options: dict[str, Any] = {"policy": policy, "blast_radius": blast_radius}
        self.core = Core(**self.options, checked=checked)
        self.now_ns = 0
        self.frames: list[bytes] = []
        self.seen = 0
        self.tick()
        self.do("add_queue", _core.NONE, 1)

    # ---------------------------------------------------------------- journal

    def tick(self, step_ns: int = 1_000_000_000) -> None:
        """Take what was written, let time pass, open the next turn."""
        self.frames.append(self.core.take_facts())
        self.seen = 0
        self.now_ns += step_ns
        self.core.begin(self.now_ns)

    def do(self, door: str, *arguments: Any, **named: Any) -> Any:
        """A door without facts: its words go first."""
        self.core.words(7, json.dumps([door, arguments, named], default=lambda value: {"bytes": value.hex()}).encode())
        return getattr(self.core, door)(*arguments, **named)

    def facts(self) -> list[tuple[Any, ...]]:
        """What was written since the last look, words and turns left out."""
        records, self.seen = self.core.peek_facts(self.seen)
        return [record for record in records if record[0] not in (_core.F_TURN, _core.F_WORDS)]

    def replay(self) -> Core:
        """Another core that hears the whole journal."""
        core = Core(**self.options, checked=False)
        self.tick()
        self.replay_into(core)
        return core

    def replay_into(self, core: Core) -> None:
        """The frames so far, told to `core`."""

        def on_words(kind: int, payload: bytes) -> None:
            assert kind == 7
            door, arguments, named = json.loads(
                payload, object_hook=lambda o: bytes.fromhex(o["bytes"]) if "bytes" in o else o
            )
            getattr(core, door)(*arguments, **named)

        for frame in self.frames:
            core.apply(frame, on_words)

    # ---------------------------------------------------------------- builders

    def node(
        self, cpu: int = 64, memory: int = 256, gpus: int = 0, model: int = -1, gpu_memory: int = 40, **columns: Any
    ) -> int:
        """cores, GiB; `numa`, `nvlink`, `pcie`: devices per group, 0 = no groups."""
        widths = [columns.pop(level, 0) for level in ("numa", "nvlink", "pcie")]
        devices = [
            (GPU, model, gpu_memory * GIB, *(at // width if width else -1 for width in widths)) for at in range(gpus)
        ]
        slot: int = self.do("add_node", cpu * 1000, memory * GIB, devices)
        for column, value in columns.items():
            self.do("set_node_domain", slot, int(column.removeprefix("column")), value)
        return slot

    def shape(
        self,
        cpu: int = 1,
        memory: int = 0,
        gpus: int = 0,
        parts: int = 0,
        part: int = 0,
        gpu_memory: int = 0,
        models: tuple[int, ...] = (),
        same: int = 0,
        is_wish: bool = False,
        soft: bool = False,
    ) -> int:
        asks = [(GPU, gpus, parts, part, gpu_memory * GIB, models)] if gpus or parts else []
        slot: int = self.do("add_shape", cpu * 1000, memory * GIB, asks, same, is_wish, soft=soft)
        return slot

    def task(self, key: str, shape: int, **named: Any) -> int:
        return self.tasks([key], shape, **named)[0]

    def tasks(self, keys: list[str], shape: int, **named: Any) -> list[int]:
        named = {"template": 0, "queue": 0, "qos": PRODUCTION, "flags": 0, "submitted_ns": self.now_ns, **named}
        slots: list[int] = self.do("accept", [key.encode() for key in keys], shape=shape, **named)
        return slots

    # ---------------------------------------------------------------- looks

    def where(self, task: int) -> int | None:
        placement = self.core.placement(task)
        return None if placement is None else placement.node

    def devices(self, task: int) -> tuple[tuple[int, int], ...]:
        placement = self.core.placement(task)
        assert placement is not None
        return placement.devices

    def state(self, task: int) -> int:
        return self.core.task(task).state

    def place(self, preempt: bool = True) -> int:
        return self.core.decide(ALL, preempt)

    def run(self, *tasks: int) -> None:
        for task in tasks:
            self.core.started(task, self.core.task(task).attempt)
