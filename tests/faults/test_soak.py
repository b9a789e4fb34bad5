"""A soak: work and a fault every few seconds, for a while; nothing that anybody holds may grow. `make soak`, `HETSCHED_SOAK_S` long (600).

The histories are bounded by small numbers here, so that all are full before the second half, in which growth is measured (`soak.py` has the
bounds). The daemon itself is not killed: a new process would hide what the old one lost.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from tests.end_to_end.cluster import running
from tests.faults.soak import Looks, slope, verdict
from tests.faults.storm import Size, Storm
from tests.faults.trial import FAKE, SETS
from tests.faults.weather import Clocks, Disk, Weather

SOAK_S = float(os.environ.get("HETSCHED_SOAK_S", "600"))
FEW = ["limits.retention_tasks=200", "limits.events_kept=500", "limits.audit_kept=200", "limits.idempotency_keys=200"]
SMALL = ["store.snapshot_every=10", "agent.log_attempts=50", "agent.measure_every=1"]
FAULTS = (
    "kill_server",
    "kill_shim",
    "freeze_agent",
    "freeze_server",
    "freeze_daemon",
    "cut",
    "cut_towards_agent",
    "slow_disk",
)
EVERY_S = 3.0


def test_a_slope_is_that_of_most_pairs() -> None:
    assert slope([(second, 5.0) for second in range(20)]) == 0
    assert slope([(second, 2.0 * second + 100 * (second == 7)) for second in range(20)]) == pytest.approx(2.0, abs=0.2)
    level = {("daemon", "rss"): [(float(second), 1e8 + 1e5 * (second % 3)) for second in range(60)]}
    leaks = {("daemon", "rss"): [(float(second), 1e8 + 1e6 * second) for second in range(60)]}
    assert verdict(level)[1] == [] and len(verdict(leaks)[1]) == 1


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_nothing_grows_while_everything_fails(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk, clocks = Disk(data_dir), Clocks(data_dir)
    work = data_dir / "work"
    work.mkdir(mode=0o777)
    work.chmod(0o777)
    data_dir.chmod(0o711)
    with running(data_dir, agents=2, fake=FAKE, sets=[*SETS, *FEW, *SMALL], wired=True, env=disk.env) as cluster:
        weather = Weather(cluster, disk, clocks, random.Random(7))
        storm = Storm(cluster, weather, work, Size(0, 0, {}, 1.0))
        (work / "life.sh").write_text("true")
        looks, over, struck = Looks(cluster), threading.Event(), 0
        busy = threading.Thread(target=_keep_busy, args=(storm, over))
        busy.start()
        try:
            until_s = time.monotonic() + SOAK_S
            while time.monotonic() < until_s:
                weather.wait(weather.random.uniform(0.5, 1.5) * EVERY_S)
                weather.strike(weather.random.choice(FAULTS))
                struck += 1
                looks.look()
        finally:
            over.set()
            busy.join()
        lines, grows = verdict(looks.held)
        with capsys.disabled():
            print(f"\n{struck} faults in {SOAK_S:.0f} s")
            print("\n".join(["| part | what | median | growth | bound |", "|---|---|---|---|---|", *lines]))
        assert lines and not grows, "\n".join(grows)
        assert not weather.restarts, "the daemon has to live through it for the slope to say anything"


def _keep_busy(storm: Storm, over: threading.Event) -> None:
    """Arrays of short work, singles with keys, questions: enough to fill every history again and again."""
    client, number = storm.cluster.client, 0
    while not over.wait(0.2):
        number += 1
        lease = {"resources": {"cpu": 0.2, "gpu": 0.25}, "duration": 0.2, "retries": 20}
        client.submit({"template": {"id": f"l{number}", **lease}, "count": 10})
        if number % 4 == 0:
            client.submit({"id": f"p{number}", "command": ["true"], "resources": {"cpu": 0.1}, "retries": 20})
            client.cluster()
