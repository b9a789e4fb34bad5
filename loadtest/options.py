"""The command line of the load generator, and the limits that keep a run bounded."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from loadtest.generator import MODES, PROCESS, SINGLE
from loadtest.mix import DEFAULT

LONGEST_S = 3600.0
MOST_TASKS = 100_000_000


class Options(argparse.Namespace):
    """Every option with its type; seconds and counts."""

    rps: float
    duration: float
    mode: str
    tick: float
    batch: int
    generators: int
    connections: int
    timeout: float
    drain: float
    mix: str
    nodes: int
    seed: int
    nice: int
    url: str | None
    token: str | None
    agent_token: str | None
    data: Path | None
    i_own_this_host: bool
    store: str | None
    sets: list[str]
    machines: int
    join: bool
    search: bool
    targets: Path | None
    json: bool
    out: Path | None
    html: Path | None


def parse(argv: list[str]) -> Options:
    """Exits with 2 on misuse, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="hetsched load",
        description="Open-loop Poisson load on a daemon of its own, with a simulated fleet; bounded in time and count.",
    )
    arrivals = parser.add_argument_group("what arrives")
    arrivals.add_argument("--rps", type=float, default=200.0, help="tasks per second, all processes together (200)")
    arrivals.add_argument("--duration", type=float, default=10.0, help="seconds of arrivals (10)")
    arrivals.add_argument(
        "--mix", help="mixed, cpu, critical, bulk, openb, philly, llm, process, or a .toml file (mixed)"
    )
    arrivals.add_argument(
        "--mode",
        choices=MODES,
        default=SINGLE,
        help="how tasks ride in requests (single); process: arrays of real processes on an agent of this machine",
    )
    arrivals.add_argument(
        "--tick", type=float, default=0.002, help="not single: arrivals of so many seconds ride together"
    )
    arrivals.add_argument("--batch", type=int, default=1000, help="not single: most tasks in a request (1000)")
    arrivals.add_argument("--seed", type=int, default=1, help="same seed, same arrivals (1)")
    client = parser.add_argument_group("who sends")
    client.add_argument("--generators", type=int, default=1, help="processes that send (1)")
    client.add_argument(
        "--machines", type=int, default=1, help="how many load together, this one leading; they meet in --store (1)"
    )
    client.add_argument(
        "--join", action="store_true", help="be one of the others: what to do comes from the one that leads"
    )
    client.add_argument("--connections", type=int, default=32, help="kept-alive connections of each (32)")
    client.add_argument("--timeout", type=float, default=10.0, help="seconds until an answer counts as an error (10)")
    client.add_argument("--drain", type=float, default=15.0, help="seconds to wait for the last placements (15)")
    client.add_argument(
        "--nice", type=int, default=10, help="of generators, fleet and observer: they stand for other machines (10)"
    )
    server = parser.add_argument_group("the daemon under load")
    server.add_argument(
        "--nodes", type=int, default=50, help="simulated nodes; 0: the daemon's own agents end the tasks (50)"
    )
    server.add_argument(
        "--store", help="store of the own daemon (embedded:); with --machines or --join: where they meet, redis://HOST"
    )
    server.add_argument(
        "--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="its configuration"
    )
    server.add_argument("--url", help="a daemon that runs already, on this machine")
    server.add_argument("--data", type=Path, help="its data directory, for the tokens")
    server.add_argument("--token", default=os.environ.get("HETSCHED_TOKEN"), help="its admin token (HETSCHED_TOKEN)")
    server.add_argument("--agent-token", help="its agents' token")
    server.add_argument("--i-own-this-host", action="store_true", help="allow --url beyond this machine")
    report = parser.add_argument_group("what comes out")
    report.add_argument("--targets", type=Path, help="TOML file of figures to reach; exit 1 if one is missed")
    report.add_argument(
        "--search", action="store_true", help="the highest rate that still reaches the targets: runs from --rps up"
    )
    report.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    report.add_argument("--out", type=Path, help="write the report as JSON to this file as well")
    report.add_argument("--html", type=Path, help="write it as a page with its course over time")
    options = parser.parse_args(argv, namespace=Options())
    if options.mode == PROCESS:
        options.mix = options.mix or "process"
        options.nodes = 0 if not options.url else options.nodes
    options.mix = options.mix or DEFAULT
    complaint = _complaint(options)
    if complaint:
        parser.error(complaint)
    return options


def _complaint(options: Options) -> str:
    """The first bound that is broken; empty = none."""
    together = options.machines > 1 or options.join
    bounds = (
        (options.rps > 0, "--rps is above 0"),
        (0 < options.duration <= LONGEST_S, f"--duration is at most {LONGEST_S:g} seconds"),
        (options.rps * options.duration <= MOST_TASKS, f"--rps × --duration is at most {MOST_TASKS:,} tasks"),
        (0 < options.tick <= 1, "--tick is at most 1 second"),
        (1 <= options.batch <= 100_000, "--batch is 1 to 100,000"),
        (1 <= options.generators <= 64, "--generators is 1 to 64"),
        (1 <= options.connections <= 1024, "--connections is 1 to 1024"),
        (0 < options.timeout <= 600 and 0 <= options.drain <= 600, "--timeout and --drain are at most 600 seconds"),
        (0 <= options.nodes <= 20_000, "--nodes is 0 to 20,000"),
        (options.seed >= 0, "--seed is 0 or above"),
        (0 <= options.nice <= 19, "--nice is 0 to 19"),
        (1 <= options.machines <= 256, "--machines is 1 to 256"),
        (not (options.url and options.sets), "--set is for an own daemon, not for --url"),
        (
            together or not (options.url and options.store),
            "--store is for an own daemon, or to meet in with --machines or --join",
        ),
        (not together or options.store, "--machines and --join need --store, the daemon's Redis, to meet in"),
        (options.machines == 1 or options.url, "--machines needs --url: all load the same daemon"),
        (not (options.join and options.machines > 1), "--join takes the number of machines from the one that leads"),
        (not (together and options.search), "--search is for one machine"),
        (not options.search or options.targets, "--search needs --targets: what a rate has to reach"),
        (
            options.mode != PROCESS or not options.url or options.nodes == 0,
            "--mode process with --url runs on that daemon's own agents: --nodes 0",
        ),
    )
    return next((text for holds, text in bounds if not holds), "")
