"""What tasks have in common, kept once: templates (a whole body but for id, deadline and priority) and shapes (what placing depends on).

A pending task is a record in the core that names its template; equal bodies share one. Templates live as long as a task uses them,
shapes for ever (there are tens to hundreds of them, and `limits.shapes` bounds them).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from hetsched._core import Core
from hetsched.model import DeviceAsk, Guarantee, NodeSpec, Qos, Resources, Task, Toleration
from hetsched.policy.classify import task_type
from hetsched.scheduler.cluster import Cluster
from hetsched.scheduler.intern import Interned

SAME_CODES = {"numa": 1, "nvlink": 2, "pcie": 3}
"""Levels of one board, as the core knows them; every other word is a label of nodes, or `node`."""

LEVEL_RULED_OUT = 0
LEVEL_DISLIKED = 2  # an untolerated PreferNoSchedule taint
LEVEL_PLAIN = 3
LEVEL_HAS_DATA = 4

# What a shape may say to the core. Bodies may ask for more (up to 2^53 of anything); no node has as much, so a clamped shape waits as
# surely as the real one.
MOST_CPU_MILLI = 2**53
MOST_DEVICES = 60_000

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
decode_body = msgspec.msgpack.Decoder(Task).decode


class Template(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`task`: the body without id, deadline, priority. `users`: tasks in the table that name it. Frozen: copies of the books share it."""

    slot: int
    body: bytes
    task: Task
    shape: int
    users: int = 0


class ShapeKey(msgspec.Struct, frozen=True, array_like=True):
    """All that placing depends on. Type and pattern only where nodes are ranked by them (`Templates.is_typed`), else one value for all.
    `soft`: may stand on what others hold and do not use, and gives it back (_core/overcommit.pxi). `is_wish`: `same` is preferred, not
    required."""

    resources: Resources
    node_selector: dict[str, tuple[str, ...]]
    tolerations: tuple[Toleration, ...]
    data: tuple[str, ...]
    same: int
    task_type: str = ""
    pattern: str | None = None
    soft: bool = False
    is_wish: bool = False


def template_body(task: Task) -> bytes:
    """The bytes by which two tasks are recognised as the same but for id, deadline and priority."""
    return _encode(msgspec.structs.replace(task, id=None, deadline_ns=None, priority=0))


def tolerates(tolerations: tuple[Toleration, ...], key: str, value: str, effect: str) -> bool:
    """Kubernetes rules: an empty effect matches every effect, an empty key with Exists every taint."""
    for toleration in tolerations:
        if toleration.effect and toleration.effect != effect:
            continue
        if toleration.operator == "Exists":
            if not toleration.key or toleration.key == key:
                return True
        elif toleration.key == key and toleration.value == value:
            return True
    return False


def level_of(shape: ShapeKey, node: NodeSpec) -> int:
    """What words say of the pair: ruled out by selector or taint, disliked, plain, or liked because it holds the data."""
    for label, allowed in shape.node_selector.items():
        if node.labels.get(label) not in allowed:
            return LEVEL_RULED_OUT
    disliked = False
    for taint in node.taints:
        if not tolerates(shape.tolerations, taint.key, taint.value, taint.effect):
            if taint.effect != "PreferNoSchedule":
                return LEVEL_RULED_OUT
            disliked = True
    if disliked:
        return LEVEL_DISLIKED
    if shape.data and all(volume in node.volumes for volume in shape.data):
        return LEVEL_HAS_DATA
    return LEVEL_PLAIN


def _whole_devices(resources: Resources) -> Resources:
    """Parts rounded up."""
    asks = (
        msgspec.structs.replace(ask, whole=ask.whole + ask.parts, parts=0, part_milli=0) for ask in resources.devices
    )
    return msgspec.structs.replace(resources, devices=tuple(asks))


class Templates:
    """Interns templates and shapes, and tells the core of both. `is_typed`: shapes differ by type of task and pattern too.
    `shares`: else who asks for part of a device gets a whole one."""

    def __init__(self, core: Core, kinds: Interned, models: Interned, cluster: Cluster) -> None:
        self._core = core
        self._kinds = kinds
        self._models = models
        self._cluster = cluster
        self.is_typed = False
        self.shares = True
        self.by_slot: dict[int, Template] = {}
        self._by_body: dict[bytes, Template] = {}
        self._free: list[int] = []
        self.shapes: list[ShapeKey] = []
        self._shape_slot: dict[bytes, int] = {}

    # -- templates

    def find(self, body: bytes) -> Template | None:
        """The template with this body, if a task uses it."""
        return self._by_body.get(body)

    def task(self, slot: int) -> Task:
        """The body of a template."""
        return self.by_slot[slot].task

    def next_slot(self, made: int) -> int:
        """Slot that the `made`-th new template from now will get."""
        if made < len(self._free):
            return self._free[-1 - made]
        return len(self.by_slot) + made

    def use(self, slot: int, body: bytes | None, count: int) -> Template:
        """`count` more tasks name the template; `body` makes it when it is not there."""
        template = self.by_slot.get(slot)
        if template is None:
            template = self._make(slot, body)
        return self._enter(msgspec.structs.replace(template, users=template.users + count))

    def _enter(self, template: Template) -> Template:
        self.by_slot[template.slot] = self._by_body[template.body] = template
        return template

    def _make(self, slot: int, body: bytes | None) -> Template:
        expected = self.next_slot(0)
        assert body is not None and slot == expected, f"template {slot} is made where {expected} was due"
        if self._free:
            self._free.pop()
        task = decode_body(body)
        return Template(slot=slot, body=body, task=task, shape=self.intern_shape(task))

    def drop(self, slot: int, count: int = 1) -> Template | None:
        """So many tasks fewer name it. Returns it if it is gone with them."""
        template = self.by_slot[slot]
        if template.users > count:
            self._enter(msgspec.structs.replace(template, users=template.users - count))
            return None
        del self.by_slot[slot], self._by_body[template.body]
        self._free.append(slot)
        return template

    # -- shapes

    def shape_key(self, task: Task) -> ShapeKey:
        """The part of a task that placing it depends on. A gang's `same` is about its members, not about one task's devices."""
        same, is_wish = 0, False
        if task.topology is not None:
            same = SAME_CODES.get(task.topology.same, 0)
            is_wish = same != 0 and not task.topology.required
        soft = task.guarantee is Guarantee.best_effort and task.qos is not Qos.critical
        resources = task.resources if self.shares else _whole_devices(task.resources)
        key = ShapeKey(resources, task.node_selector, task.tolerations, task.data, same, soft=soft, is_wish=is_wish)
        if self.is_typed:
            key = msgspec.structs.replace(key, task_type=task_type(task), pattern=task.pattern)
        return key

    def unknown_shape(self, task: Task) -> bytes | None:
        """The task's shape as bytes, if no task had it yet."""
        packed = _encode(self.shape_key(task))
        return None if packed in self._shape_slot else packed

    def shape_of(self, task: Task) -> int | None:
        """Slot of the task's shape, if it is known."""
        return self._shape_slot.get(_encode(self.shape_key(task)))

    def intern_shape(self, task: Task) -> int:
        """Slot of the task's shape, made if need be: from word facts only, so that a replay makes the same."""
        key = self.shape_key(task)
        packed = _encode(key)
        slot = self._shape_slot.get(packed)
        if slot is None:
            slot = self._core.add_shape(
                min(key.resources.cpu_milli, MOST_CPU_MILLI),
                key.resources.memory_bytes,
                [self._ask(a) for a in key.resources.devices],
                key.same,
                key.is_wish,
                soft=key.soft,
            )
            assert slot == len(self.shapes)
            self.shapes.append(key)
            self._shape_slot[packed] = slot
            self._core.set_shape_nodes(slot, self._levels(key))
        return slot

    def _levels(self, key: ShapeKey) -> bytes:
        """What words say of the shape and every node, a byte a slot."""
        nodes = self._cluster.by_name.values()
        levels = bytearray(b"\1") * (1 + max((node.slot for node in nodes), default=-1))
        for node in nodes:
            levels[node.slot] = level_of(key, node.spec)
        return bytes(levels)

    def _ask(self, ask: DeviceAsk) -> tuple[int, int, int, int, int, Collection[int]]:
        models: Collection[int] = [self._models.slot(model) for model in ask.models]
        if not ask.ordered:
            models = frozenset(models)
        whole, parts = min(ask.whole, MOST_DEVICES), min(ask.parts, MOST_DEVICES)
        return self._kinds.slot(ask.kind), whole, parts, ask.part_milli, ask.memory_bytes, models

    def level_node(self, node_slot: int, spec: NodeSpec) -> None:
        """A node came or changed its words: judge every shape against it."""
        for slot, key in enumerate(self.shapes):
            self._core.set_shape_node(slot, node_slot, level_of(key, spec))

    # -- snapshot

    def save(self) -> tuple[list[Template], list[int], list[ShapeKey]]:
        return list(self.by_slot.values()), self._free, self.shapes

    def load(self, saved: tuple[list[Template], list[int], list[ShapeKey]]) -> None:
        templates = saved[0]
        self._free, self.shapes = list(saved[1]), list(saved[2])
        self._shape_slot = {_encode(key): slot for slot, key in enumerate(self.shapes)}
        for template in templates:
            self._enter(template)
