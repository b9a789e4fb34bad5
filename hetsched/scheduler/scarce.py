"""When scarcities of device models are worked out anew, and from what: the mix that ended, what was learned of it, and what is busy.

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
    """`by_model`: 1 or more; who is not there is not scarce. `due`: learned run times at which it is worked out next."""

    by_model: dict[str, float] = {}
    due: int = FIRST_RUNS

    def turn(self, books: Books, devices: Iterable[DeviceSpec]) -> bool:
        """Work it out if it is due; whether something is scarcer or less scarce than before. `devices`: all that there are."""
        learned = books.profiles.learned
        if learned < self.due:
            return False
        self.due = learned + max(FIRST_RUNS, learned // PART_MORE)
        found = _work_out(books, list(devices))
        if not any(_is_news(self.by_model.get(model, 1.0), value) for model, value in found.items()):
            return False
        self.by_model = found
        return True


def _is_news(before: float, after: float) -> bool:
    return max(before, after) > NEWS * min(before, after)


def _work_out(books: Books, devices: list[DeviceSpec]) -> dict[str, float]:
    from hetsched.policy.scarcity import scarcities  # numpy, only where it is needed

    found: dict[str, float] = {}
    for kind in sorted({device.kind for device in devices}):
        here = [device for device in devices if device.kind == kind]
        capacity = Counter(device.model or "" for device in here)
        if len(capacity) > 1:
            found.update(scarcities(list(_classes(books, kind, here)), capacity, _busy(books, kind)))
    return found


def _classes(books: Books, kind: str, devices: list[DeviceSpec]) -> Iterator[Class]:
    """Types and sizes that ran on this kind of device."""
    from hetsched.policy.scarcity import Class
    from hetsched.policy.speeds import run_times
    from hetsched.policy.terms import pattern_of

    is_tensor = pattern_of((DeviceAsk(kind=kind, whole=1),)) == "tensor-op"
    different = list({device.model: device for device in devices}.values())
    for (task_type, size), profiles in books.profiles.classes():
        if size.startswith("cpu"):
            continue
        held = PART_DEVICE if size == "part" else float(size)
        times = run_times(books.profiles.shown(task_type, size), different, is_tensor=is_tensor, curiosity=0.0)
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
