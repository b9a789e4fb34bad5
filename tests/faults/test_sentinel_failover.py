"""The store's primary dies under two daemons and their clients, again and again: what was acknowledged is there, whoever is primary."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.end_to_end.cluster import eventually
from tests.faults.several import Several, table
from tests.store.sentinels import Watched

RUNS = int(os.environ.get("HETSCHED_RUNS", "30"))


def outage(watched: Watched, found: Several) -> float:
    """Kill the primary; seconds until a submission is acknowledged again."""
    dead = watched.primary
    before = len(found.clients.acknowledged)
    began_s = time.monotonic()
    dead.kill()
    time.sleep(0.2)  # what was acknowledged before it died
    before = len(found.clients.acknowledged)
    eventually(lambda: len(found.clients.acknowledged) > before, within_s=60, why="clients are served again")
    took_s = time.monotonic() - began_s
    watched.until_replaced(dead)
    dead.start()
    watched.settled()
    return took_s


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_thirty_primaries_die_under_replicated_durability(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(data_dir)
    found = Several(data_dir, watched.url, store__durability="replicated")
    try:
        watched.start()
        found.start()
        seen = [outage(watched, found) for _ in range(RUNS)]
        lost = found.settle()
        with capsys.disabled():
            print("\n" + table("primary killed, replicated", seen, found, lost))
        assert lost == [] and not found.clients.failed
    finally:
        found.close()
        watched.close()
