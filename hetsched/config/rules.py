"""What has to hold between configuration values; each rule says which key to change and to what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from hetsched.config.tree import Config
from hetsched.model import Qos
from hetsched.model.reader import LONGEST_SECONDS
from hetsched.quantity import LARGEST, QuantityError, cpu_milli

PRESETS = (
    "price",
    "fragment",
    "pack",
    "spread",
    "random",
    "first-fit",
    "best-fit",
    "dot-product",
    "packing",
    "clustering",
    "fgd",
    "affinity",
    "multi-criteria",
    "least-loaded",
)
TERMS = (
    "performance",
    "delay",
    "power",
    "priority",
    "locality",
    "learned",
    "preset",
    "fragment",
    "pack",
    "spread",
    "load",
)
ORDERS = ("drf", "weighted", "fifo")
MOVES = ("off", "lower", "equal")
DURABILITIES = ("fsync", "replicated", "relaxed")
CELL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOG_LEVELS = ("debug", "info", "warning", "error")


def broken_rules(config: Config) -> Iterator[str]:
    """A sentence for every rule that does not hold."""
    for rule in _RULES:
        yield from rule(config)


def _words(config: Config) -> Iterator[str]:
    yield from _one_of("policy.preset", config.policy.preset, PRESETS)
    yield from _one_of("order", config.order, ORDERS)
    yield from _one_of("preemption.consolidate", config.preemption.consolidate, MOVES)
    yield from _one_of("store.durability", config.store.durability, DURABILITIES)
    yield from _one_of("server.log_level", config.server.log_level, LOG_LEVELS)
    for qos in config.lanes.immediate:
        yield from _one_of("lanes.immediate", qos, tuple(Qos))


def _names(config: Config) -> Iterator[str]:
    if config.store.cell and not CELL.fullmatch(config.store.cell):
        yield f'store.cell is "{config.store.cell}", must be at most 64 of a-z, A-Z, 0-9, ".", "_", "-"'


def _cells(config: Config) -> Iterator[str]:
    cells = config.cells
    for queue, names in cells.queues.items():
        if not names or not all(CELL.fullmatch(name) for name in names):
            yield f"cells.queues.{queue} must name cells"
    if cells.digest_keep < 2 * cells.digest_every:
        yield f"cells.digest_keep ({cells.digest_keep}) must be at least twice cells.digest_every ({cells.digest_every})"
    if config.agent.cell and not CELL.fullmatch(config.agent.cell):
        yield f'agent.cell is "{config.agent.cell}", which no cell can be called'


def _one_of(key: str, value: str, known: tuple[str, ...]) -> Iterator[str]:
    if value not in known:
        yield f'{key} is "{value}", must be one of {", ".join(known)}'


def _amounts(config: Config) -> Iterator[str]:
    for key, value in (("defaults.cpu", config.defaults.cpu), ("agent.reserve_cpu", config.agent.reserve_cpu)):
        try:
            cpu_milli(value)
        except QuantityError as error:
            yield f"{key}: {error}"


def _positive(config: Config) -> Iterator[str]:
    """Whole numbers and durations that make no sense at or below zero."""
    for key in (
        "batch.size",
        "limits.body_bytes",
        "limits.inbox_tasks",
        "limits.array_tasks",
        "limits.bulk_tasks",
        "limits.retention_tasks",
        "limits.events_kept",
        "limits.audit_kept",
        "limits.idempotency_keys",
        "limits.shapes",
        "limits.profiles",
        "limits.watchers",
        "limits.plan_tasks",
        "limits.plan_time",
        "limits.nodes",
        "limits.graphs",
        "limits.graph_operators",
        "graphs.bandwidth_bytes",
        "server.header_timeout",
        "server.body_timeout",
        "server.connections_per_address",
        "store.snapshot_bytes",
        "store.snapshot_every",
        "store.lease",
        "cells.digest_every",
        "cells.digest_keep",
        "cells.remind_after",
        "agent.lease",
        "agent.heartbeat",
        "agent.pull_every",
        "agent.measure_every",
        "agent.log_bytes",
        "agent.log_total_bytes",
        "agent.log_attempts",
        "health.cordon_tasks",
        "policy.scorer_budget",
    ):
        value = _value(config, key)
        if not 0 < value <= _most(value):
            yield f"{key} is {value}, must be above 0 and at most {_most(value):g}"


def _not_negative(config: Config) -> Iterator[str]:
    for key in (
        "batch.max_wait",
        "batch.min_wait",
        "batch.latency",
        "policy.strand_limit",
        "policy.patience",
        "preemption.blast_radius",
        "preemption.delay",
        "gang.repair",
        "server.longest_wait",
        "server.drain_timeout",
        "store.memory_bytes",
        "agent.log_retention",
        "agent.reserve_memory_bytes",
        "health.cordon_within",
    ):
        value = _value(config, key)
        if not 0 <= value <= _most(value):
            yield f"{key} is {value}, must not be negative, and at most {_most(value):g}"


def _ranges(config: Config) -> Iterator[str]:
    for queue, delay in config.preemption.queue_delay.items():
        if not 0 <= delay <= _most(delay):
            yield f"preemption.queue_delay.{queue} is {delay}, must not be negative, and at most {_most(delay):g}"
    for name in ("cpu", "memory"):
        ratio = getattr(config.overcommit, name)
        if not 1 <= ratio <= 100:
            yield f"overcommit.{name} is {ratio}, must be from 1 (off) to 100"
    if not 0 <= config.server.workers <= 64:
        yield f"server.workers is {config.server.workers}, must be from 0 (no front ends) to 64"
    feedback = config.feedback
    for name in ("gang_share_most", "overcommit_least"):
        if not 0 <= getattr(feedback, name) <= 1:
            yield f"feedback.{name} is {getattr(feedback, name)}, must be a part from 0 to 1"
    if not 1 <= feedback.sharers <= feedback.sharers_most <= 1000:
        yield f"feedback.sharers ({feedback.sharers}) must be from 1 to feedback.sharers_most ({feedback.sharers_most}), and that at most 1000"
    if not 0 < config.health.push_utilization <= 100:
        yield f"health.push_utilization is {config.health.push_utilization}, must be a percentage above 0"


def _weights(config: Config) -> Iterator[str]:
    """Terms that exist, weights that are weights."""
    policy = config.policy
    for key, weights in (
        ("policy.weights", policy.weights),
        *((f"policy.types.{task_type}", weights) for task_type, weights in policy.types.items()),
    ):
        for term in weights:
            yield from _one_of(f"{key}: the term", term, TERMS)
        yield from _each_weight(key, weights)
    for name in policy.scorers:
        if name in TERMS:
            yield f"policy.scorers.{name} has the name of a term; rename the entry point"
    yield from _each_weight("policy.scorers", policy.scorers)
    if not 1 <= policy.locality <= 100:
        yield f"policy.locality is {policy.locality}, must be a factor from 1 (off) to 100"


def _each_weight(key: str, weights: Mapping[str, float]) -> Iterator[str]:
    for name, weight in weights.items():
        if not 0 <= weight <= 100:
            yield f"{key}.{name} is {weight}, must be a weight from 0 (off) to 100"


def _relations(config: Config) -> Iterator[str]:
    agent, health, limits = config.agent, config.health, config.limits
    if agent.heartbeat * 2 > agent.lease:
        yield f"agent.lease ({agent.lease}) must be at least twice agent.heartbeat ({agent.heartbeat}), else one late message loses a node"
    hot, critical = health.hot_celsius, health.critical_celsius
    if not 0 < hot <= critical <= 1000:
        yield f"health.hot_celsius ({hot}) must be above 0 and at most health.critical_celsius ({critical}), and that at most 1000"
    if limits.array_tasks > limits.inbox_tasks:
        yield f"limits.inbox_tasks must be at least limits.array_tasks ({limits.array_tasks}), else such an array can never be taken"
    if limits.bulk_tasks > limits.inbox_tasks:
        yield f"limits.inbox_tasks must be at least limits.bulk_tasks ({limits.bulk_tasks}), else such a list can never be taken"
    if bool(config.server.tls_cert) != bool(config.server.tls_key):
        yield "server.tls_cert and server.tls_key belong together: give both or none"


def _most(value: float) -> float:
    """Durations are what has a point; in nanoseconds they have to stay whole numbers of the core."""
    return LONGEST_SECONDS if isinstance(value, float) else LARGEST


def _value(config: Config, key: str) -> float:
    section, name = key.split(".")
    value: float = getattr(getattr(config, section), name)
    return value


_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    _words,
    _names,
    _cells,
    _amounts,
    _positive,
    _not_negative,
    _ranges,
    _weights,
    _relations,
)
