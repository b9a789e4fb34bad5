"""What every turn tells the metrics is there at the scrape, as if the library had been told each time."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from hetsched.metrics import COMMIT_BUCKETS_S, Metrics


@pytest.mark.parametrize("values", [[], [0.0], [0.0001, 0.00011, 0.02, 29.9, 30.0, 31.0, 1e9], list(COMMIT_BUCKETS_S)])
def test_a_histogram_that_was_told_at_the_scrape_is_that_of_the_library(values: list[float]) -> None:
    metrics, registry = Metrics(), CollectorRegistry()
    plain = Histogram("hetsched_turn_seconds", "Computing one turn", buckets=COMMIT_BUCKETS_S, registry=registry)
    for value in values:
        plain.observe(value)
        metrics.turn.observe(value)
        metrics.render()
    wanted = generate_latest(registry).decode().splitlines()
    assert [line for line in metrics.render().decode().splitlines() if "hetsched_turn_seconds" in line] == wanted


def test_counters_count_on_over_scrapes_and_share_their_name_with_others() -> None:
    metrics = Metrics()
    for count in (3, 4):
        metrics.tasks_accepted.inc(count)
        metrics.events_queued.inc(count)
        metrics.events.labels("queued").inc()
        text = metrics.render().decode()
    assert "\nhetsched_tasks_accepted_total 7.0\n" in text and '\nhetsched_events_total{event="queued"} 9.0\n' in text
