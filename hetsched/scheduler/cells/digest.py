"""What a cell tells all others of itself every second, and what of that a task could use.

A digest is advice: it is old when it is read. Nodes that are alike in words, size and what is free of them are one *place*; of devices only
wholly free ones are told. Whether a task is taken the other cell decides, when it has it before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from hetsched import _core
from hetsched.model import DeviceAsk, NodeSpec, Taint
from hetsched.scheduler.books import Books
from hetsched.scheduler.cluster import Node
from hetsched.scheduler.lifecycle import LIVE_MASK, states_mask
from hetsched.scheduler.templates import LEVEL_RULED_OUT, ShapeKey, level_of

if TYPE_CHECKING:
    from hetsched.scheduler.view_cluster import ClusterView

MOST_PLACES = 256
"""Those of fewest nodes are left out beyond that: a digest is a few kilobytes, whatever the cell."""

Kind = tuple[str, str | None, int | None]
"""Kind, model and bytes of a device."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """`nodes` nodes that are alike. `devices`: (kind, model, bytes, how many, how many of these are wholly free) in order. Not `is_open`:
    nothing is placed there now."""

    nodes: int
    is_open: bool
    cpu_milli: int
    memory_bytes: int
    cpu_free_milli: int
    memory_free_bytes: int
    devices: tuple[tuple[str, str | None, int | None, int, int], ...]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    volumes: tuple[str, ...]


class Digest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One moment of a cell. `url`: its leader. `sequence` grows with every digest of a leader. `backlog`: tasks that wait and could run here
    some day; `away_open`: tasks sent to others that have not answered. `used`, `capacity`: by resource, in the contract's units."""

    cell: str
    url: str = ""
    epoch: int = 0
    sequence: int = 0
    nodes: int = 0
    backlog: int = 0
    running: int = 0
    away_open: int = 0
    capacity: dict[str, int | float] = {}
    used: dict[str, int | float] = {}
    gang: dict[str, int] = {}
    places: tuple[Place, ...] = ()


def digest_of(view: ClusterView, url: str, sequence: int) -> Digest:
    """What there is to tell now."""
    books, whole = view.books, view.cluster()
    places = places_of(books)
    return Digest(
        cell=books.config.store.cell,
        url=url,
        epoch=whole["epoch"],
        sequence=sequence,
        nodes=whole["nodes"]["open"],
        backlog=backlog_of(books),
        running=running_of(books),
        away_open=books.crossings.tasks_open,
        capacity=whole["capacity"],
        used=whole["used"],
        gang=gang_of(places),
        places=places,
    )


def places_of(books: Books) -> tuple[Place, ...]:
    """Nodes by what they are and have free, the most frequent first."""
    found: Counter[bytes] = Counter()
    made: dict[bytes, Place] = {}
    for node in books.cluster.by_name.values():
        if node.up:
            place = _place(books, node)
            key = _encode(place)
            found[key] += 1
            made[key] = place
    return tuple(msgspec.structs.replace(made[key], nodes=count) for key, count in found.most_common(MOST_PLACES))


def _place(books: Books, node: Node) -> Place:
    cpu_free, memory_free, cpu, memory, _ = books.core.node_state(node.slot)
    devices: Counter[Kind] = Counter()
    free: Counter[Kind] = Counter()
    for index, spec in enumerate(node.spec.devices):
        used_milli, used_bytes, usable = books.core.device_state(node.slot, index)
        kind = (spec.kind, spec.model, spec.memory_bytes)
        devices[kind] += usable
        free[kind] += usable and not used_milli and not used_bytes
    return Place(
        nodes=1,
        is_open=node.is_open,
        cpu_milli=cpu,
        memory_bytes=memory,
        cpu_free_milli=max(0, cpu_free),
        memory_free_bytes=max(0, memory_free),
        devices=tuple((*kind, count, free[kind]) for kind, count in devices.items()),
        labels=node.spec.labels,
        taints=node.spec.taints,
        volumes=node.spec.volumes,
    )


def gang_of(places: tuple[Place, ...]) -> dict[str, int]:
    """By kind, wholly free devices of all open nodes together: the largest gang of one device a member, as far as nothing else binds it."""
    free: Counter[str] = Counter()
    for place in places:
        if place.is_open:
            for kind, _, _, _, whole in place.devices:
                free[kind] += place.nodes * whole
    return dict(free)


def backlog_of(books: Books) -> int:
    """Tasks that wait for room."""
    return sum(books.core.by_queue(states_mask((_core.QUEUED,))))


def running_of(books: Books) -> int:
    """Tasks that hold something."""
    return sum(books.core.by_queue(LIVE_MASK))


def room(places: tuple[Place, ...], shape: ShapeKey) -> int:
    """How many tasks of the shape fit into what is free, counted node by node."""
    return sum(
        place.nodes * _times(place, shape, free=True)
        for place in places
        if place.is_open and _words_allow(place, shape)
    )


def seats(places: tuple[Place, ...], shape: ShapeKey) -> int:
    """The same if all were empty."""
    return sum(
        place.nodes * _times(place, shape, free=False)
        for place in places
        if place.is_open and _words_allow(place, shape)
    )


def could_ever(places: tuple[Place, ...], shape: ShapeKey) -> bool:
    """Whether one fits on an empty node."""
    return any(_words_allow(place, shape) and _times(place, shape, free=False) for place in places)


def _words_allow(place: Place, shape: ShapeKey) -> bool:
    spec = NodeSpec(
        name="", cpu_milli=0, memory_bytes=0, labels=place.labels, taints=place.taints, volumes=place.volumes
    )
    return level_of(shape, spec) != LEVEL_RULED_OUT


def _times(place: Place, shape: ShapeKey, *, free: bool) -> int:
    """How often the shape fits on one of the place's nodes."""
    asked = shape.resources
    cpu, memory = (place.cpu_free_milli, place.memory_free_bytes) if free else (place.cpu_milli, place.memory_bytes)
    return min(_fractions(cpu, memory, asked.cpu_milli, asked.memory_bytes, place, asked.devices, free), default=MOST)


MOST = 1_000_000
"""Tasks that ask for nothing fit as often as one likes."""


def _fractions(
    cpu: int, memory: int, cpu_asked: int, memory_asked: int, place: Place, asks: tuple[DeviceAsk, ...], free: bool
) -> Iterator[int]:
    if cpu_asked:
        yield cpu // cpu_asked
    if memory_asked:
        yield memory // memory_asked
    for ask in asks:
        there = sum(
            (whole if free else count)
            for kind, model, size, count, whole in place.devices
            if kind == ask.kind and _suits(ask, model, size)
        )
        yield _of_devices(ask, there)


def _of_devices(ask: DeviceAsk, there: int) -> int:
    """Parts share devices, whole ones do not."""
    if ask.whole + ask.parts > there:
        return 0
    if not ask.whole:
        return there * (1000 // ask.part_milli) // ask.parts
    return there // (ask.whole + ask.parts)


def _suits(ask: DeviceAsk, model: str | None, size: int | None) -> bool:
    return (not ask.models or model in ask.models) and (size is None or size >= ask.memory_bytes)


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Digest).decode
