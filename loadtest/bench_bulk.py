"""How fast are lists of 1,000 whole JSON tasks accepted, durably, against msgspec's decoding of the same bytes?

    python loadtest/bench_bulk.py [--tasks 1000] [--kinds 10] [--seconds 3] [--rounds 5] [--connections 4] [--store embedded:]

The daemon answers when the journal has the tasks on disk. The limit is what a server that keeps nothing would need to look at them: msgspec,
into a Struct. Processor time a task is the figure that a busy machine does not move. The last figures are in README.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil

from loadtest import server
from loadtest.hammer import hammer
from loadtest.limits import Task


def body_of(prefix: str, first: int, tasks: int, kinds: int) -> bytes:
    """A list of tasks of so many kinds in turn, each with an id of its own."""
    return b"[%b]" % b",".join(_task(f"{prefix}-{number:08}", number % kinds) for number in range(first, first + tasks))


def _task(ident: str, kind: int) -> bytes:
    return (
        b'{"id":"%b","queue":"research/vision","qos":"production","resources":{"cpu":%d,"memory":"16Gi","gpu":0.5},'
        b'"labels":{"team":"vision","run":"nightly"},"duration":60}' % (ident.encode(), 1 + kind)
    )


def decode_us(body: bytes, tasks: int, rounds: int) -> float:
    """Processor time that msgspec needs a task."""
    decode = msgspec.json.Decoder(list[Task]).decode
    spent = []
    for _ in range(rounds):
        began_s = time.process_time()
        for _ in range(20):
            decode(body)
        spent.append((time.process_time() - began_s) * 1e6 / (20 * tasks))
    return statistics.median(spent)


def requests(token: str, prefix: str, options: argparse.Namespace) -> Callable[[], bytes | None]:
    """Bodies built beforehand, so that the generator is not the limit; as many as can be answered in the time."""
    head = f"POST /v1/schedule HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    most = round(options.seconds * options.most_per_s / options.tasks)
    bodies = [body_of(prefix, number * options.tasks, options.tasks, options.kinds) for number in range(most)]
    bodies.reverse()
    end_s = time.perf_counter() + options.seconds

    def ask() -> bytes | None:
        if not bodies or time.perf_counter() > end_s:
            return None
        body = bodies.pop()
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--kinds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--most-per-s", type=int, default=300_000)
    parser.add_argument("--store", default=None)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    rates, costs, journal = [], [], []
    with server.own(store=options.store, sets=[]) as found:
        assert found.pid is not None
        daemon = psutil.Process(found.pid)
        daemon.cpu_affinity(cores[:1])
        os.sched_setaffinity(0, cores[-1:])
        for number in range(options.rounds + 1):
            ask = requests(found.token, f"r{number}", options)
            before_s, both_s = _cpu_s(daemon), found.cost()["cpu_s"]
            hammered = hammer(found.port, ask, options.connections)
            assert not hammered.refused
            tasks = hammered.answers * options.tasks
            if number:  # the first one warms up
                own_s = _cpu_s(daemon) - before_s
                rates.append(tasks / hammered.seconds)
                costs.append(own_s * 1e6 / tasks)
                journal.append((found.cost()["cpu_s"] - both_s - own_s) * 1e6 / tasks)
    limit = decode_us(body_of("limit", 0, options.tasks, options.kinds), options.tasks, options.rounds)
    cost, rate = statistics.median(costs), statistics.median(rates)
    print(f"accepted and on disk {rate:12,.0f} tasks/s; {cost:.2f} µs of the daemon's processor time a task")
    print(f"                     and {statistics.median(journal):.2f} of the journal server's")
    print(f"msgspec's decode     {1e6 / limit:12,.0f} tasks/s; {limit:.2f} µs a task")
    print(f"ratio by processor time {limit / cost:.2f}, by the clock {rate * limit / 1e6:.2f}")


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
