"""What do a million waiting tasks cost: how much memory, and how long until a daemon that was killed is ready again?

    python -m loadtest.bench_pending [--tasks 1000000] [--kinds 10] [--ways arrays,columns]

`arrays`: array jobs of 100,000; `columns`: bodies of 1,000 tasks of all kinds in turn, each with an id of its own. There is no node, so all
wait. Then the daemon is killed and starts from the journal, is stopped and starts from the snapshot that it has left, is killed and starts from
snapshot and journal. Ready is what the daemon says on stdout: from the start of the process, interpreter and imports included; a start without
any task is the limit. Memory is resident, of the daemon and its journal server. The last figures are in README.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hetsched._core import array_keys
from hetsched.model.columns import MEDIA as COLUMNS
from loadtest import server

WANTED_S, WANTED_MB = 5.0, 400.0
AT_ONCE = {"arrays": 100_000, "columns": 1000}


def template(kind: int) -> dict[str, Any]:
    """One of the kinds."""
    return {"resources": {"cpu": 1 + kind, "memory": "1Gi"}, "labels": {"kind": str(kind)}, "duration": 1}


def bodies(way: str, tasks: int, kinds: int) -> Iterator[tuple[str, bytes]]:
    """(media, body) of each request."""
    count = min(AT_ONCE[way], tasks)
    templates = [template(kind) for kind in range(kinds)]
    for number, first in enumerate(range(0, tasks, count)):
        here = min(count, tasks - first)
        if way == "arrays":
            array = {"template": {"id": f"array{number}", **templates[number % kinds]}, "count": here}
            yield "application/json", msgspec.json.encode(array)
        else:
            which = b"".join((at % kinds).to_bytes(2, "little") for at in range(here))
            ids = array_keys(b"run.0.", first, here)
            yield COLUMNS, msgspec.msgpack.encode({"templates": templates, "ids": ids, "which": which})


def submit(daemon: server.Server, way: str, tasks: int, kinds: int) -> None:
    """All of them, one request after the other."""
    for media, body in bodies(way, tasks, kinds):
        headers = {"Authorization": f"Bearer {daemon.token}", "Content-Type": media}
        with urllib.request.urlopen(
            urllib.request.Request(f"{daemon.url}/v1/schedule", body, headers), timeout=120
        ) as answer:
            answer.read()


def spell(
    data: Path, sign: signal.Signals, doing: Callable[[server.Server], None] = lambda daemon: None
) -> tuple[float, float, int]:
    """A daemon's life over this directory, ended by the signal: (seconds until it was ready, MB that it had at the end, tasks that waited)."""
    began_s = time.monotonic()
    with server.over(data) as daemon:
        ready_s = time.monotonic() - began_s
        doing(daemon)
        waiting = daemon.get("/v1/cluster")["tasks"]["queued"]
        memory_mb = daemon.cost()["rss_bytes"] / 1e6
        assert daemon.pid is not None
        os.kill(daemon.pid, sign)
    return ready_s, memory_mb, waiting


def measure(way: str, tasks: int, kinds: int) -> bool:
    """Prints what it costs; whether nothing was lost and all is as wanted."""
    data = Path(tempfile.mkdtemp(prefix="hs-pending-"))
    try:
        empty_s, empty_mb, _ = spell(data, signal.SIGKILL)
        _, memory_mb, waiting = spell(data, signal.SIGKILL, lambda daemon: submit(daemon, way, tasks, kinds))
        print(
            f"{way}: {waiting:,} tasks wait in {memory_mb:.0f} MB (without any {empty_mb:.0f}; wanted {WANTED_MB:.0f})"
        )
        fine = waiting == tasks and memory_mb <= WANTED_MB
        for source, sign in (
            ("journal", signal.SIGTERM),
            ("snapshot", signal.SIGKILL),
            ("snapshot, killed", signal.SIGKILL),
        ):
            ready_s, memory_mb, waiting = spell(data, sign)
            fine = fine and waiting == tasks and ready_s <= WANTED_S and memory_mb <= WANTED_MB
            print(
                f"{way}: ready {ready_s:.2f} s after its start, from the {source} (without tasks {empty_s:.2f}; wanted {WANTED_S:.0f});"
                f" {waiting:,} wait in {memory_mb:.0f} MB"
            )
        return fine
    finally:
        shutil.rmtree(data, ignore_errors=True)


def main() -> int:
    """0: as wanted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--kinds", type=int, default=10)
    parser.add_argument("--ways", default="arrays,columns")
    options = parser.parse_args()
    fine = [measure(way, options.tasks, options.kinds) for way in options.ways.split(",")]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
