"""The small bodies that are read, and the shape of what is answered, as Structs: decoded with them, documented from them.

Tasks themselves are read by `hetsched.model`; `TaskBody` states their fields for `/openapi.json`, and a test keeps the two equal.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hetsched.scheduler.view_profiles import ProfileRow


class FinishBody(msgspec.Struct, forbid_unknown_fields=True):
    """The end of a lease-only task. `attempt`: the one that has ended; a stale one is refused."""

    attempt: int
    status: Literal["succeeded", "failed"]
    reason: str = ""


class PriorityBody(msgspec.Struct, forbid_unknown_fields=True):
    """−1000 … 1000, within the task's qos."""

    priority: int


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which tasks: by ids, or all that match every selector given. `label` is `key=value`."""

    ids: list[str] | None = None
    queue: str | None = None
    label: str | None = None
    qos: Literal["critical", "production", "best_effort", "background"] | None = None
    state: str | None = None


class HandoverBody(msgspec.Struct, forbid_unknown_fields=True):
    """`to`: name or URL of a standby; absent = the one that is furthest."""

    to: str | None = None


class QueueBody(msgspec.Struct, forbid_unknown_fields=True):
    """Amounts as in `resources`."""

    weight: int = 1
    guaranteed: dict[str, Any] = {}
    limit: dict[str, Any] = {}


class ProfilesBody(msgspec.Struct, forbid_unknown_fields=True):
    """What `GET /v1/profiles?times=true` answers; `lag` of a standby's answer is not read."""

    profiles: list[ProfileRow]
    lag: float | None = None


class TaskBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A task as it is submitted. Only `resources` or `command` is needed."""

    id: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}
    kind: str = "batch"
    queue: str = "default"
    qos: Literal["critical", "production", "best_effort", "background"] = "production"
    guarantee: Literal["guaranteed", "burstable", "best_effort"] | None = None
    preemptible: bool | None = None
    priority: int = 0
    resources: dict[str, Any] = {}
    limits: dict[str, Any] | None = None
    pattern: Literal["matrix-heavy", "control-heavy", "tensor-op"] | None = None
    node_selector: dict[str, str | list[str]] = {}
    models: list[str] = []
    tolerations: list[dict[str, str]] = []
    data: list[str] = []
    topology: dict[str, Any] | None = None
    gang: dict[str, Any] | None = None
    after: list[str | dict[str, str]] = []
    deadline: float | str | None = None
    on_deadline: Literal["continue", "expire"] = "continue"
    estimate: float | None = None
    time_limit: float | None = None
    grace: float = 30.0
    retries: int = 3
    retry_on: list[str] = []
    command: list[str] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    user: str | None = None
    duration: float | None = None
    on_lost: str = "requeue"
    checkpoint: float | None = None
    stop_time: float | None = None
    usage: float | dict[str, Any] | list[dict[str, Any]] | None = None


class ArrayBody(msgspec.Struct, kw_only=True):
    """An array job: `count` times the template with ids `ID-0` …, or one task per entry, whose fields replace the template's."""

    template: TaskBody
    count: int | None = None
    tasks: list[TaskBody] | None = None


class Placement(msgspec.Struct):
    """Shares in thousandths of a device."""

    node: str
    devices: list[dict[str, Any]]


class Accepted(msgspec.Struct, kw_only=True):
    """One task is in the journal, as durable as `durability` says."""

    id: str
    state: str
    lane: str
    durability: str
    placement: Placement | None = None
    request: TaskBody | None = None


class Rejected(msgspec.Struct):
    """Item `index` of the body is refused."""

    index: int
    problem: dict[str, Any]


class FirstAndCount(msgspec.Struct):
    """Ids of an array: `first` ends in -0, the last in -(count-1)."""

    first: str
    count: int


class ManyAccepted(msgspec.Struct, kw_only=True):
    """`ids` of the accepted ones in the order of the body."""

    accepted: int
    rejected: list[Rejected]
    ids: list[str] | FirstAndCount
    durability: str


class Eta(msgspec.Struct):
    """Seconds from now. p50: estimates are right; p90: everything takes twice its estimate, or its whole limit."""

    p50: float
    p90: float


class PlannedTask(msgspec.Struct, kw_only=True):
    """`starts`: now, after_victims (`placement` is claimed) or later (`reason` says why); absent where the task is known and over.
    `id`: as given, null where one would be generated. `known`: the same task was submitted before."""

    index: int
    id: str | None
    state: str
    lane: str
    known: bool
    starts: Literal["now", "after_victims", "later"] | None = None
    eta: Eta | None = None
    eta_reason: str | None = None
    placement: Placement | None = None
    victims: list[dict[str, Any]] = []
    price_device_seconds: float | None = None
    proof: str | None = None
    reason: str | None = None
    detail: str | None = None
    numbers: dict[str, Any] = {}
    secondary: list[dict[str, Any]] = []
    nodes: dict[str, int] = {}
    position: int | None = None


class PlanSummary(msgspec.Struct):
    """Counts of tasks, and what the evictions would cost."""

    tasks: int
    now: int
    after_victims: int
    later: int
    rejected: int
    victims: int
    price_device_seconds: float


class LeftOut(msgspec.Struct):
    """Operators of a graph under way that are no tasks yet: an answer does not count with them."""

    graph: str
    operators: int
    detail: str


class Plan(msgspec.Struct):
    """What submitting the body would do now; nothing was changed."""

    tasks: list[PlannedTask]
    rejected: list[Rejected]
    summary: PlanSummary
    left_out: list[LeftOut] = []


class Effect(msgspec.Struct, kw_only=True):
    """What a remedy did on a copy of the scheduler."""

    starts: Literal["now", "after_victims", "later"]
    node: str
    eta_seconds: float
    devices: list[dict[str, Any]] = []
    nodes: list[str] = []
    victims: list[str] = []
    price_device_seconds: float = 0.0


class Remedy(msgspec.Struct):
    """`by`: submitter, operator or nobody. `change`: fields of the task as they would be, null = left out.
    `calls`: method, path and body of what does it."""

    code: str
    detail: str
    by: str
    how: str
    change: dict[str, Any]
    calls: list[dict[str, Any]]
    effect: Effect


class OrderTerm(msgspec.Struct, kw_only=True):
    """`value`: 0 to 1; null where the core tells none."""

    term: str
    weight: float
    value: float | None
    what: str
    source: str


class QueueShare(msgspec.Struct, kw_only=True):
    """`resource`: of which the queue uses the largest part of the cluster's, `share`; null while it uses nothing."""

    queue: str
    share: float
    resource: str | None
    weight: int
    share_over_weight: float


class LiftedPriority(msgspec.Struct, kw_only=True):
    """Points: its own, by age (a whole minute is one), and both together."""

    own: int
    age: int
    lifted: int


class Order(msgspec.Struct, kw_only=True):
    """What the configured order compares. `is_owed`, `queues` (innermost first): of `drf`; `terms`, `score` (their weighted sum, null where
    one is not known): of `weighted`."""

    name: str
    formula: str
    source: str
    qos: str
    priority: LiftedPriority
    deadline: str | None
    sequence: int
    is_owed: bool | None = None
    queues: list[QueueShare] = []
    terms: list[OrderTerm] = []
    score: float | None = None


class Explained(msgspec.Struct, kw_only=True):
    """Of a task that waits: everything; of another: reason and detail, and where it is."""

    id: str
    state: str
    reason: str
    detail: str
    numbers: dict[str, Any] = {}
    secondary: list[dict[str, Any]] = []
    nodes: dict[str, int] = {}
    nodes_that_fit: int | None = None
    nodes_that_could_ever: int | None = None
    position: int | None = None
    order: Order | None = None
    eta: Eta | None = None
    eta_seconds: float | None = None
    eta_reason: str | None = None
    remedies: list[Remedy] = []
    constraint: dict[str, Any] | None = None
    free: dict[str, dict[str, float]] = {}
    left_out: list[LeftOut] = []
    history: list[dict[str, Any]] = []
    claim: dict[str, Any] | None = None
    node: str | None = None
    devices: list[dict[str, Any]] = []


class OperatorBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One operator of a graph; any other field is one of the task as which it runs. One of `cost` and `cost_per_sample` is needed."""

    id: str
    cost: float | None = None
    cost_per_sample: float | None = None
    samples: int | dict[str, int] | None = None
    chunk: int = 1
    after: list[str | dict[str, Any]] = []
    speeds: dict[str, float] = {}
    alternatives: list[dict[str, Any]] = []
    pattern: Literal["matrix-heavy", "control-heavy", "tensor-op"] | None = None
    kind: str = "batch"
    resources: dict[str, Any] = {}
    command: list[str] | None = None


class GraphBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A graph of operators, over a range of samples or not. `template`: fields of the tasks of all operators."""

    id: str | None = None
    name: str | None = None
    samples: int | dict[str, int] | None = None
    template: dict[str, Any] = {}
    operators: list[OperatorBody]


class GraphAccepted(msgspec.Struct, kw_only=True):
    """The graph is in the journal, as durable as `durability` says."""

    id: str
    state: str
    operators: int
    durability: str


class ProblemBody(msgspec.Struct, kw_only=True):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] = []
