"""How long do jobs wait, and how many devices work, beside a plain scheduler? A recorded trace, replayed by both in one call.

    python loadtest/bench_replay.py --jobs philly_jobs.csv --nodes openb_nodes.csv --pods openb_pods_default.csv --load 110 [--plots docs/plots]

`loadtest/replay/world.py` says how the cluster and the jobs are made; the plain side is BASELINE. The last figures are in docs/quality.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetsched.config import from_mapping
from hetsched.model import NodeSpec
from hetsched.sim.engine import Engine
from hetsched.sim.read_trace import read_nodes, read_pods
from hetsched.sim.weighted import spread
from loadtest.replay.curves import draw_curves
from loadtest.replay.idle import Idle
from loadtest.replay.measure import Measure, bound, by_class, rooms, size_of
from loadtest.replay.world import KNOWLEDGE, Drawn, cluster, draw, offered, read_jobs, world

BASELINE = (
    "policy.preset=least-loaded",
    "order=fifo",
    "backfill.enabled=false",
    "sharing=false",
    "preemption.enabled=false",
)
"""Least-allocated spreading, first come first served, no backfill, no sharing."""

TOLD = ("wait", "allocated", "used", "evictions", "lost_device_hours", "cpu_s")
HOURS = ("mean", "p50", "p99", "max")


def replay(
    drawn: Sequence[Drawn], nodes: tuple[NodeSpec, ...], sets: Sequence[str], seed: int, *, asks_why: bool = False
) -> dict[str, Any]:
    """One run under the keys `sets`. Waits in seconds; `allocated`, `used` (what was asked of it) from 0 to 1 until the last submission.
    `asks_why`: with `idle`, the parts of all device hours, by `loadtest/replay/idle.py`."""
    measure = Measure()
    config = from_mapping({"limits": {"retention_tasks": 1000}}, sets=sets)
    idle = Idle(nodes, round(last_submission_s(drawn) * 1e9), lambda: reserved_nodes(engine))
    engine = Engine(world(config, nodes, drawn, seed), (measure, idle) if asks_why else (measure,))
    began = time.process_time()
    engine.run()
    devices = sum(len(node.devices) for node in nodes)
    given, used, lengths = measure.hours(last_submission_s(drawn))
    whole = sum(idle.hours.values()) or 1.0
    return {
        **({"idle": {kind: hours / whole for kind, hours in idle.hours.items()}} if asks_why else {}),
        "wait": spread(list(measure.waits_s.values())),
        "waiting": len(drawn) - len(measure.waits_s),
        "allocated": float(given @ lengths / lengths.sum() / devices),
        "used": float(used @ lengths / lengths.sum() / devices),
        "evictions": measure.preempted,
        "lost_device_hours": measure.lost_s / 3600,
        "classes": {
            "size": by_class(drawn, measure.waits_s, size_of),
            "queue": by_class(drawn, measure.waits_s, lambda one: one.job.vc),
            "qos": by_class(drawn, measure.waits_s, lambda one: str(one.pod.task.qos)),
        },
        "cpu_s": time.process_time() - began,
        "hours": [round(float(devices_used), 2) for devices_used in used],
    }


def reserved_nodes(engine: Engine) -> list[str]:
    """Their names."""
    kept = engine.scheduler.core.reservation()
    slots = {node for _, node in kept[2]} if kept else set()
    return (
        [node.name for node in engine.scheduler.books.cluster.by_name.values() if node.slot in slots] if slots else []
    )


def last_submission_s(drawn: Sequence[Drawn]) -> float:
    """From the first one."""
    return max(one.job.submit_s for one in drawn)


def compared(given: argparse.Namespace) -> dict[str, Any]:
    """Both sides, as `--json` has it."""
    every = read_nodes(given.nodes)
    jobs = read_jobs(given.jobs, given.first, given.count)
    drawn = draw(jobs, read_pods(given.pods), every, parts=given.parts, knows=given.knows, seed=given.seed)
    nodes = cluster(every, offered(drawn) / (given.load / 100))
    devices = sum(len(node.devices) for node in nodes)
    out: dict[str, Any] = {
        "jobs": len(drawn),
        "nodes": len(nodes),
        "devices": devices,
        "load": offered(drawn) / devices,
        "bound": bound(drawn, {1: devices}) / devices / last_submission_s(drawn),
        "bound_by_width": bound(drawn, rooms(nodes), sweeps=given.tight) / devices / last_submission_s(drawn),
    }
    for name, sets in (("ours", given.set), ("plain", BASELINE)):
        if name in given.only.split(","):
            out[name] = replay(drawn, nodes, sets, given.seed, asks_why=given.idle)
    return out


def in_words(out: dict[str, Any]) -> None:
    print(
        "  ".join(f"{name} {out[name]:.4g}" for name in ("jobs", "nodes", "devices", "load", "bound", "bound_by_width"))
    )
    for name in ("ours", "plain"):
        if name in out:
            print(f"{name}:", {key: out[name][key] for key in TOLD})
            if "idle" in out[name]:
                print(
                    "  device hours, percent:", {kind: round(100 * part, 1) for kind, part in out[name]["idle"].items()}
                )
            for kind, classes in out[name]["classes"].items():
                for which, told in sorted(classes.items()):
                    hours = "".join(f"{(told[key] or 0) / 3600:10.2f}" for key in HOURS)
                    print(f"  {kind:6}{which:12}{told['jobs']:7}{hours}")


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("jobs", "nodes", "pods"):
        parser.add_argument(f"--{name}", type=Path, required=True, help="CSV")
    parser.add_argument("--load", type=float, default=90, help="percent of the devices that the jobs offer")
    parser.add_argument("--first", type=int, default=0, help="job of the trace to begin with")
    parser.add_argument("--count", type=int, help="how many of them")
    parser.add_argument("--parts", action="store_true", help="shares of devices and qos as the pods have them")
    parser.add_argument(
        "--idle", action="store_true", help="tell why devices are idle (for whole devices: not with --parts)"
    )
    parser.add_argument(
        "--tight",
        action="store_true",
        help="lower the bound by width hour by hour (seconds for a window, hours for months)",
    )
    parser.add_argument("--knows", choices=KNOWLEDGE, default="learned", help="of run times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="a key for ours")
    parser.add_argument("--only", default="ours,plain")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="where to write two SVG files")
    return parser


def main() -> None:
    parser = options()
    given = parser.parse_args()
    if given.idle and given.parts:
        parser.error("--idle looks at whole devices, so not with --parts")
    out = compared(given)
    in_words(out)
    if given.json:
        given.json.write_text(json.dumps(out))
    if given.plots:
        draw_curves(given.plots, out)


if __name__ == "__main__":
    main()
