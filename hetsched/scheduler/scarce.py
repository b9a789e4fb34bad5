"""When scarcities of device models, and how far their figures are off, are worked out anew, and from what: the mix that ended, what was learned
of it, and what is busy.

After every FIRST_RUNS learned run times; once there are many, whenever a 32nd more have been learned, so that it costs little however
many tasks end. Not more seldom: between two types for which two models cost the same now it is the next pricing that turns the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from hetsched.model import DeviceAsk, DeviceSpec
from hetsched.scheduler.books import Books

if TYPE_CHECKING:
    from hetsched.policy.scarcity import Class

FIRST_RUNS = 32
PART_MORE = 32
"""A 32nd."""

NEWS = 1.01
"""By what factor a scarcity must move before nodes are ranked anew."""

PART_DEVICE = 0.5
"""Of a device: what a task of size class "part" is taken to hold."""


class Scarce(msgspec.Struct):
    """`by_model`: 1 or more; who is not there is not scarce. `off`: how far figures of models are off. `due`: learned run times at which both
    are worked out next."""

    by_model: dict[str, float] = {}
    off: dict[str, float] = {}
    due: int = FIRST_RUNS

    def turn(self, books: Books, devices: Iterable[DeviceSpec]) -> bool:
        """Work it out if it is due; whether something is scarcer or less scarce than before. `devices`: all that there are."""
        learned = books.profiles.learned
        if learned < self.due:
            return False
        self.due = learned + max(FIRST_RUNS, learned // PART_MORE)
        found, off = _work_out(books, list(devices))
        if not _has_news(self.by_model, found) and not _has_news(self.off, off):
            return False
        self.by_model, self.off = found, off
        return True


def _has_news(before: dict[str, float], after: dict[str, float]) -> bool:
    pairs = [(before.get(model, 1.0), value) for model, value in after.items()]
    return any(max(pair) > NEWS * min(pair) for pair in pairs)


def _work_out(books: Books, devices: list[DeviceSpec]) -> tuple[dict[str, float], dict[str, float]]:
    """Scarcities, and how far figures are off."""
    from hetsched.policy.scarcity import scarcities  # numpy, only where it is needed

    found: dict[str, float] = {}
    off: dict[str, float] = {}
    for kind in sorted({device.kind for device in devices}):
        here = [device for device in devices if device.kind == kind]
        capacity = Counter(device.model or "" for device in here)
        if len(capacity) > 1:
            off.update(_off(books, kind, here))
            found.update(scarcities(list(_classes(books, kind, here, off)), capacity, _busy(books, kind)))
    return found, off


def _off(books: Books, kind: str, devices: list[DeviceSpec]) -> dict[str, float]:
    from hetsched.policy.speeds import misjudged

    types = [books.profiles.shown(*of_class) for of_class, _ in books.profiles.classes()]
    return misjudged(types, _different(devices), is_tensor=_is_tensor(kind))


def _is_tensor(kind: str) -> bool:
    from hetsched.policy.terms import pattern_of

    return pattern_of((DeviceAsk(kind=kind, whole=1),)) == "tensor-op"


def _different(devices: list[DeviceSpec]) -> list[DeviceSpec]:
    return list({device.model: device for device in devices}.values())


def _classes(books: Books, kind: str, devices: list[DeviceSpec], off: dict[str, float]) -> Iterator[Class]:
    """Types and sizes that ran on this kind of device."""
    from hetsched.policy.scarcity import Class
    from hetsched.policy.speeds import run_times

    is_tensor, different = _is_tensor(kind), _different(devices)
    for (task_type, size), profiles in books.profiles.classes():
        if size.startswith("cpu"):
            continue
        held = PART_DEVICE if size == "part" else float(size)
        times = run_times(books.profiles.shown(task_type, size), different, is_tensor=is_tensor, off=off, curiosity=0.0)
        runs = sum(profile.runs for model, profile in profiles.items() if model in times)
        if runs:
            yield Class(runs, {model: held * time for model, time in times.items()})


def _busy(books: Books, kind: str) -> float:
    """Devices of the kind that are in use or waited for."""
    number = books.kinds.known(kind)
    if number < 0:
        return 0.0
    waiting_milli = sum(
        books.core.shape_pending(shape) * ask.total_milli
        for shape, key in enumerate(books.templates.shapes)
        for ask in key.resources.devices
        if ask.kind == kind
    )
    return (books.core.totals()[2 + number][1] + waiting_milli) / 1000
