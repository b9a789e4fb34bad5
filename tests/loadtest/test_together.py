"""Several machines load one daemon: they meet in its Redis, begin at once, and their figures are one report."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hetsched.store.server import find_server
from loadtest.histogram import packed
from loadtest.tally import Slice, Tally, figures
from loadtest.together import Load, Meeting, MeetingError, Part
from tests.end_to_end.cluster import eventually

LOAD = Load("loadab", "http://127.0.0.1:1", 3, 1.0, 1.0, "single", "", 0.1, 1, 1, 1, 1.0, 1.0, 0, 1, 10)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that somebody else runs."""
    socket = tmp_path / "s"
    command = [str(find_server()), "--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "always"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"unix://{socket}"
    eventually(lambda: Meeting(url), why="the server answers")
    yield url
    server.kill()
    server.wait()


def tally(waits_ms: list[int], span_s: float, failed: int = 0) -> Tally:
    waits = packed([ms * 1_000_000 for ms in waits_ms])
    names = ("lateness", "answer", "scheduling", "tpu_queue_wait", "end", "class:a")
    part = Slice(len(waits_ms), len(waits_ms), len(waits_ms), waits, waits)
    return Tally(1.0, span_s, span_s, 0, {"202": len(waits_ms), "429": failed}, 0, dict.fromkeys(names, waits), [part])


def test_three_machines_begin_at_one_instant_and_add_up(store: str) -> None:
    starts: dict[int, int] = {}

    def joins() -> None:
        meeting = Meeting(store)
        load, number = meeting.join()
        assert load == LOAD
        time.sleep(0.2 * number)  # whoever is slow is waited for
        starts[number] = meeting.start(load, number)
        meeting.tell(load, Part(tally([10 * number], 2.0 * number, failed=number), {"started": number}))

    others = [threading.Thread(target=joins) for _ in range(2)]
    for other in others:
        other.start()
    meeting = Meeting(store)
    assert meeting.lead(LOAD) == 0
    starts[0] = meeting.start(LOAD, 0)
    told = meeting.parts(LOAD, 10)
    for other in others:
        other.join()
    assert sorted(starts) == [0, 1, 2]
    assert max(starts.values()) - min(starts.values()) < 50_000_000
    assert starts[0] > time.monotonic_ns(), "told before it begins"
    assert sum(part.fleet["started"] for part in told) == 3
    report = figures([tally([30], 1.0), *(part.tally for part in told)])
    assert (report["offered"]["tasks"], report["errors"]["failed"], report["scheduling"]["count"]) == (3, 3, 3)
    assert report["scheduling"]["mean_ms"] == pytest.approx(20.0)
    assert report["achieved"]["per_s"] == pytest.approx(3 / 4.0)
    assert report["course"][0]["offered_per_s"] == 3


def test_who_joins_the_moment_a_load_is_called_out_is_counted(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leads = Meeting(store, patience_s=1.0)
    numbers: list[int] = []
    put = leads._redis.set

    def put_and_be_heard(key: str, value: Any, **more: Any) -> Any:
        done = put(key, value, **more)
        if key.endswith("plan"):
            numbers.append(Meeting(store).join()[1])
        return done

    monkeypatch.setattr(leads._redis, "set", put_and_be_heard)
    assert leads.lead(msgspec.structs.replace(LOAD, machines=2)) == 0
    assert numbers == [1]


def test_a_machine_that_does_not_come_is_missed_by_number(store: str) -> None:
    with pytest.raises(MeetingError, match="0 of 2 machines joined"):
        Meeting(store, patience_s=0.2).lead(LOAD)
    with pytest.raises(MeetingError, match="nobody leads a load"):
        Meeting(store, patience_s=0.2).join()


def test_a_store_that_is_not_there_is_named() -> None:
    with pytest.raises(MeetingError, match="the store to meet in"):
        Meeting("redis://127.0.0.1:9")


def test_two_machines_load_a_daemon_for_real(root: Path, tmp_path: Path, store: str) -> None:
    """Both on this one; the daemon's own store is where they meet."""
    data = tmp_path / "data"
    serve = [
        sys.executable,
        "-m",
        "hetsched",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(data),
        "--store",
        store,
    ]
    daemon = subprocess.Popen(serve, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert daemon.stdout is not None
        url = next(line for line in daemon.stdout if line.startswith("listening on ")).split()[-1]
        common = [sys.executable, "-m", "loadtest", "--store", store, "--data", str(data)]
        other = subprocess.Popen([*common, "--join"], cwd=root, stderr=subprocess.PIPE, text=True)
        command = [*common, "--url", url, "--machines", "2", "--rps", "60", "--duration", "2", "--nodes", "5", "--json"]
        done = subprocess.run(
            [*command, "--html", str(tmp_path / "r.html")], cwd=root, capture_output=True, text=True, timeout=100
        )
        _, said = other.communicate(timeout=30)
    finally:
        daemon.terminate()
        daemon.wait(30)
    assert done.returncode == 0, done.stdout + done.stderr
    assert other.returncode == 0, said
    report = json.loads(done.stdout)
    own = int(said.rsplit("tasks offered", 1)[0].rsplit(" ", 2)[1].replace(",", ""))
    assert 20 < own < report["offered"]["tasks"] - 20
    assert report["achieved"]["placed"] == report["achieved"]["acknowledged"] == report["offered"]["tasks"]
    assert report["fleet"]["started"] >= report["offered"]["tasks"]
    assert (report["fleet"]["started_twice"], report["fleet"]["overcommitted"]) == (0, 0)
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == 3
    assert "60 tasks" in page.replace(f"{report['offered']['per_s']:,.0f}", "60")
