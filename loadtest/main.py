"""One run, from the options to the exit code: daemon, fleet, observer, generators, report.

Promises: bounded by duration + drain + the start-up limits; every process that was started is gone at the end.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from loadtest import report, server
from loadtest.board import Board, capacity_for
from loadtest.fleet import FleetPlan, run_fleet
from loadtest.generator import Plan, generate
from loadtest.mix import MixError, read_mix
from loadtest.nodes import capacity_of, fleet_of
from loadtest.observer import Watch, observe
from loadtest.options import Options, parse
from loadtest.targets import TargetError, judge, read_targets

READY_S = 60.0
LEAD_S = 1.0  # generators start together this long after they were told
SAMPLE_S = 1.0

spawn = multiprocessing.get_context("spawn")


def main(argv: list[str]) -> int:
    """0: done and all targets reached · 1: a target missed, or the fleet saw a broken promise · 2: misuse · 5: no daemon."""
    options = parse(argv)
    try:
        targets = read_targets(options.targets) if options.targets else []
        read_mix(options.mix)
    except (TargetError, MixError) as error:
        print(f"hetsched load: {error}", file=sys.stderr)
        return 2
    try:
        with _daemon(options) as daemon, tempfile.TemporaryDirectory(prefix="hs-board-") as directory:
            figures = Run(options, daemon, Path(directory)).go()
    except server.ServerError as error:
        print(f"hetsched load: {error}", file=sys.stderr)
        return 5
    judged = judge(targets, figures)
    figures["targets"] = [
        {**each.target._asdict(), "measured": each.measured, "reached": each.reached} for each in judged
    ]
    text = json.dumps(figures, indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    print(text if options.json else "\n".join(filter(None, (report.table(figures), report.verdicts(judged)))))
    fleet = figures.get("fleet", {})
    broken = fleet.get("started_twice", 0) or fleet.get("overcommitted", 0)
    return 1 if broken or not all(each.reached for each in judged) else 0


class Run:
    """The processes of one run and what they leave behind."""

    def __init__(self, options: Options, daemon: server.Server, directory: Path) -> None:
        self._options, self._daemon, self._directory = options, daemon, directory
        self._run = f"load{secrets.token_hex(4)}"
        self._rate_per_s = options.rps / options.generators
        self._capacity = capacity_for(rate_per_s=self._rate_per_s, duration_s=options.duration)
        self._boards = [Board(directory, number, self._capacity) for number in range(options.generators)]
        self._samples: list[dict[str, float]] = []

    def go(self) -> report.Figures:
        """The whole run; figures as in the JSON report."""
        options = self._options
        with contextlib.ExitStack() as stack:
            if options.nodes:
                stack.enter_context(self._beside(run_fleet, self._fleet_plan(), f"{options.nodes} nodes"))
            stack.enter_context(self._beside(observe, self._watch(), "the event stream"))
            before = self._daemon.cost()
            start_ns = time.monotonic_ns() + int(LEAD_S * 1e9)
            end_ns = start_ns + int(options.duration * 1e9)
            self._generate(start_ns, end_ns)
            self._drain()
            now_ns = time.monotonic_ns()
            after = self._daemon.cost()
        results = [json.loads((self._directory / f"{number}.json").read_text()) for number in range(options.generators)]
        figures: dict[str, Any] = {"run": self._about()}
        figures |= report.figures(
            self._boards, results, read_mix(options.mix), start_ns=start_ns, end_ns=end_ns, now_ns=now_ns
        )
        figures["fragmentation"] = report.fragmentation(self._samples)
        if options.nodes:
            fleet = capacity_of(fleet_of(options.nodes, self._run))
            figures["load"] = report.load_on(fleet, read_mix(options.mix), options.rps)
            figures["fleet"] = json.loads((self._directory / "fleet.json").read_text())
        if before and after:
            cpu_s = after["cpu_s"] - before["cpu_s"]
            per_task = cpu_s * 1e6 / max(figures["achieved"]["acknowledged"], 1)
            figures["daemon"] = {"cpu_s": cpu_s, "cpu_us_per_task": per_task, "rss_bytes": after["rss_bytes"]}
        return figures

    def _generate(self, start_ns: int, end_ns: int) -> None:
        processes = [
            spawn.Process(target=generate, args=(self._plan(number, start_ns, end_ns),), daemon=True)
            for number in range(self._options.generators)
        ]
        for process in processes:
            process.start()
        limit_ns = end_ns + int((self._options.timeout + READY_S) * 1e9)
        try:
            while any(process.is_alive() for process in processes) and time.monotonic_ns() < limit_ns:
                self._sample()
                time.sleep(SAMPLE_S)
        finally:
            _end(processes)
        failed = [process.exitcode for process in processes if process.exitcode != 0]
        if failed:
            raise server.ServerError(f"{len(failed)} of {len(processes)} generators broke off; their errors are above")

    def _drain(self) -> None:
        """Until every acknowledged task is known to be placed, at most `--drain` seconds."""
        deadline = time.monotonic() + self._options.drain
        while time.monotonic() < deadline:
            if all(((board.acknowledged == 0) | (board.placement_known_ns() > 0)).all() for board in self._boards):
                return
            time.sleep(0.1)

    def _sample(self) -> None:
        with contextlib.suppress(server.ServerError):  # a daemon under load may be late; the next second asks again
            fragmentation = self._daemon.get("/v1/cluster")["fragmentation"]
            self._samples.append({kind: entry["ratio"] for kind, entry in fragmentation.items()})

    @contextlib.contextmanager
    def _beside(self, target: Any, plan: Any, what: str) -> Iterator[None]:
        """A process beside the run: ready before it begins, told to stop after it."""
        ready, stop = spawn.Event(), spawn.Event()
        process = spawn.Process(target=target, args=(plan, ready, stop), daemon=True)
        process.start()
        try:
            deadline = time.monotonic() + READY_S
            while not ready.wait(0.1):
                if process.exitcode is not None or time.monotonic() > deadline:
                    raise server.ServerError(f"{what}: not ready within {READY_S:.0f} s (is the token right?)")
            yield
        finally:
            stop.set()
            _end([process])

    def _plan(self, number: int, start_ns: int, end_ns: int) -> Plan:
        options, daemon = self._options, self._daemon
        return Plan(
            number=number,
            directory=self._directory,
            capacity=self._capacity,
            host=daemon.host,
            port=daemon.port,
            token=daemon.token,
            run=self._run,
            mode=options.mode,
            mix=options.mix,
            rate_per_s=self._rate_per_s,
            start_ns=start_ns,
            end_ns=end_ns,
            tick_s=options.tick,
            batch=options.batch,
            connections=options.connections,
            timeout_s=options.timeout,
            seed=options.seed,
        )

    def _fleet_plan(self) -> FleetPlan:
        daemon = self._daemon
        return FleetPlan(daemon.url, daemon.agent_token, self._run, self._options.nodes, self._directory / "fleet.json")

    def _watch(self) -> Watch:
        daemon = self._daemon
        return Watch(
            daemon.host, daemon.port, daemon.token, self._run, self._directory, self._options.generators, self._capacity
        )

    def _about(self) -> dict[str, Any]:
        hidden = {"token", "agent_token"}
        options = {name: value for name, value in vars(self._options).items() if name not in hidden}
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.release()}
        return {
            "options": {name: str(v) if isinstance(v, Path) else v for name, v in options.items()},
            "machine": machine,
        }


@contextlib.contextmanager
def _daemon(options: Options) -> Iterator[server.Server]:
    if options.url is None:
        with server.own(store=options.store, sets=options.sets) as daemon:
            yield daemon
        return
    tokens = {"token": options.token, "agent-token": options.agent_token}
    for name, given in tokens.items():
        if given is None and options.data is not None:
            with contextlib.suppress(OSError):
                tokens[name] = (options.data / name).read_text().strip()
    if tokens["token"] is None or (options.nodes and tokens["agent-token"] is None):
        raise server.ServerError("--url needs the tokens: --data DIR of the daemon, or --token and --agent-token")
    yield server.existing(
        options.url,
        token=tokens["token"],
        agent_token=tokens["agent-token"] or "",
        foreign_allowed=options.i_own_this_host,
    )


def _end(processes: list[SpawnProcess]) -> None:
    for process in processes:
        process.join(3)
        if process.is_alive():
            process.terminate()
            process.join(3)
