"""What holds the deciding process, and for how long, while a million tasks wait?

    python -m loadtest.bench_holds [--waiting 1000000] [--array 100000]

Processor time of each piece that the event loop waits for, the scheduler alone in this process; what is done in a thread beside it is told
apart. A loop that is to lag by less than 20 ms can have no longer piece. The last figures are in README.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from hetsched.config import from_mapping
from hetsched.daemon.events import EventRing
from hetsched.model import Task, parse_node, parse_submission
from hetsched.scheduler import Scheduler
from hetsched.scheduler import messages as m
from hetsched.scheduler.bundles import known_of
from hetsched.scheduler.snapshot import room_for

MS = 1_000_000
MOST_MS = 20.0
KINDS = 10
OWN_WORDS = 20_000
"""Tasks of one type and size of which no two are said alike."""
T = TypeVar("T")


def known(kind: int, cores: int = 64) -> m.Known:
    """A task; of more cores than 32 none starts here."""
    body = {"resources": {"cpu": cores}, "labels": {"kind": str(kind)}, "queue": f"q{kind % 2}", "duration": 1}
    (task,) = parse_submission([body]).items
    found = known_of(task) if isinstance(task, Task) else None
    assert found is not None
    return found


class Crowd:
    """A scheduler with a long queue. `pieces`: processor time in ms by what was done."""

    def __init__(self, waiting: int, array: int) -> None:
        self.pieces: dict[str, list[float]] = {}
        config = from_mapping({"batch": {"size": 1}})
        self.scheduler = Scheduler(config, seed=1)
        self.ring = EventRing(config.limits.events_kept)
        self.now_ns = 1_000_000 * MS
        for number in range(60):
            (spec,) = parse_node({"name": f"n{number}", "cpu": 32, "memory": "256Gi"})
            self.turn("a node joins", m.NodeJoined(node=spec, session=1))
        kinds = [known(kind) for kind in range(KINDS)]
        for number in range(waiting // array):
            asked = m.Array(ticket=1, known=kinds[number % KINDS], base=f"a{number}", count=array)
            self.turn(f"an array of {array:,}", asked)
        for number in range(200):
            self.turn(
                "an array of 1,000", m.Array(ticket=1, known=kinds[number % KINDS], base=f"b{number}", count=1000)
            )

    def timed(self, piece: str, do: Callable[[], T]) -> T:
        began_s = time.thread_time()
        done = do()
        self.pieces.setdefault(piece, []).append((time.thread_time() - began_s) * 1e3)
        return done

    def turn(self, piece: str, *heard: m.Input) -> None:
        def do() -> None:
            self.ring.publish(self.scheduler.step(list(heard), self.now_ns).events.parts)

        self.now_ns += MS
        self.timed(piece, do)

    def learn(self) -> None:
        """Tasks end, and say something about all that wait for their nodes in words of their own."""
        for number in range(OWN_WORDS):
            one = m.Array(ticket=1, known=known(KINDS + number, 32), base=f"w{number}", count=1)
            self.turn("(aside) a task in words of its own", one)
        for _ in range(200):
            row = next(iter(self.scheduler.view.tasks(state="placed", limit=1)["tasks"]))
            placement = row["placement"]
            self.turn(
                f"an end while {OWN_WORDS:,} of its type and size wait, each in words of its own",
                m.AttemptEnded(
                    node=placement["node"], task=row["id"], attempt=placement["attempt"], succeeded=True, reason=""
                ),
            )

    def snapshot(self) -> None:
        scheduler = self.scheduler
        room = self.timed("(aside) room for a snapshot", lambda: room_for(scheduler.bytes_to_copy()))
        copied = self.timed("the copy for a snapshot", lambda: scheduler.copied(room))
        self.timed("(aside) sealing it", copied.sealed)

    def cancel(self, piece: str, asked: m.Cancel) -> None:
        self.turn(piece, asked)
        for _ in range(20):
            self.turn(f"{piece}: each turn that follows")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--array", type=int, default=100_000)
    options = parser.parse_args()
    crowd = Crowd(options.waiting, options.array)
    crowd.learn()
    for _ in range(3):
        crowd.snapshot()
        crowd.timed("GET /v1/cluster", crowd.scheduler.view.cluster)
        crowd.timed("GET /v1/tasks", lambda: crowd.scheduler.view.tasks(state="queued", limit=100))
    crowd.cancel("cancelling by label", m.Cancel(label="kind=4"))
    crowd.cancel("cancelling a queue", m.Cancel(queue="q1"))
    print(f"{'ms of processor time':80}{'median':>10}{'longest':>10}")
    for piece, spent_ms in crowd.pieces.items():
        longest_ms = max(spent_ms)
        over = "  over" if longest_ms > MOST_MS and not piece.startswith("(") else ""
        print(f"{piece:80}{statistics.median(spent_ms):10.2f}{longest_ms:10.2f}{over}")
    print(f"wanted: none over {MOST_MS:g}")


if __name__ == "__main__":
    main()
