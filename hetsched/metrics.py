"""The names of all metrics, and nothing else: what is measured where is `daemon/measure.py`.

Three names are the sources' own, kept to the letter (CONTRACT, section 6); the rest is `hetsched_*` in base units, `_total` on counters.
Labels are closed sets or bounded: never a task id, a user, or the text of an error. `task_type` is said by submitters, so after
`MOST_TYPES` different ones the rest is counted as "other".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

MOST_TYPES = 64
OTHER = "other"

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)
LONG_BUCKETS_S = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 21600, 86400, 604800)
COMMIT_BUCKETS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30)
SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000)

disable_created_metrics()  # type: ignore[no-untyped-call]

Samples = Iterable[tuple[tuple[str, ...], float]]
"""(label values, value) pairs."""


class Metrics:
    """One registry. Histograms and counters are attributes; gauges are asked for when somebody scrapes (`gauge`)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tallies: list[Tally | Sum] = []
        self._gauges = _Asked()
        self.registry.register(self._gauges)
        self._types: set[str] = set()
        self.e2e_latency = self._histogram(
            "scheduler_e2e_latency_seconds",
            "From acceptance of a task to the dispatch of its first attempt",
            ("task_type", "qos_level"),
            LATENCY_BUCKETS_S,
        )
        self.preemptions = self._counter(
            "scheduler_preemptions", "Attempts stopped for another task", ("victim_qos", "preemptor_qos")
        )
        self.moves = self._counter(
            "hetsched_moves", "Preemptions of attempts that had room elsewhere at that moment", ("victim_qos",)
        )
        self.queue_wait = self._histogram(
            "hetsched_queue_wait_seconds", "From submission to first running", ("qos_level",), LONG_BUCKETS_S
        )
        self.completion = self._histogram(
            "hetsched_completion_seconds", "From submission to the end", ("task_type", "qos_level"), LONG_BUCKETS_S
        )
        self.attempts = self._counter("hetsched_attempts", "Attempts that are over", ("outcome",))
        self.tasks_accepted = self._sum(self._counter("hetsched_tasks_accepted", "Tasks accepted", ()))
        self.tasks_rejected = self._counter("hetsched_tasks_rejected", "Tasks refused after they were read", ())
        self.commit_latency = self._tally(
            "hetsched_journal_commit_seconds", "From handing a frame to the store to its confirmation"
        )
        self.turn = self._tally("hetsched_turn_seconds", "Computing one turn")
        self.loop_lag = self._tally("hetsched_loop_lag_seconds", "How late the event loop comes to what is due")
        self.batch_size = self._histogram(
            "hetsched_batch_size", "Tasks of the batch lane placed by one flush", (), SIZE_BUCKETS
        )
        self.events = self._counter("hetsched_events", "Lines of the event log", ("event",))
        self.events_queued = self._sum(self.events.labels("queued"))

    def gauge(self, name: str, text: str, labels: tuple[str, ...], ask: Callable[[], Samples]) -> None:
        """A gauge whose values are computed at the scrape."""
        self._gauges.add(name, text, labels, ask)

    def total(self, name: str, text: str, labels: tuple[str, ...], ask: Callable[[], Samples]) -> None:
        """A counter kept elsewhere, read at the scrape; `name` without `_total`."""
        self._gauges.add(name, text, labels, ask, counts=True)

    def task_type(self, kind: str) -> str:
        """The label for a task's kind, bounded."""
        if kind not in self._types:
            if len(self._types) >= MOST_TYPES:
                return OTHER
            self._types.add(kind)
        return kind

    def render(self) -> bytes:
        """Prometheus text."""
        for tally in self._tallies:
            tally.fold()
        return generate_latest(self.registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _tally(self, name: str, text: str) -> Tally:
        tally = Tally(self._histogram(name, text, (), COMMIT_BUCKETS_S), COMMIT_BUCKETS_S)
        self._tallies.append(tally)
        return tally

    def _sum(self, counter: Counter) -> Sum:
        found = Sum(counter)
        self._tallies.append(found)
        return found

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)


def observe_many(histogram: Histogram, counts: Sequence[int], total: float) -> None:
    """So many values up to each bound and beyond the last, which add up to `total`; the library knows single ones only."""
    histogram._sum.inc(total)
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)


class Sum:
    """A counter that every turn tells, which is told to the library when somebody scrapes: there it takes a lock each time."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._count = 0

    def inc(self, count: int = 1) -> None:
        """So many more."""
        self._count += count

    def fold(self) -> None:
        """Tell the library."""
        self._counter.inc(self._count)
        self._count = 0

    def collect(self) -> Iterable[Metric]:
        """As the library's own, of now."""
        self.fold()
        return self._counter.collect()


class Tally:
    """The same for a histogram without labels; there the bucket is looked for one by one."""

    def __init__(self, histogram: Histogram, bounds: tuple[float, ...]) -> None:
        self._histogram = histogram
        self._bounds = bounds
        self._begin()

    def _begin(self) -> None:
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """One value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def fold(self) -> None:
        """Tell the library."""
        observe_many(self._histogram, self._counts, self._total)
        self._begin()


class _Asked(Collector):
    """Families that are asked for their values."""

    def __init__(self) -> None:
        self._families: list[tuple[str, str, tuple[str, ...], Callable[[], Samples], bool]] = []

    def add(
        self, name: str, text: str, labels: tuple[str, ...], ask: Callable[[], Samples], *, counts: bool = False
    ) -> None:
        self._families.append((name, text, labels, ask, counts))

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: values exist only once somebody scrapes."""
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        for name, text, labels, ask, counts in self._families:
            family = (CounterMetricFamily if counts else GaugeMetricFamily)(name, text, labels=labels)
            for values, number in ask():
                family.add_metric(list(values), number)
            yield family
