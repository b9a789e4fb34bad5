"""The configuration as one typed tree; defaults stand here and nowhere else.

To add a key: a member here, its line in `configs/hetsched.toml` (a test keeps that complete), a rule in `rules.py` if it must
agree with another. Durations are seconds unless the name says otherwise; `*_bytes` may be written "16Mi".
"""

from __future__ import annotations

import msgspec

from hetsched.model import TaskDefaults
from hetsched.quantity import cpu_milli


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections."""


class Server(Section, frozen=True, kw_only=True):
    """Where the API listens and how long it waits for slow clients. `name`, `advertise`: this daemon among those that share its store.
    `workers`: front ends, processes beside the deciding one that read what clients send; 0 = that is done in the one process."""

    listen: str = "127.0.0.1:7463"
    name: str = ""
    advertise: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()
    header_timeout: float = 10.0
    body_timeout: float = 60.0
    connections_per_address: int = 2048
    longest_wait: float = 300.0
    drain_timeout: float = 20.0
    log_level: str = "info"
    workers: int = 0


class Batch(Section, frozen=True, kw_only=True):
    """The batch lane's window: upper bounds (it may flush sooner, never later), and the mean latency that the daemon tunes it for."""

    max_wait: float = 0.05
    min_wait: float = 0.002
    latency: float = 0.02
    size: int = 256


class Lanes(Section, frozen=True, kw_only=True):
    """Which levels of qos are decided in the turn they arrive in."""

    immediate: tuple[str, ...] = ("critical",)


class Policy(Section, frozen=True, kw_only=True):
    """How nodes are ranked. `weights`: by term, over the preset's. `types`: the same by type of task. `scorers`: weights of plug-ins.
    `locality`: factor for a node that holds the task's data. `scorer_budget`: seconds a plug-in may take of one decision.
    `strand_limit`: thousandths of a device that a core of a task without devices may strand before the task waits; 0 = any (`price`).
    `patience`: seconds that a task may wait, where little is free, rather than leave a rest of a device that is of no use (`price`)."""

    preset: str = "price"
    strand_limit: int = 0
    patience: float = 0
    weights: dict[str, float] = {}
    types: dict[str, dict[str, float]] = {}
    locality: float = 1.5
    scorers: dict[str, float] = {}
    scorer_budget: float = 0.02


class Preemption(Section, frozen=True, kw_only=True):
    """Bounds of evicting. `delay`: seconds that a task waits before it may evict; `queue_delay`: the same by queue, for it and those below.
    `consolidate`: who counts as moved rather than evicted, of MOVES in rules.py."""

    enabled: bool = True
    blast_radius: int = 8
    delay: float = 0.0
    queue_delay: dict[str, float] = {}
    consolidate: str = "lower"


class Gang(Section, frozen=True, kw_only=True):
    """Gangs that lost members."""

    repair: float = 60.0


class Graphs(Section, frozen=True, kw_only=True):
    """Graphs of operators: how fast data gets from node to node, bytes a second."""

    bandwidth_bytes: int = 1_250_000_000


class Backfill(Section, frozen=True, kw_only=True):
    """Going before a blocked head."""

    enabled: bool = True


class Overcommit(Section, frozen=True, kw_only=True):
    """Most that a node promises of its cpu and memory, over what it has; 1 = off. What is promised beyond the node is what tasks hold and
    do not use, as measured, and only tasks with `guarantee: best_effort` stand on it."""

    cpu: float = 1.0
    memory: float = 1.0


class Feedback(Section, frozen=True, kw_only=True):
    """The controller that turns gang share, overcommit and sharing by how far predictions were off. Off: what nobody asked for does not
    change by itself. `gang_share_most`: of the cluster, that gangs may come to hold ahead of single tasks. `overcommit_least`: of what
    `overcommit` allows, that stays. `sharers`, `sharers_most`: tasks that share a device before another one is begun, at first and at most."""

    enabled: bool = False
    gang_share_most: float = 0.5
    overcommit_least: float = 0.25
    sharers: int = 4
    sharers_most: int = 16


class Defaults(Section, frozen=True, kw_only=True):
    """What a task asks for that does not say."""

    cpu: int | float | str = 0


class Limits(Section, frozen=True, kw_only=True):
    """Bounds on what is kept and what one request may hold. Over them: 413, 422 or 429, never memory without end."""

    body_bytes: int = 32 * 1024 * 1024
    inbox_tasks: int = 200_000
    array_tasks: int = 100_000
    bulk_tasks: int = 50_000
    retention_tasks: int = 100_000
    events_kept: int = 100_000
    audit_kept: int = 10_000
    idempotency_keys: int = 100_000
    shapes: int = 16_384
    profiles: int = 4_096
    watchers: int = 1_000
    plan_tasks: int = 5_000
    plan_time: float = 1.0
    nodes: int = 50_000
    graphs: int = 1_000
    graph_operators: int = 10_000


class Store(Section, frozen=True, kw_only=True):
    """The journal. `lease`: a leader of a shared store is thought gone after so many seconds without a renewal. Three, because a server that
    rewrites its file may be dumb for one, and because a standby is to lead within five of a leader's death. `cell`: the part of a larger
    cluster that this daemon leads or stands by for; "" = there are no parts."""

    url: str = "embedded:"
    cell: str = ""
    server: str = ""
    durability: str = "fsync"
    lease: float = 3.0
    snapshot_bytes: int = 256 * 1024 * 1024
    snapshot_every: float = 300.0
    memory_bytes: int = 0


class Cells(Section, frozen=True, kw_only=True):
    """Of a cluster that is parted (`store.cell`). `queues`: queue → the cells that its tasks, and those of queues below it, may be in. `spill`:
    whether tasks go where there is room when there is none here. `digest_every`: seconds between two digests; one that is `digest_keep`
    old counts for nothing. `remind_after`: seconds without a verdict after which a parcel is sent again."""

    queues: dict[str, tuple[str, ...]] = {}
    spill: bool = True
    digest_every: float = 1.0
    digest_keep: float = 5.0
    remind_after: float = 5.0


class Agent(Section, frozen=True, kw_only=True):
    """Node agents: what the daemon demands of them, and what one says about its own node."""

    lease: float = 15.0
    heartbeat: float = 3.0
    pull_every: float = 5.0
    server: str = ""
    cell: str = ""
    name: str = ""
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    reserve_cpu: int | float | str = 0
    reserve_memory_bytes: int = 0
    measure_every: float = 2.0
    enforce: bool = True
    allow_root: bool = False
    default_user: str = "nobody"
    users: tuple[str, ...] = ()
    executables: tuple[str, ...] = ()
    env_deny: tuple[str, ...] = ("LD_PRELOAD", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_ENV")
    log_bytes: int = 1024 * 1024 * 1024
    log_retention: float = 7 * 86_400.0
    log_total_bytes: int = 20 * 1024 * 1024 * 1024
    log_attempts: int = 20_000


class Health(Section, frozen=True, kw_only=True):
    """When a device or a node is no longer trusted."""

    push_utilization: float = 90.0
    hot_celsius: float = 90.0
    critical_celsius: float = 100.0
    quarantine: bool = True
    auto_cordon: bool = True
    cordon_tasks: int = 3
    cordon_within: float = 300.0


class Auth(Section, frozen=True, kw_only=True):
    """Tokens beside the two that are made at first start. `directory`: shared by all daemons of a store (a mount, or kept equal somehow):
    whoever starts first leaves its two tokens there, the others take them, and `tokens.json` there counts for all. "" = each has its own."""

    directory: str = ""
    tokens: tuple[AuthToken, ...] = ()


class AuthToken(Section, frozen=True, kw_only=True):
    """`sha256` of the secret in hex; the secret itself is kept nowhere."""

    name: str
    sha256: str
    scopes: tuple[str, ...]
    queues: tuple[str, ...] = ()


class Config(Section, frozen=True, kw_only=True):
    """The whole tree."""

    order: str = "drf"
    sharing: bool = True
    reject_unsatisfiable: bool = False
    server: Server = Server()
    batch: Batch = Batch()
    lanes: Lanes = Lanes()
    policy: Policy = Policy()
    preemption: Preemption = Preemption()
    gang: Gang = Gang()
    graphs: Graphs = Graphs()
    backfill: Backfill = Backfill()
    overcommit: Overcommit = Overcommit()
    feedback: Feedback = Feedback()
    defaults: Defaults = Defaults()
    limits: Limits = Limits()
    store: Store = Store()
    cells: Cells = Cells()
    agent: Agent = Agent()
    health: Health = Health()
    auth: Auth = Auth()

    def task_defaults(self) -> TaskDefaults:
        """What readers of task bodies have to know of it."""
        return TaskDefaults(
            cpu_milli=cpu_milli(self.defaults.cpu),
            array_tasks=self.limits.array_tasks,
            bulk_tasks=self.limits.bulk_tasks,
        )
