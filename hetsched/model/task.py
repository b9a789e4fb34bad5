"""A task as everybody inside sees it: checked, normalised, frozen.

Made only by `hetsched.model.read.parse_task`; whoever holds one may believe it. Nothing in one leads back to it, so the collector of cycles,
which would look through hundreds of thousands of them, does not (`gc=False`). Units are in the names: cpu in
millicores, memory in bytes, shares in thousandths of a device; bare seconds (`duration`, `grace`, …) as in CONTRACT section 2.
"""

from __future__ import annotations

import msgspec

from hetsched.model.words import Guarantee, Qos


class DeviceAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a task wants of one kind: `whole` devices and `parts` parts of `part_milli` on that many other devices.

    `memory_bytes`: per device asked. A whole device must have it (and gives all it has); a part reserves it.
    `models`: allowed ones, best first; empty = any. Not `ordered`: as good as each other (what traces say; bodies cannot).
    """

    kind: str
    whole: int = 0
    parts: int = 0
    part_milli: int = 0
    memory_bytes: int = 0
    models: tuple[str, ...] = ()
    ordered: bool = True

    @property
    def total_milli(self) -> int:
        """Thousandths of a device over all devices asked."""
        return self.whole * 1000 + self.parts * self.part_milli


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a task asks of one node. `devices`: one ask per kind, by kind's name."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    devices: tuple[DeviceAsk, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What an attempt of a simulated task really uses; what is not said: `part_milli` thousandths of what it asked for.
    `at`: from so many seconds after its start on, until the next of `later`. Only overcommit and feedback look at it."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    devices_milli: dict[str, int] = {}
    part_milli: int = 1000
    at: float = 0.0
    later: tuple[Usage, ...] = ()


class Toleration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Kubernetes rules: empty `key` with Exists tolerates all; empty `effect` matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Topology(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`same`: numa | nvlink | pcie (one switch) | node | rack | zone | any label. Not required = preferred."""

    same: str
    required: bool = False


class GangRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Membership in a gang; nothing of it runs until `min_size` members fit at once."""

    id: str
    size: int
    min_size: int


class Dependency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Wait for `id` to be succeeded | failed | ended."""

    id: str
    when: str = "succeeded"


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """CONTRACT section 2, every default filled in.

    `id` None: one is generated at acceptance. `deadline_ns`: nanoseconds from submission, or since 1970 where
    `deadline_absolute`. `duration`, `stop_time`, `usage`, `checkpoint` speak of simulated (and lease-only) tasks.
    """

    id: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}
    kind: str = "batch"
    queue: str = "default"
    qos: Qos = Qos.production
    guarantee: Guarantee = Guarantee.guaranteed
    preemptible: bool = False
    priority: int = 0
    resources: Resources = Resources()
    limits: Resources | None = None
    pattern: str | None = None
    node_selector: dict[str, tuple[str, ...]] = {}
    models: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    data: tuple[str, ...] = ()
    topology: Topology | None = None
    gang: GangRef | None = None
    after: tuple[Dependency, ...] = ()
    deadline_ns: int | None = None
    deadline_absolute: bool = False
    on_deadline: str = "continue"
    estimate: float | None = None
    time_limit: float | None = None
    grace: float = 30.0
    retries: int = 3
    retry_on: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    user: str | None = None
    duration: float | None = None
    on_lost: str = "requeue"
    checkpoint: float | None = None
    stop_time: float | None = None
    usage: Usage | None = None

    @property
    def ceiling(self) -> Resources:
        """Most of its node that it may use: a burstable task up to its limits, any other what it asked for; 0 = no limit."""
        return self.limits if self.guarantee is Guarantee.burstable and self.limits is not None else self.resources
