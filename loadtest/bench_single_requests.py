"""How many single requests does the daemon take, against aiohttp's decoding handler and a bare protocol on the same machine?

    python loadtest/bench_single_requests.py [--seconds 2] [--rounds 5] [--connections 64] [--store memory:] [--front-ends 1,2]

Each server has a core of its own and the generator another one, where there are two. Rounds take turns, so that a busy machine harms all alike;
figures are medians. The server's processor time a request is the figure that noise does not move; with front ends, also what is left of it in
the deciding process, which is what bounds it where processors are not scarce. The last figures are in README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from loadtest import server
from loadtest.hammer import hammer

BODY = (
    b'{"id":"%b","queue":"research/vision","qos":"production","resources":{"cpu":4,"memory":"16Gi","gpu":0.5},'
    b'"labels":{"team":"vision","run":"nightly"},"duration":60}'
)
MOST_P99_RATIO = 1.0


class Round(NamedTuple):
    """One server for some seconds."""

    per_s: float
    cpu_us: float
    deciding_us: float
    p99_ms: float


class Target(NamedTuple):
    """A running server."""

    port: int
    token: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Of it and its children, so far."""
        times = [each.cpu_times() for each in [self.process, *self.process.children(recursive=True)]]
        return float(sum(each.user + each.system for each in times))

    def deciding_cpu_s(self) -> float:
        """Of it alone."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextlib.contextmanager
def limit(kind: str) -> Iterator[Target]:
    """One of loadtest.limits."""
    process = subprocess.Popen([sys.executable, "-m", "loadtest.limits", kind], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield Target(int(process.stdout.readline()), "none", psutil.Process(process.pid))
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def ours(store: str, front_ends: int) -> Iterator[Target]:
    """Our daemon."""
    with server.own(store=store, sets=[f"server.workers={front_ends}"]) as found:
        assert found.pid is not None
        yield Target(found.port, found.token, psutil.Process(found.pid))


def requests(token: str, prefix: str, seconds: float) -> Callable[[], bytes | None]:
    """Requests with ids of their own, until the time is over."""
    end_s = time.perf_counter() + seconds
    head = (
        "POST /v1/schedule HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    ).encode()
    number = 0

    def ask() -> bytes | None:
        nonlocal number
        if time.perf_counter() > end_s:
            return None
        number += 1
        body = BODY % f"{prefix}-{number:07}".encode()
        return head % len(body) + body

    return ask


def one_round(target: Target, prefix: str, options: argparse.Namespace) -> Round:
    """Some seconds at saturation."""
    before_s, deciding_s = target.cpu_s(), target.deciding_cpu_s()
    found = hammer(target.port, requests(target.token, prefix, options.seconds), options.connections)
    assert not found.refused, f"{found.refused} of {found.answers} requests were refused"
    return Round(
        found.answers / found.seconds,
        (target.cpu_s() - before_s) * 1e6 / found.answers,
        (target.deciding_cpu_s() - deciding_s) * 1e6 / found.answers,
        found.percentile_ms(0.99),
    )


def measured(options: argparse.Namespace) -> dict[str, Round]:
    """Medians by server."""
    servers = {"aiohttp": limit("aiohttp"), "bare": limit("bare"), "hetsched": ours(options.store, 0)}
    servers |= {f"+ {count} front": ours(options.store, count) for count in options.front_ends}
    rounds: dict[str, list[Round]] = {name: [] for name in servers}
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[:1])  # children inherit it
    with contextlib.ExitStack() as stack:
        targets = {name: stack.enter_context(each) for name, each in servers.items()}
        os.sched_setaffinity(0, cores[-1:])
        for number in range(options.rounds + 1):
            for name, target in targets.items():
                found = one_round(target, f"r{number}", options)
                if number:  # the first one warms up
                    rounds[name].append(found)
    return {name: Round(*map(statistics.median, zip(*each, strict=True))) for name, each in rounds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--store", default="memory:")
    parser.add_argument(
        "--front-ends",
        type=lambda text: [int(word) for word in text.split(",") if word],
        default=[],
        help="measure it with so many front ends, too",
    )
    found = measured(parser.parse_args())
    print(f"{'':10}{'requests/s':>12}{'cpu µs':>10}{'deciding':>10}{'p99 ms':>10}")
    for name, each in found.items():
        print(f"{name:10}{each.per_s:12,.0f}{each.cpu_us:10.1f}{each.deciding_us:10.1f}{each.p99_ms:10.2f}")
    mine, aio, bare = found["hetsched"], found["aiohttp"], found["bare"]
    print(
        f"against aiohttp's decoding handler: {mine.per_s / aio.per_s:.2f} × (processor time {aio.cpu_us / mine.cpu_us:.2f} ×)"
    )
    print(
        f"against the bare protocol: {mine.per_s / bare.per_s:.2f} × (processor time {bare.cpu_us / mine.cpu_us:.2f} ×)"
    )
    print(f"p99 against aiohttp's: {mine.p99_ms / aio.p99_ms:.2f} ×")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
