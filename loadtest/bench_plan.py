"""What does a question cost: the image that the turn loop pays for, and the plan or the advice that the helper process works out?

    python loadtest/bench_plan.py [--nodes 1000] [--waiting 10000,100000] [--shapes 20]

A full cluster of 8-GPU nodes and so many waiting tasks. Processor time, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from hetsched.config import Config
from hetsched.daemon import rehearsing
from hetsched.model import parse_node, parse_submission
from hetsched.scheduler import Scheduler, rehearse
from hetsched.scheduler import messages as m

SECOND_NS = 1_000_000_000
ROUNDS = 5


def full_cluster(nodes: int, waiting: int, shapes: int) -> tuple[Scheduler, int]:
    """Every GPU is taken for some minutes, and `waiting` tasks of so many shapes queue. Returns the scheduler and the time."""
    scheduler, now_ns = Scheduler(Config()), 1_000 * SECOND_NS
    devices = [{"kind": "gpu", "model": "A100", "count": 8, "memory": "40Gi"}]
    specs = [parse_node({"name": f"n{at}", "cpu": 64, "memory": "256Gi", "devices": devices})[0] for at in range(nodes)]
    scheduler.step([m.NodeJoined(node=spec, session=1) for spec in specs], now_ns)
    for at in range(8):
        body = {"id": f"r{at}", "resources": {"gpu": 1, "cpu": 1 + at}, "duration": 600 + 60 * at}
        scheduler.step([_submit({"template": body, "count": nodes})], now_ns)
    scheduler.step([], now_ns := now_ns + SECOND_NS)
    for at in range(shapes):
        asked = {"gpu": 1 + at % 8, "cpu": 1 + at % 16, "memory": f"{1 + at}Mi"}
        body = {"id": f"w{at}", "resources": asked, "duration": 60 + at}
        scheduler.step([_submit({"template": body, "count": waiting // shapes})], now_ns)
    scheduler.step([], now_ns := now_ns + SECOND_NS)
    return scheduler, now_ns


def _submit(body: Any) -> m.Submit:
    return m.Submit(submission=parse_submission(body))


def cost_ms(work: Callable[[], Any]) -> float:
    """The median of some rounds, in milliseconds of processor time."""
    found = []
    for _ in range(ROUNDS):
        began_s = time.thread_time()
        work()
        found.append(time.thread_time() - began_s)
    return 1000 * sorted(found)[ROUNDS // 2]


def bounded(limit_s: float = 1.0) -> rehearse.Share:
    """As in the helper: `limits.plan_time`, from now on."""
    began_s = time.monotonic()
    return lambda part: lambda: time.monotonic() - began_s > part * limit_s


def questions(scheduler: Scheduler, now_ns: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    image = rehearse.take(scheduler)
    one = parse_submission({"resources": {"gpu": 1}, "duration": 60})
    many = parse_submission({"template": {"resources": {"cpu": 1}, "duration": 60}, "count": 1000})
    return {
        "image, in the turn loop": lambda: rehearsing.encode(rehearsing.Show(rehearse.take(scheduler, apart=False))),
        "copy": lambda: rehearse.open_copy(image, now_ns),
        "plan of 1 that waits": lambda: rehearse.plan(image, one, now_ns, bounded()),
        "plan of 1,000 that start": lambda: rehearse.plan(image, many, now_ns, bounded()),
        "advice, first in its lane": lambda: rehearse.advise(image, "w0-0", now_ns, bounded()),
        "advice, last in its lane": lambda: rehearse.advise(image, "w7-99", now_ns, bounded()),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of 8 GPUs")
    parser.add_argument("--waiting", default="10000,100000", help="waiting tasks; several by comma")
    parser.add_argument("--shapes", type=int, default=20, help="shapes of waiting tasks")
    options = parser.parse_args()
    for waiting in map(int, options.waiting.split(",")):
        scheduler, now_ns = full_cluster(options.nodes, waiting, options.shapes)
        for name, work in questions(scheduler, now_ns).items():
            print(f"{waiting:>7} waiting  {name:<26} {cost_ms(work):8.1f} ms", flush=True)


if __name__ == "__main__":
    main()
