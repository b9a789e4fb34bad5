"""Where the values of the metrics come from: counters and histograms from the events of each released turn, gauges from the view.

Released, not computed: a number here never tells of something that a crash could still undo.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hetsched import _core
from hetsched.daemon.fronts import FrontTotals
from hetsched.daemon.turns import Taken
from hetsched.errors import NotFound
from hetsched.metrics import LATENCY_BUCKETS_S, LONG_BUCKETS_S, OTHER, Metrics, Samples, observe_many
from hetsched.scheduler.messages import Event, FactRun, QueuedRun
from hetsched.scheduler.reasons import Reason

if TYPE_CHECKING:
    from hetsched.daemon.daemon import Daemon
    from hetsched.scheduler.view import View

ENDS = ("succeeded", "failed", "cancelled", "expired", "skipped")
OVER = {"requeued": "requeued", "backoff": "failed", **{end: end for end in ENDS}}
"""Events that end an attempt, and the outcome they are counted as."""


class Measure:
    """Fills `metrics` for one daemon."""

    def __init__(self, daemon: Daemon, metrics: Metrics) -> None:
        self._daemon = daemon
        self._metrics = metrics
        self._on: dict[str, Callable[[Event, float], None]] = {
            "placed": self._placed,
            "running": self._running,
            "preempted": self._preempted,
            "queued": self._queued,
            "rejected": lambda event, now_s: metrics.tasks_rejected.inc(),
            **dict.fromkeys(ENDS, self._ended),
        }
        _declare_gauges(daemon, metrics)

    def released(self, taken: Taken) -> None:
        """A turn is durable: count what it says."""
        metrics = self._metrics
        metrics.turn.observe(taken.stepped_s - taken.began_s)
        if taken.confirmed is not None:
            metrics.commit_latency.observe(time.monotonic() - taken.stepped_s)
        events = taken.turn.events
        if not events.parts:
            return
        now_ns = self._daemon.clock.now_ns()
        now_s = now_ns / 1e9
        flushed = 0
        for event in events.parts:
            if isinstance(event, QueuedRun):
                metrics.events_queued.inc(event.count)
                metrics.tasks_accepted.inc(event.count)
                continue
            if isinstance(event, FactRun):
                flushed += self._count_run(event, now_ns)
                continue
            metrics.events.labels(event.event).inc()
            if event.event in OVER and event.attempt:
                metrics.attempts.labels(OVER[event.event]).inc()
            handler = self._on.get(event.event)
            if handler is not None:
                handler(event, now_s)
            flushed += event.event == "placed" and event.data.get("lane") == "batch"
        if flushed:
            metrics.batch_size.observe(flushed)

    def _count_run(self, event: FactRun, now_ns: int) -> int:
        """Returns how many were placed in the batch lane."""
        metrics, run = self._metrics, event.run
        for name, count in (("placed", run.placed), ("running", run.started), ("succeeded", run.succeeded)):
            if count:
                metrics.events.labels(name).inc(count)
        if run.succeeded:
            metrics.attempts.labels("succeeded").inc(run.succeeded)
        for template, waits in run.waits(_core.F_PLACED, now_ns, LATENCY_BUCKETS_S).items():
            kind, qos = event.about[template]
            observe_many(metrics.e2e_latency.labels(metrics.task_type(kind), qos), *waits)
        for template, waits in run.waits(_core.F_STARTED, now_ns, LONG_BUCKETS_S).items():
            observe_many(metrics.queue_wait.labels(event.about[template][1]), *waits)
        for template, waits in run.waits(_core.F_ENDED, now_ns, LONG_BUCKETS_S, False).items():
            kind, qos = event.about[template]
            observe_many(metrics.completion.labels(metrics.task_type(kind), qos), *waits)
        return sum(count for level, count in enumerate(run.placed_by_level()) if event.lanes[level] == "batch")

    def _placed(self, event: Event, now_s: float) -> None:
        about = self._about(event.task)
        if about is not None and event.attempt == 1:
            kind, qos, submitted_s = about
            self._metrics.e2e_latency.labels(kind, qos).observe(max(0.0, now_s - submitted_s))

    def _running(self, event: Event, now_s: float) -> None:
        about = self._about(event.task)
        if about is not None and event.attempt == 1:
            self._metrics.queue_wait.labels(about[1]).observe(max(0.0, now_s - about[2]))

    def _ended(self, event: Event, now_s: float) -> None:
        about = self._about(event.task)
        if about is not None:
            self._metrics.completion.labels(about[0], about[1]).observe(max(0.0, now_s - about[2]))

    def _preempted(self, event: Event, now_s: float) -> None:
        victim, preemptor = self._about(event.task), self._about(event.data.get("by"))
        if victim is not None:
            self._metrics.preemptions.labels(victim[1], preemptor[1] if preemptor else "unknown").inc()
            if event.data.get("reason") == Reason.CONSOLIDATE.word:
                self._metrics.moves.labels(victim[1]).inc()

    def _queued(self, event: Event, now_s: float) -> None:
        if not event.attempt:
            self._metrics.tasks_accepted.inc()

    def _about(self, task: str | None) -> tuple[str, str, float] | None:
        """(task type, qos, submitted in seconds) of a task; None if it is forgotten already."""
        view = self._daemon.view
        try:
            slot = view.slot(task or "")
        except NotFound:
            return None
        row, body = view.core.task(slot), view.world.body(slot)
        return self._metrics.task_type(body.kind), str(body.qos), row.submitted_ns / 1e9


# ---------------------------------------------------------------------- gauges

FAILOVERS = (
    "Changes of leader that this process took part in: took_over, handed_over, deposed, store_moved, store_regressed"
)


def _declare_gauges(daemon: Daemon, metrics: Metrics) -> None:
    view, store = daemon.view, daemon.store
    gauge, total = metrics.gauge, metrics.total
    _declare_steering(view, metrics)
    gauge("scheduler_queue_depth", "Tasks that wait, per lane", ("queue_name",), lambda: _one_label(view.lanes()))
    gauge(
        "hetsched_fragmentation_ratio",
        "Of the free capacity of a kind, the share that the recent mix of shapes cannot use",
        ("kind",),
        lambda: (((kind,), found["ratio"]) for kind, found in view.cluster()["fragmentation"].items()),
    )
    gauge("hetsched_tasks", "Tasks by state", ("state",), lambda: _one_label(view.cluster()["tasks"]))
    gauge(
        "hetsched_pending_tasks",
        "Waiting tasks by coded reason",
        ("reason",),
        lambda: _one_label(view.pending_by_reason()),
    )
    gauge("hetsched_devices", "Devices", ("kind", "model", "state"), lambda: _devices(view.devices()))
    gauge("hetsched_nodes", "Nodes by state", ("state",), lambda: _count((node["state"],) for node in view.nodes()))
    gauge(
        "hetsched_device_utilization_ratio",
        "As last read by the agent",
        ("node", "device"),
        lambda: _utilization(daemon),
    )
    gauge(
        "hetsched_capacity",
        "Cores, bytes, devices that may take attempts",
        ("resource",),
        lambda: _one_label(view.cluster()["capacity"]),
    )
    gauge(
        "hetsched_used",
        "Cores, bytes, devices of that capacity held by live attempts",
        ("resource",),
        lambda: _one_label(view.cluster()["used"]),
    )
    gauge("hetsched_agents_connected", "Agents with a link", (), lambda: [((), len(daemon.links.by_node))])
    refused = "Agents that were turned away and have not joined since, at most the last 64"
    gauge("hetsched_agents_refused", refused, (), lambda: [((), len(daemon.links.refused))])
    gauge(
        "hetsched_batch_window_seconds",
        "How long the batch lane gathers now",
        (),
        lambda: [((), daemon.tuner.wait_s)],
    )
    gauge(
        "hetsched_batch_rest_seconds",
        "From the turn that decides to its frame on disk, mean of the last second",
        (),
        lambda: [((), daemon.tuner.rest_s.value)],
    )
    gauge(
        "hetsched_inbox_tasks",
        "Submitted tasks not yet taken by a turn",
        (),
        lambda: [((), daemon.turns.inbox.waiting_tasks)],
    )
    gauge("hetsched_watchers", "Streams of events and logs", (), lambda: [((), daemon.watchers)])
    gauge(
        "hetsched_loop_tasks", "Work under way in the daemon's event loop", (), lambda: [((), len(asyncio.all_tasks()))]
    )
    used = "Memory that the journal's server uses, as of its last answer"
    gauge("hetsched_journal_memory_bytes", used, (), lambda: [((), store.stats().memory_used_bytes)])
    gauge("hetsched_leader", "1 while this daemon leads", (), lambda: [((), int(store.leads))])
    gauge("hetsched_standbys", "Daemons that follow the journal", (), lambda: [((), len(store.standbys()))])
    total("hetsched_failovers", FAILOVERS, ("change",), lambda: _one_label(daemon.failovers))
    gauge("hetsched_epoch", "Its epoch", (), lambda: [((), daemon.epoch)])
    gauge(
        "hetsched_insecure",
        "1 when tokens cross the network in clear (--insecure)",
        (),
        lambda: [((), daemon.insecure)],
    )
    gauge(
        "hetsched_safe_mode",
        "1 while the journal cannot be read to its end and nothing is changed",
        (),
        lambda: [((), daemon.safe is not None)],
    )
    gauge("hetsched_event_sequence", "Number of the last event", (), lambda: [((), daemon.events.last_seq)])
    gauge(
        "hetsched_journal_bytes",
        "Appended since the last snapshot",
        (),
        lambda: [((), store.stats().since_snapshot_bytes)],
    )
    total(
        "hetsched_oscillations",
        "Evictions of tasks that had been evicted within the last ten minutes",
        (),
        lambda: [((), view.core.oscillations())],
    )
    gauge(
        "hetsched_prediction_error_ratio",
        "Mean error of learned run times, judged before each was learned",
        ("task_type",),
        lambda: _by_type(view.books.profiles.error(), metrics),
    )
    gauge("hetsched_profiles", "Learned profiles kept", (), lambda: [((), len(view.books.profiles.by_key))])
    total(
        "hetsched_scorer_dropped",
        "Decisions that went on without a plug-in's score",
        ("scorer", "reason"),
        lambda: view.world.ranking.dropped().items(),
    )
    total("hetsched_journal_appends", "Frames confirmed", (), lambda: [((), store.stats().appends_total)])
    total("hetsched_journal_resent", "Frames sent again after a cut", (), lambda: [((), store.stats().resent_total)])
    total("hetsched_snapshots", "Snapshots kept", (), lambda: [((), store.stats().snapshots_total)])
    total(
        "hetsched_submissions_fast",
        "Single tasks that the fast path took",
        (),
        lambda: [((), daemon.turns.inbox.fast_total)],
    )
    total("hetsched_submissions_refused", "Answered 429", (), lambda: [((), daemon.turns.inbox.refused)])
    if daemon.fronts is not None:
        _declare_fronts(daemon.fronts, metrics)


def _declare_fronts(fronts: FrontTotals, metrics: Metrics) -> None:
    """Of all front ends together."""
    metrics.gauge("hetsched_front_ends", "Front ends that are there", (), lambda: [((), fronts.crew)])
    metrics.gauge("hetsched_front_connections", "Connections they serve", (), lambda: [((), fronts.connections)])
    for name, said, value in (
        ("replaced", "Front ends that died and were replaced", lambda: fronts.replaced),
        ("requests", "Submissions that they answered", lambda: fronts.answered),
        ("handed_over", "Connections that they handed over", lambda: fronts.handed_over),
        ("cpu_seconds", "Processor time that they used", lambda: fronts.cpu_s),
    ):
        metrics.total(f"hetsched_front_{name}", said, (), partial(_alone, value))


def _alone(value: Callable[[], float]) -> Samples:
    return [((), value())]


def _declare_steering(view: View, metrics: Metrics) -> None:
    """What feedback sees and turns, and what is lent: nothing where that is off."""
    for metric, name, said in (
        (
            "hetsched_feedback_error_ratio",
            "error",
            "Mean (actual - predicted) / predicted run time of the last that ended",
        ),
        ("hetsched_feedback_gang_share_ratio", "gang_share", "Part of the cluster that gangs may hold ahead of others"),
        ("hetsched_feedback_overcommit_ratio", "overcommit", "Part of what overcommit allows that may be lent"),
        ("hetsched_feedback_sharers", "sharers", "Tasks that share a device before another one is begun"),
    ):
        metrics.gauge(metric, said, (), partial(_steered, view, name))
    metrics.gauge(
        "hetsched_overcommit_lent_ratio",
        "Promised beyond what nodes have, over capacity",
        ("resource",),
        lambda: _one_label(view.lent()),
    )


def _steered(view: View, name: str) -> Samples:
    return [((), value[name]) for value in view.feedback().values()]


def _one_label(values: Mapping[str, Any]) -> Samples:
    return (((name,), value) for name, value in values.items())


def _by_type(errors: dict[str, float], metrics: Metrics) -> Samples:
    """Types beyond the bound of the label are left out: a mean over strangers says nothing."""
    labelled = ((metrics.task_type(name), error) for name, error in errors.items())
    return (((name,), error) for name, error in labelled if name != OTHER)


def _count(labels: Iterable[tuple[str, ...]]) -> Samples:
    return Counter(labels).items()


def _devices(devices: list[dict[str, Any]]) -> Samples:
    return _count((device["kind"], device["model"] or "", _device_state(device)) for device in devices)


def _device_state(device: dict[str, Any]) -> str:
    """One word: its health if that is not good, else how much of it is used."""
    if device["health"] != "healthy":
        return str(device["health"])
    if not device["usable"]:
        return "closed"
    used = device["share_used"]
    return "free" if used == 0 else "full" if used >= 1000 else "shared"


def _utilization(daemon: Daemon) -> Samples:
    for node, reading in daemon.links.readings.all():
        if reading.utilization_percent is not None:
            yield (node, reading.device), reading.utilization_percent / 100
