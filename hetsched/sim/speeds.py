"""`speeds:` of a scenario: how fast a kind of task truly runs on a device model. The scheduler is never told; it may learn it from run times.

    speeds:
      render: {A10: 1, T4: 0.25}                        # a duration of 10 s takes 40 s on a T4
      train: {V100: {1: 1, 4: 3.5}, K80: 0.2}           # by number of devices: the entry of that number or of the next smaller one
      "*": {cpu: 0.5}                                    # every other kind; `cpu` = without devices

A task's `duration` is stated for speed 1, which also counts wherever nothing is said. With devices of several models the slowest sets the
pace. `time_limit` and `grace` are seconds of the clock, `checkpoint` is seconds of work.
"""

from __future__ import annotations

import msgspec

from hetsched.model import NodeSpec
from hetsched.sim.plain import refuse

ANY_KIND = "*"
NO_DEVICE = "cpu"
FASTEST = 1e6

BySize = tuple[tuple[int, float], ...]
"""(devices, factor), most devices first."""


class Speeds(msgspec.Struct, frozen=True):
    """`factors`: by kind of task and device model."""

    factors: dict[str, dict[str, BySize]] = {}

    def factor(self, kind: str, node: NodeSpec, devices: tuple[str, ...]) -> float:
        """Of an attempt of such a task on these devices of the node."""
        if not self.factors:
            return 1.0
        by_model = self.factors.get(kind) or self.factors.get(ANY_KIND, {})
        held = set(devices)
        models = {device.model or "" for device in node.devices if device.id in held} or {NO_DEVICE}
        return min(_of_size(by_model.get(model, ((1, 1.0),)), len(devices)) for model in models)


def read_speeds(raw: object) -> Speeds:
    """The section of the file. Raises ScenarioRefused."""
    kinds = _mapping({} if raw is None else raw, "speeds", "kinds of tasks")
    return Speeds(
        {
            kind: {
                model: _by_size(said, f"speeds.{kind}.{model}")
                for model, said in _mapping(models, f"speeds.{kind}", "device models").items()
            }
            for kind, models in kinds.items()
        }
    )


def _of_size(by_size: BySize, devices: int) -> float:
    return next((factor for size, factor in by_size if size <= devices), by_size[-1][1])


def _by_size(raw: object, where: str) -> BySize:
    if not isinstance(raw, dict):
        return ((1, _factor(raw, where)),)
    sizes = {_size(size, where): _factor(factor, f"{where}.{size}") for size, factor in raw.items()}
    if not sizes:
        refuse(where, "needs at least one number of devices")
    return tuple(sorted(sizes.items(), reverse=True))


def _mapping(raw: object, where: str, of_what: str) -> dict[str, object]:
    if not isinstance(raw, dict) or not all(isinstance(key, str) and key for key in raw):
        refuse(where, f"must be a mapping of {of_what}")
    return raw


def _size(raw: object, where: str) -> int:
    size = int(raw) if isinstance(raw, str) and raw.isascii() and raw.isdigit() else raw  # JSON has no other keys
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        refuse(where, "must be a factor, or factors by whole numbers of devices")
    return size


def _factor(raw: object, where: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 1 / FASTEST <= raw <= FASTEST:
        refuse(where, "must be a factor of speed, above 0")
    return float(raw)
