"""How long does an urgent task wait while bulk runs at 70 % of what the daemon can take?

    python -m loadtest.bench_immediate_under_bulk [--seconds 8] [--rounds 3] [--urgent 50] [--part 0.7] [--top 500000] [--nice -5]
    … --mode packed --mix cpu --nodes 400 --top 100000 --tick 0.002 --batch 1000       # many small requests, many nodes

One daemon (fsync), one fleet of simulated nodes. Each round: bulk at `--top` tasks a second, which is more than it can take: what it
placed a second meanwhile is its saturation. Then `--urgent` critical tasks a second while the fleet is idle, which is the limit; then the same
while bulk runs at `--part` of the saturation. Latency runs from the intended arrival to the 202 that holds the placement. Generators, fleet and
daemon share the machine. Medians; the last figures are in README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import selectors
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

from loadtest import server

MOST_P99_MS, MOST_MEAN_MS = 10.0, 3.0
WARM_S = 2.0
BODY = b'{"id":"%b","qos":"critical","resources":{"cpu":1},"duration":0.2}'
HEAD = (
    b"POST /v1/schedule HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class Latency(NamedTuple):
    """Of urgent tasks."""

    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


def bulk(
    target: server.Server, options: argparse.Namespace, per_s: float, more_s: float = 0.0
) -> subprocess.Popen[str]:
    """A generator with the fleet, its report on stdout; under way when this returns. `more_s`: it goes on after the urgent ones."""
    tokens = [f"--token={target.token}", f"--agent-token={target.agent_token}"]
    shared = ["--url", target.url, *tokens, "--duration", str(options.seconds + more_s), "--drain", "20", "--json"]
    ways = [
        word for way in ("mode", "mix", "tick", "batch", "nodes") for word in (f"--{way}", str(getattr(options, way)))
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest", *shared, *ways, "--rps", str(round(per_s))],
        stdout=subprocess.PIPE,
        text=True,
    )
    while target.get("/v1/cluster")["agents_connected"] < options.nodes and process.poll() is None:
        time.sleep(0.1)
    time.sleep(WARM_S)
    return process


def placed_per_s(process: subprocess.Popen[str]) -> float:
    """What it found when it has ended."""
    said, _ = process.communicate()
    found: dict[str, Any] = json.loads(said)
    assert not found["errors"]["failed"], found["errors"]
    return float(found["achieved"]["placed_per_s"])


class Urgent:
    """An open loop of critical singles: arrivals are a Poisson process that nothing moves, each on a connection that is free."""

    def __init__(self, target: server.Server, options: argparse.Namespace, name: str) -> None:
        self._target = target
        self._options = options
        self._name = name
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._took_s: list[float] = []
        self.without_room = 0  # answered in time, but no node was free: bulk holds all

    def run(self) -> Latency:
        """For so many seconds; from the intended arrival to the answer, which has to hold the placement."""
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
            runner.run(self._run())
        took_ms = sorted(took_s * 1e3 for took_s in self._took_s)
        return Latency(
            statistics.mean(took_ms), took_ms[len(took_ms) // 2], took_ms[int(0.99 * len(took_ms))], took_ms[-1]
        )

    async def _run(self) -> None:
        chance = random.Random(self._name)
        due_s, end_s = time.monotonic(), time.monotonic() + self._options.seconds
        asking: list[asyncio.Task[None]] = []
        while (due_s := due_s + chance.expovariate(self._options.urgent)) < end_s:
            await asyncio.sleep(due_s - time.monotonic())
            asking.append(asyncio.create_task(self._ask(len(asking), due_s)))
        await asyncio.gather(*asking)

    async def _ask(self, number: int, due_s: float) -> None:
        line = self._free.pop() if self._free else await asyncio.open_connection(self._target.host, self._target.port)
        body = BODY % f"{self._name}-{number}".encode()
        line[1].write(HEAD % (self._target.token.encode(), len(body)) + body)
        head = await line[0].readuntil(b"\r\n\r\n")
        said = await line[0].readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
        self._took_s.append(time.monotonic() - due_s)
        assert head.startswith(b"HTTP/1.1 202 "), said
        self.without_room += b'"placement":' not in said
        self._free.append(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--urgent", type=float, default=50.0, help="critical tasks a second")
    parser.add_argument("--part", type=float, default=0.7, help="of the saturation")
    parser.add_argument(
        "--mode", default="array", help="how bulk rides (array), as of `hetsched load`, and so what follows"
    )
    parser.add_argument("--mix", default="bulk")
    parser.add_argument("--tick", type=float, default=0.01)
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument(
        "--top", type=float, default=500_000.0, help="bulk tasks a second that are more than it can take"
    )
    parser.add_argument("--bulk", type=float, help="bulk tasks a second beside urgent ones; not found out, but given")
    parser.add_argument("--nice", type=int, default=0, help="of the daemon; -5 as its systemd unit has it (root)")
    parser.add_argument("--store", default="embedded:")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    options.sets.insert(0, "limits.events_kept=2000000")
    saturations: list[float] = []
    alone: list[Latency] = []
    beside: list[Latency] = []
    reached: list[float] = []
    without_room = 0
    with server.own(store=options.store, sets=options.sets, nice=options.nice) as target:
        for number in range(options.rounds):
            if options.bulk is None:
                saturations.append(placed_per_s(bulk(target, options, options.top)))
            idle = bulk(target, options, 1.0, 2 * WARM_S)
            alone.append(Urgent(target, options, f"alone{number}").run())
            idle.communicate()
            per_s = options.bulk or options.part * saturations[-1]
            others = bulk(target, options, per_s, 2 * WARM_S)
            urgent = Urgent(target, options, f"beside{number}")
            beside.append(urgent.run())
            without_room += urgent.without_room
            reached.append(placed_per_s(others))
    if saturations:
        print(f"bulk at saturation {statistics.median(saturations):,.0f} tasks/s")
    print(f"bulk beside urgent tasks {statistics.median(reached):,.0f} tasks/s")
    print(f"{'urgent, ms':14}{'mean':>8}{'p50':>8}{'p99':>8}{'max':>8}")
    for name, each in (("alone", alone), ("beside bulk", beside)):
        print(f"{name:14}" + "".join(f"{statistics.median(one):8.2f}" for one in zip(*each, strict=True)))
    mean_ms, _, p99_ms, _ = map(statistics.median, zip(*beside, strict=True))
    if without_room:
        print(f"{without_room} urgent tasks found all nodes taken, and waited on after their answer: take more --nodes")
    print(f"wanted beside bulk: mean {mean_ms:.2f} of {MOST_MEAN_MS:g} ms, p99 {p99_ms:.2f} of {MOST_P99_MS:g} ms")


if __name__ == "__main__":
    main()
